import copy
import json
import logging
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dysens.errors import DysensError, InputError, JournalError
from dysens.results import Journal, Point, Sensitivities

from .common import golden_sensitivities, header, point
from .test_records import points as any_points


@pytest.fixture
def sens():
    points = [
        point("conv2d_1.w_0", 0.2, 0.3),
        point("conv2d_0.w_0", 0.3, 0.2),
        point("conv2d_0.w_0", 0.1, 0.01, seconds=None),
        point("conv2d_0.w_0", 0.5, metric=math.nan),
    ]
    return Sensitivities(points, baseline=0.9)


class TestMapping:
    def test_by_name_and_by_path(self, sens):
        assert sens["conv2d_0.w_0"][0.3] == sens["stem.0.weight"][0.3] == 0.2
        assert sens["conv2d_0.w_0"] == {0.1: 0.01, 0.3: 0.2, 0.5: math.inf}

    def test_order_of_first_point_and_rising_ratios(self, sens):
        assert list(sens) == ["conv2d_1.w_0", "conv2d_0.w_0"]
        assert list(sens["conv2d_0.w_0"]) == [0.1, 0.3, 0.5]
        assert len(sens) == 2

    def test_float_noise_finds_the_ratio(self, sens):
        assert sens["conv2d_0.w_0"][0.1 + 0.2] == sens["conv2d_0.w_0"][np.float64(0.3)] == 0.2
        assert 0.1 + 0.2 in sens["conv2d_0.w_0"]
        assert 0.31 not in sens["conv2d_0.w_0"]

    def test_contains(self, sens):
        assert "conv2d_0.w_0" in sens
        assert "stem.0.weight" in sens
        assert "stem.1.weight" not in sens
        assert "high" not in sens["conv2d_0.w_0"]
        assert sens.get("nothing") is None

    def test_a_wrong_name_gets_a_hint(self, sens):
        with pytest.raises(KeyError) as error:
            sens["conv2d_0.w0"]
        assert (
            str(error.value) == "There are no sensitivities of 'conv2d_0.w0'; did you mean \"conv2d_0.w_0\"?"
        )
        assert isinstance(error.value, DysensError)
        with pytest.raises(KeyError, match=r"not measured at 0\.7; it was at 0\.1, 0\.3, 0\.5"):
            sens["conv2d_0.w_0"][0.7]

    def test_it_is_read_only_plain_data(self, sens):
        with pytest.raises(TypeError):
            sens["a"] = {}
        with pytest.raises(TypeError):
            sens["conv2d_0.w_0"][0.3] = 1
        assert pickle.loads(pickle.dumps(sens)) == copy.deepcopy(sens) == sens
        assert type(sens.to_dict()["conv2d_0.w_0"]) is dict

    def test_repr(self, sens):
        assert repr(sens) == "Sensitivities(2 groups, 4 points, baseline 0.9)"
        assert repr(Sensitivities([])) == "Sensitivities(0 groups, 0 points, baseline unknown)"

    def test_partial_points_are_left_out(self):
        assert len(Sensitivities([point(share=0.5)])) == 0

    def test_contradicting_points_are_an_error(self):
        with pytest.raises(InputError, match=r"ratio 0\.3 has the loss 0\.1 .* 0\.2"):
            Sensitivities([point(loss=0.1), point(loss=0.2)])

    def test_no_points(self):
        empty = Sensitivities([])
        assert dict(empty) == {}
        assert empty.ratios_by_loss(0.1) == {}
        assert list(empty.to_frame().columns) == ["param", "path", "ratio", "metric", "loss", "seconds"]


@pytest.mark.parametrize("name", ["mobilenet_v1", "tiny_resnet"])
def test_ratios_by_loss(name):
    curves, expected = golden_sensitivities(name, "fpgm")
    points = [
        Point(param, "", ratio, None, loss) for param in curves for ratio, loss in curves[param].items()
    ]
    sens = Sensitivities(points)
    assert sens.ratios_by_loss(0.05, monotone=False) == pytest.approx(expected)
    assert all(ratio <= expected[param] for param, ratio in sens.ratios_by_loss(0.05).items())


