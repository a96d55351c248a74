"""Costs travel with the sensitivities: journal, JSON document, merge, new names; older files do without."""

import json
import logging
from dataclasses import replace

import pytest

from dysens.costs import Costs, GroupCosts, Term, Width
from dysens.errors import InputError, UnreachableError
from dysens.ratios import predicted_loss
from dysens.results import Journal, Sensitivities

from .common import PATHS, header, point

COSTS = Costs(
    tuple(GroupCosts(name, path, 10, 10, 1, 1) for name, path in PATHS.items()),
    (Width(10, {0: 1}), Width(10, {1: 1})),
    (Term(10.0, 3, (0,)), Term(2.0, 1, (0, 1)), Term(100.0, 7, ())),
)


def swept(path, **changes):
    with Journal.open(path, header(**changes)) as journal:
        for param in PATHS:
            for ratio, loss in ((0.2, 0.01), (0.5, 0.1), (0.8, 0.4)):
                journal.append(point(param, ratio, loss))
    return path


def test_a_journal_knows_the_costs(tmp_path):
    sens = Sensitivities.load(swept(tmp_path / "sens.jsonl", costs=COSTS))
    assert sens.costs == COSTS
    ratios = sens.ratios_by_flops(0.4)
    assert COSTS.flops(ratios) <= 0.6 * COSTS.whole_flops
    assert sum(predicted_loss(sens[name], ratio) for name, ratio in ratios.items()) < 0.5
    fewer = sens.ratios_by_params(0.4)
    assert COSTS.params(fewer) <= 0.6 * COSTS.whole_params


def test_a_journal_without_costs_says_so(tmp_path):
    path = swept(tmp_path / "sens.jsonl")
    assert "costs" not in json.loads(path.read_text().splitlines()[0])
    sens = Sensitivities.load(path)
    assert sens.costs is None
    with pytest.raises(InputError, match=r"sens.jsonl does not say what the network costs"):
        sens.ratios_by_flops(0.5)


def test_a_target_out_of_reach_says_what_is_in_reach(tmp_path):
    sens = Sensitivities.load(swept(tmp_path / "sens.jsonl", costs=COSTS))
    with pytest.raises(UnreachableError, match=r"remove 6\d\.\d%"):
        sens.ratios_by_flops(0.9)


def test_an_older_journal_learns_the_costs_when_it_is_continued(tmp_path):
    path = swept(tmp_path / "sens.jsonl", baseline=0.9)
    Journal.open(path, header(costs=COSTS, baseline=0.9 + 1e-7)).append(point(ratio=0.9, loss=0.9))
    sens = Sensitivities.load(path)
    assert sens.costs == COSTS
    assert sens.baseline == 0.9
    assert len(sens.points) == 7
    Journal.open(path, header(costs=COSTS))
    Journal.open(path, header())
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds.count("header") == 2
    assert Sensitivities.load(path).costs == COSTS


def test_other_costs_are_no_other_sweep(tmp_path):
    path = swept(tmp_path / "sens.jsonl", costs=COSTS)
    Journal.open(path, header(costs=replace(COSTS, terms=())))
    assert Sensitivities.load(path).costs == COSTS


def test_costs_that_cannot_be_read_are_reported_and_cost_no_points(tmp_path, caplog):
    path = swept(tmp_path / "sens.jsonl", costs=COSTS)
    first, *rest = path.read_text().splitlines(keepends=True)
    garbled = {**json.loads(first), "costs": {"groups": "newer than this"}}
    path.write_text(json.dumps(garbled) + "\n" + "".join(rest))
    with caplog.at_level(logging.WARNING, "dysens.results"):
        sens = Sensitivities.load(path)
    assert "FLOPs and parameters are unknown" in caplog.text
    assert sens.costs is None
    assert len(sens.points) == 6
    assert sens.baseline == 0.9


def test_the_json_document_keeps_costs(tmp_path):
    sens = Sensitivities.load(swept(tmp_path / "sens.jsonl", costs=COSTS))
    sens.to_json(tmp_path / "sens.json")
    assert Sensitivities.load(tmp_path / "sens.json").costs == COSTS


def test_new_names_reach_the_costs(tmp_path):
    sens = Sensitivities.load(swept(tmp_path / "sens.jsonl", costs=COSTS))
    renamed = sens.renamed({"stem.0.weight": "conv2d_70.w_0", "block.conv.weight": "conv2d_0.w_0"})
    assert renamed.costs.flops({"conv2d_70.w_0": 0.5}) == COSTS.flops({"conv2d_0.w_0": 0.5})
    assert renamed.costs.flops({"conv2d_0.w_0": 0.5}) == COSTS.flops({"conv2d_1.w_0": 0.5})


def test_merged_parts_share_their_costs(tmp_path, caplog):
    one = Sensitivities.load(swept(tmp_path / "one.jsonl", costs=COSTS))
    other = Sensitivities.load(swept(tmp_path / "other.jsonl"))
    assert Sensitivities.merge([other, one]).costs == COSTS
    assert Sensitivities.merge([other, other]).costs is None
    assert not caplog.records
    wider = Sensitivities.load(
        swept(tmp_path / "wider.jsonl", costs=replace(COSTS, terms=(*COSTS.terms, Term(1.0, 1, ()))))
    )
    with caplog.at_level(logging.WARNING, "dysens.results"):
        assert Sensitivities.merge([one, wider]).costs == COSTS
        assert Sensitivities.merge([one, wider], prefer="last").costs == wider.costs
    assert "wider.jsonl do not agree on what the network costs" in caplog.text


def test_partial_points_are_kept_apart(tmp_path):
    path = swept(tmp_path / "sens.jsonl", costs=COSTS)
    with Journal.open(path, header()) as journal:
        journal.append(point(ratio=0.2, loss=0.9, share=0.25))  # a full one is there
        journal.append(point(ratio=0.3, loss=0.02, share=0.25))
        journal.append(point("conv2d_7.w_0", 0.3, 0.02, path="head.weight", share=0.5))
    sens = Sensitivities.load(path)
    assert [(p.param, p.ratio) for p in sens.partial_points] == [("conv2d_0.w_0", 0.3), ("conv2d_7.w_0", 0.3)]
    assert 0.3 not in sens["conv2d_0.w_0"]
    assert "conv2d_7.w_0" not in sens
    merged = Sensitivities.merge([sens, Sensitivities([point(ratio=0.3, loss=0.03)], 0.9)])
    assert [p.param for p in merged.partial_points] == ["conv2d_7.w_0"]
