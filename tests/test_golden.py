"""Parity with PaddleSlim on trained networks, for a sample of points; benchmarks/golden_parity.py does them all."""

from __future__ import annotations

import pytest
from golden import INPUT_SHAPE, accuracy_of, golden_results, trained

from dysens import DygraphSensitivity
from dysens.model import tensors_by_path

TRAINED = ("tiny_resnet", "mobilenet_v1")
ALL = (*TRAINED, "mobilenet_v3")
CRITERIA = ("fpgm", "l1")
THRESHOLD = 0.05


@pytest.fixture(
    scope="module", params=[(name, criterion) for name in ALL for criterion in CRITERIA], ids="-".join
)
def case(request):
    name, criterion = request.param
    model = trained(name)
    ds = DygraphSensitivity(model, INPUT_SHAPE, criterion=criterion)
    return name, model, ds, golden_results(name)["criteria"][criterion]


def test_every_group_has_the_same_members(case):
    _, _, ds, expected = case
    ours = {group.name: {tuple(pair) for pair in group.members} for group in ds.groups}
    for master, members in expected["groups"].items():
        assert ours[master] == {tuple(pair) for pair in members}, master


def test_the_same_channels_go_at_one_half(case):
    _, _, ds, expected = case
    with ds.pruned(dict.fromkeys(expected["groups"], 0.5)) as outcome:
        removed = {(item.tensor, item.axis): sorted(item.removed) for item in outcome.plan.cuts}
    paths = {group.name: group.path for group in ds.groups}
    ours = {master: removed[paths[master], 0] for master in expected["groups"]}
    assert ours == expected["pruned_channels_at_half"]


def test_the_cut_for_a_loss_gives_the_same_shapes_and_flops(case):
    name, model, ds, expected = case
    if name not in TRAINED:
        pytest.skip("only the structure of this network is known")
    with ds.pruned(expected["ratios_at_loss_0.05"]) as outcome:
        shapes = {path: list(tensor.shape) for path, tensor in tensors_by_path(model).items()}
        accuracy = accuracy_of(model)()
    # PaddleSlim leaves copies of the weights behind in the layers.
    wanted = {path: shape for path, shape in expected["shapes_after"].items() if not path.endswith("_backup")}
    assert {path: shapes[path] for path in wanted} == wanted
    assert (outcome.flops_before, outcome.flops_after) == (expected["flops_before"], expected["flops_after"])
    assert accuracy == pytest.approx(expected["accuracy_after"], abs=2e-3)


def test_flops_of_the_whole_network(case):
    _, _, ds, expected = case
    with ds.pruned({}) as outcome:
        assert outcome.flops_before == outcome.flops_after == expected["flops_before"]


def test_sensitivities_and_ratios_around_the_threshold(case):
    """The two points that the ratio for a loss is interpolated between, for one group."""
    name, model, ds, expected = case
    if name not in TRAINED:
        pytest.skip("its sensitivities would be noise")
    accuracy = accuracy_of(model)
    master, ratio = list(expected["ratios_at_loss_0.05"].items())[-1]
    curve = {float(r): loss for r, loss in expected["sensitivities"][master].items()}
    around = neighbours(curve)
    sens = ds.sensitive(accuracy, ratios=around, target_vars=[master], progress=False, fast="off")
    assert sens.baseline == pytest.approx(golden_results(name)["baseline"])
    for each in around:
        assert sens[master][each] == pytest.approx(curve[each], abs=2e-3), (master, each)
    assert sens.ratios_by_loss(THRESHOLD, monotone=False)[master] == pytest.approx(ratio, abs=1e-2), master


def neighbours(curve: dict[float, float]) -> list[float]:
    """The highest ratio whose loss is under the threshold, and the next one."""
    ratios = sorted(curve)
    last = max(i for i, ratio in enumerate(ratios) if curve[ratio] <= THRESHOLD)
    return ratios[last : last + 2]