class TestFrame:
    def test_columns_and_values(self, sens):
        frame = sens.to_frame()
        assert list(frame.columns) == ["param", "path", "ratio", "metric", "loss", "seconds"]
        assert frame.param.tolist() == ["conv2d_1.w_0"] + ["conv2d_0.w_0"] * 3
        assert frame.ratio.tolist() == [0.2, 0.1, 0.3, 0.5]
        assert frame.loss.tolist() == [0.3, 0.01, 0.2, math.inf]
        assert frame.metric.isna().tolist() == [False, False, False, True]
        assert all(frame[name].dtype == np.float64 for name in ("ratio", "metric", "loss", "seconds"))

    def test_there_and_back(self, sens):
        again = Sensitivities.from_frame(sens.to_frame(), baseline=0.9)
        assert again.points == sens.points

    def test_three_columns_are_enough(self):
        made = Sensitivities.from_frame(pd.DataFrame({"param": ["a"], "ratio": [0.5], "loss": [0.1]}))
        assert made.to_dict() == {"a": {0.5: 0.1}}

    @pytest.mark.parametrize(
        ("frame", "named"),
        [
            ({"param": ["a"], "ratio": [0.5]}, "lacks the column.* loss"),
            ({"param": ["a", "a"], "ratio": [0.5, 2], "loss": [0.1, 0.1]}, "Row 2 .*under 1"),
            ({"param": [None], "ratio": [0.5], "loss": [0.1]}, "Row 1 .*string"),
            ({"param": ["a"], "ratio": ["x"], "loss": [0.1]}, "Row 1 .*number"),
        ],
    )
    def test_wrong_tables_are_refused_in_words(self, frame, named):
        with pytest.raises(InputError, match=named):
            Sensitivities.from_frame(pd.DataFrame(frame))

    def test_a_column_that_is_there_twice(self, sens):
        frame = sens.to_frame()
        with pytest.raises(InputError, match="loss more than once"):
            Sensitivities.from_frame(pd.concat([frame, frame[["loss"]]], axis=1))


class TestFiles:
    def test_csv(self, sens, tmp_path):
        sens.to_csv(tmp_path / "out" / "sens.csv")
        again = Sensitivities.load(tmp_path / "out" / "sens.csv")
        assert again.points == sens.points
        assert again.baseline is None
        assert pd.read_csv(tmp_path / "out" / "sens.csv").equals(sens.to_frame().astype({"param": str}))

    def test_json(self, sens, tmp_path):
        sens.to_json(tmp_path / "sens.json")
        again = Sensitivities.load(str(tmp_path / "sens.json"))
        assert again.points == sens.points
        assert again.baseline == 0.9
        assert json.loads((tmp_path / "sens.json").read_text())["points"][3]["loss"] is None

    def test_the_direction_is_kept(self, tmp_path):
        Sensitivities([], 1.5, higher_is_better=False).to_json(tmp_path / "sens.json")
        assert not Sensitivities.load(tmp_path / "sens.json").higher_is_better

    def test_a_journal(self, tmp_path):
        path = tmp_path / "sens.jsonl"
        journal = Journal.open(path, header(higher_is_better=False))
        for each in (point("conv2d_1.w_0", 0.2), point("conv2d_0.w_0", 0.2), point(share=0.5)):
            journal.append(each)
        loaded = Sensitivities.load(path)
        assert list(loaded) == ["conv2d_0.w_0", "conv2d_1.w_0"]
        assert (loaded.baseline, loaded.higher_is_better) == (0.9, False)
        assert len(loaded.points) == 2

    def test_a_journal_with_a_garbled_first_and_a_torn_last_line(self, tmp_path, caplog):
        path = tmp_path / "sens.jsonl"
        Journal.open(path, header()).append(point())
        path.write_bytes(b"\x80\x04garbled\n" + path.read_bytes() + b'{"kind": "poi')
        with caplog.at_level(logging.WARNING):
            assert Sensitivities.load(path).points == (point(),)
        assert [record.getMessage().split(" is skipped")[0][-6:] for record in caplog.records] == [
            "line 1",
            "line 4",
        ]

    def test_three_lines_of_pandas(self, tmp_path):
        """As docs/file-formats.md shows it."""
        path = tmp_path / "sens.jsonl"
        journal = Journal.open(path, header())
        journal.claim("conv2d_0.w_0", 0.3)
        journal.append(point())
        frame = pd.read_json(path, lines=True, precise_float=True)
        frame = frame[(frame.kind == "point") & (frame.share == 1)]
        frame = frame.drop_duplicates(["path", "ratio"], keep="last")
        assert frame[["param", "ratio", "loss"]].values.tolist() == [["conv2d_0.w_0", 0.3, 0.1]]

    @pytest.mark.parametrize(
        "content", [b"", b"hello\n", b"{}", b"a,b\n1,2\n", b"\x89PNG\r\n", b'{"kind": "poem"}\n']
    )
    def test_other_files_are_refused_in_words(self, tmp_path, content):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(JournalError, match="holds no sensitivities"):
            Sensitivities.load(tmp_path / "file")

    def test_a_missing_file_and_a_folder(self, tmp_path):
        with pytest.raises(JournalError, match="does not exist"):
            Sensitivities.load(tmp_path / "nowhere")
        with pytest.raises(JournalError, match="not a regular file"):
            Sensitivities.load(tmp_path)

    def test_a_place_that_can_not_be_written(self, sens, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(JournalError, match="cannot be written"):
            sens.to_csv(tmp_path / "file" / "sens.csv")

    @settings(deadline=None, max_examples=50)
    @given(st.lists(any_points, max_size=5))
    def test_any_points_survive_json_and_csv(self, tmp_path_factory, points):
        folder = tmp_path_factory.mktemp("files")
        try:
            sens = Sensitivities(points, 0.5)
        except InputError:
            return  # the points contradict each other
        sens.to_json(folder / "a")
        assert Sensitivities.load(folder / "a").points == sens.points
        sens.to_csv(folder / "b")
        assert Sensitivities.load(folder / "b").points == sens.points


class TestMerge:
    def test_points_of_all_parts(self, tmp_path):
        one = Sensitivities([point(ratio=0.1), point(ratio=0.2)], 0.9)
        other = Sensitivities([point(ratio=0.2), point("conv2d_1.w_0", 0.2)], 0.9 + 1e-9)
        other.to_json(tmp_path / "other.json")
        merged = Sensitivities.merge([one, tmp_path / "other.json"])
        assert [(p.param, p.ratio) for p in merged.points] == [
            ("conv2d_0.w_0", 0.1),
            ("conv2d_0.w_0", 0.2),
            ("conv2d_1.w_0", 0.2),
        ]
        assert merged.baseline == 0.9

    def test_contradictions_name_both(self, tmp_path):
        for name, loss in (("a.json", 0.1), ("b.json", 0.2)):
            Sensitivities([point(loss=loss)], 0.9).to_json(tmp_path / name)
        files = [tmp_path / "a.json", tmp_path / "b.json"]
        with pytest.raises(
            InputError, match=r"conv2d_0.w_0 at ratio 0.3 has the loss 0.1 in .*a\.json and 0.2 in .*b\.json"
        ):
            Sensitivities.merge(files)
        assert Sensitivities.merge(files, prefer="first")["conv2d_0.w_0"][0.3] == 0.1
        assert Sensitivities.merge(files, prefer="last")["conv2d_0.w_0"][0.3] == 0.2

    def test_baselines_must_agree(self):
        parts = [Sensitivities([point(ratio=0.1)], 0.9), Sensitivities([point(ratio=0.2)], 0.8)]
        with pytest.raises(InputError, match=r"baselines differ: 0.9 in part 1, 0.8 in part 2"):
            Sensitivities.merge(parts)
        assert Sensitivities.merge(parts, prefer="first").baseline == 0.9
        assert Sensitivities.merge(parts, prefer="last").baseline == 0.8

    def test_an_unknown_baseline_has_no_say(self):
        parts = [Sensitivities([point(ratio=0.1)]), Sensitivities([point(ratio=0.2)], 0.8)]
        assert Sensitivities.merge(parts).baseline == 0.8

    def test_directions_must_agree(self):
        parts = [Sensitivities([], 1, True), Sensitivities([], 1, False)]
        with pytest.raises(InputError, match="higher score is better"):
            Sensitivities.merge(parts, prefer="first")

    def test_shifted_names_are_matched_by_path(self):
        one = Sensitivities([Point("conv2d_0.w_0", "stem.weight", 0.1, 0.8, 0.1)])
        other = Sensitivities([Point("conv2d_50.w_0", "stem.weight", 0.2, 0.8, 0.2)])
        assert Sensitivities.merge([one, other]).to_dict() == {"conv2d_0.w_0": {0.1: 0.1, 0.2: 0.2}}

    def test_one_name_for_two_layers_is_an_error(self):
        one = Sensitivities([Point("conv2d_0.w_0", "stem.weight", 0.1, 0.8, 0.1)])
        other = Sensitivities([Point("conv2d_0.w_0", "head.weight", 0.1, 0.8, 0.1)])
        with pytest.raises(
            InputError, match=r"stem.weight .* head.weight in part 2: the automatic names have shifted"
        ):
            Sensitivities.merge([one, other], prefer="first")
        merged = Sensitivities.merge([one, other.renamed({"head.weight": "conv2d_9.w_0"})])
        assert list(merged) == ["conv2d_0.w_0", "conv2d_9.w_0"]

    def test_a_part_without_paths_learns_them(self):
        slim = Sensitivities([Point("conv2d_0.w_0", "", 0.1, None, 0.1)])
        ours = Sensitivities([point(ratio=0.2)])
        assert {p.path for p in Sensitivities.merge([slim, ours]).points} == {"stem.0.weight"}

    def test_wrong_arguments(self):
        with pytest.raises(InputError, match="nothing to merge"):
            Sensitivities.merge([])
        with pytest.raises(InputError, match="prefer"):
            Sensitivities.merge([Sensitivities([])], prefer="both")


def test_renamed(sens):
    renamed = sens.renamed({"stem.0.weight": "conv2d_80.w_0", "other.weight": "conv2d_81.w_0"})
    assert list(renamed) == ["conv2d_1.w_0", "conv2d_80.w_0"]
    assert renamed["stem.0.weight"] == sens["stem.0.weight"]
    assert renamed.baseline == 0.9


def test_renaming_onto_another_group_is_an_error(sens):
    with pytest.raises(InputError, match="shifted"):
        sens.renamed({"stem.0.weight": "conv2d_1.w_0"})
    swapped = sens.renamed({"stem.0.weight": "conv2d_1.w_0", "block.conv.weight": "conv2d_0.w_0"})
    assert swapped["conv2d_1.w_0"] == sens["conv2d_0.w_0"]
