"""Commands that build a model: how it is named, what is measured, what is cut."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import paddle
import pytest
import yaml
from networks import SHAPE, ShuffleNet
from sweep import sweeping

from dysens import DygraphSensitivity, Sensitivities, load_pruned
from dysens.cli._models import config_kind
from dysens.cli._tables import groups_text
from dysens.errors import InputError
from dysens.groups import FREE
from dysens.pruning import history

CONFIGS = Path(__file__).parents[2] / "configs"
MADE = ["sweep.sweeping:made", "--input-shape", "2,3,6,6"]
BARE = ["sweep.sweeping:network", "--input-shape", "2,3,6,6"]
FAST = ["--fast", "off"]  # a compiled copy takes longer than all points

SCORING = '''
"""Evaluators and models as a user would write them."""
import numpy as np
import paddle
from sweep.sweeping import Closeness, network
from dysens.evaluators import Evaluator

def norm(model):
    return float(model.head.weight.abs().mean()) + float(model.convs[3].weight.abs().mean())

def size(model):
    return float(sum(each.weight.size for each in model.convs))

class Norm(Evaluator):
    name = "norm of outputs"
    def batches(self):
        return [[paddle.ones([1, 3, 6, 6])]]
    def measure(self, outputs, batch):
        return float(outputs.abs().sum())
    def score(self, measurements):
        return float(np.mean(measurements))

def number():
    return 3

def two(model, data):
    return 1.0

def fails(model):
    raise ValueError("the data set is gone")

def no_model():
    return "nothing"

def perceptron():
    from paddle import nn
    paddle.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    return model, lambda: 1 / (1 + float((model(paddle.ones([2, 4])) - 1).abs().mean()))
'''


@pytest.fixture
def scoring(tmp_path: Path) -> str:
    """A module in the current folder, which is on no path of its own."""
    name = f"scoring_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(SCORING)
    return name


def test_groups(dysens):
    done = dysens("groups", *MADE)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["layer", "param", "channels", "units", "layers", "rule"]
    assert [line.split()[0] for line in lines[1:5]] == [f"convs.{number}" for number in range(4)]
    assert "4 groups found and proven" in done.err
    data = json.loads(dysens("groups", *MADE, "--skip-vars", "convs.0.*,convs.1.weight", "--json").out)
    assert [group["path"] for group in data["groups"]] == ["convs.2.weight", "convs.3.weight"]
    assert all("skip_vars" in reason for reason in data["unprunable"].values())


def test_units_of_all_layers(dysens, scoring, tmp_path):
    named = [f"{scoring}:perceptron", "--input-shape", "1,4"]
    assert "layers" in dysens("groups", *named).err
    data = json.loads(dysens("groups", *named, "--layers", "all", "--json").out)
    assert [group["path"] for group in data["groups"]] == ["0.weight", "2.weight"]
    swept = dysens("sweep", *named, "--layers", "all", "--ratios", "0.5", *FAST, "-o", "units.jsonl")
    assert swept.code == 0, swept.err
    assert len(Sensitivities.load(tmp_path / "units.jsonl")) == 2
    Path("r.yml").write_text("0.weight: 0.5\n")
    cut = dysens("prune", *named, "r.yml", "--layers", "all", "-o", "cut")
    assert cut.code == 0, cut.err
    assert load_pruned(_perceptron(), "cut")[0].weight.shape == [4, 4]
    assert "is not known" in dysens("groups", *named, "--layers", "every").err


def _perceptron() -> paddle.nn.Layer:
    linear, relu = paddle.nn.Linear, paddle.nn.ReLU
    return paddle.nn.Sequential(linear(4, 8), relu(), linear(8, 6), relu(), linear(6, 2))


@pytest.mark.parametrize("width", [50, 80])
def test_a_list_of_groups_fits_the_terminal_rules_and_all(width):
    ds = DygraphSensitivity(ShuffleNet(), SHAPE)
    rules = {group.rule for group in ds.groups} - {FREE}
    assert rules
    text = groups_text(ds.groups, ds.unprunable, width)
    assert max(map(len, text.splitlines())) <= width
    assert all(rule in " ".join(text.split()) for rule in rules)


def test_explain(dysens):
    done = dysens("groups", *MADE, "--explain", "convs.1.weight")
    assert "convs.2" in done.out


def test_a_network_of_paddle_vision(dysens):
    data = json.loads(
        dysens("groups", "LeNet", "--input-shape", "1,1,28,28", "--set", "num_classes=7", "--json").out
    )
    assert [group["path"] for group in data["groups"]] == ["features.0.weight", "features.3.weight"]
    paddle.save(paddle.vision.models.LeNet().state_dict(), "ten.pdparams")
    words = ["groups", "LeNet", "--input-shape", "1,1,28,28", "--weights", "ten.pdparams"]
    assert dysens(*words).code == 0
    wrong = dysens(*words, "--set", "num_classes=7")
    assert wrong.code == 1
    assert "has shape" in wrong.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mobilnet_v1"], 'did you mean "mobilenet_v1"?'),
        (["sweep.sweeping:mode", "--input-shape", "1"], 'did you mean "made"?'),
        (["nowhere.at_all:made", "--input-shape", "1"], "No module named 'nowhere'"),
        (["sweep.sweeping:", "--input-shape", "1"], 'has to be "package.module:function"'),
        (["sweep.sweeping:made"], "give their shape, such as --input-shape"),
        (["sweep.sweeping:sweep", "--input-shape", "1"], "missing a required argument: 'journal'"),
        ([*MADE, "--set", "sped=3"], "unexpected keyword argument 'sped'"),
        ([*MADE, "--set", "seed"], "not of the form key=value"),
        ([*MADE, "--weights", "none.pdparams"], 'no weights "none.pdparams"'),
        ([*MADE, "--submodel", "Student"], "--submodel goes with"),
        ([*MADE, "--skip-vars", "conv.0.weight"], 'did you mean "convs.0.weight"?'),
        (["nowhere.yml"], "cannot be read"),
        ([str(CONFIGS / "ocr/det_mv3_db.yml"), "--input-shape", "1,3,32,32"], "a config says it itself"),
    ],
)
def test_models_that_cannot_be_built(dysens, words, said):
    done = dysens("groups", *words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "file", sorted([*CONFIGS.glob("ocr/*.yml"), *CONFIGS.glob("det/*.yml")]), ids=lambda file: file.name
)
def test_configs_are_told_apart(file):
    assert config_kind(file) == file.parent.name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1", "not a config that dysens knows"),
        ("- a", "not a config that dysens knows"),
        ("", "not a config that dysens knows"),
        ("a: [", "not valid YAML"),
    ],
)
def test_other_yaml_files_are_no_configs(tmp_path, text, said):
    (tmp_path / "a.yml").write_text(text)
    with pytest.raises(InputError, match=said):
        config_kind(tmp_path / "a.yml")


def test_a_checkout_s_config_has_tags_and_a_base(tmp_path):
    (tmp_path / "a.yml").write_text("_BASE_: [b.yml]\nTrainDataset: !COCODataSet\n  image_dir: x\n")
    assert config_kind(tmp_path / "a.yml") == "det"


def test_a_sweep_and_what_follows(dysens):
    done = dysens("sweep", *MADE, *FAST, "--ratios", "0.25,0.5", "--ratios", "0.75", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].split() == ["layer", "0.25", "0.5", "0.75"]
    sens = Sensitivities.load("sens.jsonl")
    assert len(sens.points) == 12
    assert done.out in dysens("show", "sens.jsonl").out
    assert dysens("plot", "sens.jsonl", "--kind", "flops").code == 0

    # Ratios need no model: the journal knows what it costs.
    chosen = dysens("ratios", "sens.jsonl", "--flops", "0.5", "-o", "ratios.yml")
    assert "of the FLOPs" in chosen.err
    from_file = json.loads(dysens("prune", *MADE, "ratios.yml", "-o", "out/a", "--json").out)
    from_aim = json.loads(
        dysens("prune", *MADE, "sens.jsonl", "--flops", "0.5", "-o", "out/b", "--json", "--plot", "w.png").out
    )
    # The journal predicts; with the model at hand FLOPs are counted.
    assert from_file["flops_after"] == pytest.approx(0.5 * from_file["flops_before"], rel=0.05)
    assert from_aim["flops_after"] <= 0.5 * from_aim["flops_before"]
    assert max(from_file["difference"], from_aim["difference"]) < 1e-4
    assert Path("w.png").is_file()
    again = load_pruned(sweeping.network(), "out/a")
    widths = {group["path"]: group["after"] for group in from_file["groups"]}
    assert {path: dict(again.named_parameters())[path].shape[0] for path in widths} == widths
    assert len(history(again)) == 1


def test_a_cut_goes_by_what_was_swept(dysens):
    words = [*FAST, "--ratios", "0.5", "--criterion", "l1"]
    assert dysens("sweep", *MADE, *words).code == 0
    aim = ["--flops", "0.1", "--json"]
    as_swept = dysens("prune", *MADE, "sens.jsonl", *aim)
    assert "criterion" not in as_swept.err
    assert as_swept.out == dysens("prune", *MADE, "sens.jsonl", *aim, "--criterion", "l1").out
    assert (
        "swept with the criterion l1" in dysens("prune", *MADE, "sens.jsonl", *aim, "--criterion", "l2").err
    )
    other = dysens("prune", *MADE, "sens.jsonl", *aim, "--set", "seed=1")
    assert other.code == 0
    assert "swept with other weights" in other.err


def test_a_pruned_checkpoint_is_pruned_further(dysens):
    Path("r.yml").write_text("convs.0.weight: 0.5\n")
    assert dysens("prune", *MADE, "r.yml", "-o", "once").code == 0
    data = json.loads(
        dysens("prune", *MADE, "r.yml", "--weights", "once.pdparams", "-o", "twice", "--json").out
    )
    assert data["groups"] == [{"param": "conv2d_0.w_0", "path": "convs.0.weight", "before": 10, "after": 5}]
    assert load_pruned(sweeping.network(), "twice").convs[0].weight.shape[0] == 5


def test_a_cut_is_scored_before_and_after(dysens, scoring):
    """By what the model brings, or by what the user names; the card has both scores."""
    Path("r.yml").write_text("convs.3.weight: 0.5\n")
    own = json.loads(dysens("prune", *MADE, "r.yml", "-o", "own/a", "--json").out)
    assert own["metric"] == "score"
    assert own["score_after"] < own["score_before"] == pytest.approx(1.0)
    named = dysens("prune", *BARE, "r.yml", "-e", f"{scoring}:norm", "-o", "named/a")
    sys.modules.pop(scoring)
    last = named.out.splitlines()[-1].split()
    assert (last[0], last[2]) == ("score", "->")
    assert float(last[1]) != float(last[3])
    card = json.loads(Path("named/card.json").read_text())
    assert [round(state["score"], 4) for state in card["states"]] == [float(last[1]), float(last[3])]
    # The same network, cut in the same way, is worth what `eval` finds.
    found = json.loads(dysens("eval", *MADE, "--weights", "own/a.pdparams", "--json").out)
    assert found["score"] == pytest.approx(own["score_after"])


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        (BARE, [], "The cut is not scored: give --evaluator package.module:function."),
        (MADE, ["--no-score"], ""),
    ],
)
def test_a_cut_that_is_not_scored(dysens, model, words, said):
    Path("r.yml").write_text("convs.3.weight: 0.5\n")
    done = dysens("prune", *model, "r.yml", "--json", *words)
    cut = json.loads(done.out)
    assert (done.code, cut["score_before"], cut["score_after"]) == (0, None, None)
    assert said in done.err
    assert json.loads(Path("card.json").read_text())["metric"] is None


def test_a_ruined_cut_is_said_to_be(dysens):
    Path("r.yml").write_text("".join(f"convs.{place}.weight: 0.9\n" for place in range(4)))
    done = dysens("prune", *MADE, "r.yml", "--json")
    cut = json.loads(done.out)
    assert cut["score_after"] < 0.8 * cut["score_before"]
    assert f"({cut['score_before']:.4f} -> {cut['score_after']:.4f}). Remove less" in done.err
    Path("r.yml").write_text("convs.0.weight: 0.0\n")
    assert "Remove less" not in dysens("prune", *MADE, "r.yml").err


def test_an_error_that_falls_is_no_loss(dysens, scoring):
    Path("r.yml").write_text("".join(f"convs.{place}.weight: 0.5\n" for place in range(4)))
    falls = ["prune", *BARE, "r.yml", "-e", f"{scoring}:size"]
    assert "Remove less" in dysens(*falls, "-o", "a/a").err
    assert "Remove less" not in dysens(*falls, "--lower-is-better", "-o", "b/b").err
    better = [json.loads(Path(folder, "card.json").read_text())["higher_is_better"] for folder in "ab"]
    assert better == [True, False]


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        (None, [], "cannot be read"),
        ("convs.0.weight: 0.5", ["--flops", "0.5"], "holds no sensitivities"),
        ("conv.0.weight: 0.5", [], 'did you mean "convs.0.weight"?'),
        ("convs.0.weight: 1.5", [], "must be at least 0 and under 1"),
        ("- 3", [], "holds no ratios"),
    ],
)
def test_cuts_that_cannot_be(dysens, content, words, said):
    if content is not None:
        Path("r.yml").write_text(content)
    done = dysens("prune", *MADE, "r.yml", *words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert not Path("pruned.pdparams").exists()


def test_sensitivities_without_an_aim_are_no_ratios(dysens, journal):
    assert "Say how much to prune" in dysens("prune", *MADE, journal).err


def test_a_sweep_goes_on_and_measures_only_what_is_missing(dysens, tmp_path):
    counts = tmp_path / "counts"
    words = ["sweep", *MADE, *FAST, "--set", f"counts={counts}", "--only", "convs.1.weight, convs.2.*"]
    assert dysens(*words, "--ratios", "0.5").code == 0
    assert sum(sweeping.evaluations(counts, sweeping.network()).values()) == 2
    assert dysens(*words, "--ratios", "0.25,0.5").code == 0
    assert sum(sweeping.evaluations(counts, sweeping.network()).values()) == 4
    refused = dysens(*words, "--criterion", "l1")
    assert refused.code == 1
    assert "the criterion was fpgm and is l1 now" in refused.err
    assert "--force" in refused.err


def test_a_sweep_by_two_workers(dysens):
    words = ["sweep", *MADE, *FAST, "--ratios", "0.5", "--json"]
    alone = dysens(*words)
    shared = dysens(*words, "--workers", "2", "-o", "two.jsonl", "--visualdl", "vdl")
    assert shared.code == 0, shared.err
    assert json.loads(shared.out) == json.loads(alone.out)
    assert "visualdl --logdir vdl" in shared.err
    assert len(list(Path("vdl").iterdir())) == 1


def test_a_search_by_two_workers(dysens):
    words = ["search", *MADE, *FAST, "--target-loss", "0.5", "--ratios", "0.2,0.4,0.6", "--json"]
    alone = json.loads(dysens(*words, "-o", "one.jsonl").out)
    shared = dysens(*words, "--workers", "2", "-o", "two.jsonl")
    assert shared.code == 0, shared.err
    found = json.loads(shared.out)
    assert [(g["path"], g["ratio"]) for g in found["groups"]] == [
        (g["path"], g["ratio"]) for g in alone["groups"]
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cpus-per-worker", "2"], "--cpus-per-worker goes with --ray"),
        (["--ray", "auto", "--gpus-per-worker", "-1"], "num_gpus has to be 0 or more"),
        (["--ray", ""], 'address has to be "auto" or the address of a Ray cluster'),
    ],
)
def test_workers_of_a_cluster_that_cannot_be(dysens, words, said):
    done = dysens("sweep", *MADE, *words)
    assert done.code == 1
    assert said in done.err


def test_visualdl_is_missed_before_anything_is_built(dysens, monkeypatch):
    monkeypatch.setitem(sys.modules, "visualdl", None)
    done = dysens("sweep", "nowhere:build", "--visualdl", "vdl")
    assert done.code == 1
    assert 'pip install "dysens[vdl]"' in done.err


def test_search(dysens):
    done = dysens(
        "search",
        *MADE,
        *FAST,
        "--target-loss",
        "0.5",
        "--ratios",
        "0.2,0.4,0.6",
        "--save-ratios",
        "r.yml",
        "--json",
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["target_loss"] == 0.5
    saved = yaml.safe_load(Path("r.yml").read_text())
    assert saved == {group["path"]: group["ratio"] for group in found["groups"] if group["ratio"]}
    text = dysens("search", *MADE, *FAST, "--target-loss", "0.5", "--ratios", "0.2,0.4,0.6").out
    assert text.splitlines()[0].startswith("layer")
    assert "passes over the data" in text


def test_an_evaluator_of_one_s_own(dysens, scoring):
    words = ["sweep", *BARE, *FAST, "--ratios", "0.5", "--only", "convs.2.weight", "--json"]
    by_function = dysens(*words, "-e", f"{scoring}:norm", "-o", "a.jsonl")
    assert by_function.code == 0, by_function.err
    assert "scored by norm\n" in dysens("show", "a.jsonl").out
    by_class = dysens(*words, "-e", f"{scoring}:Norm", "--lower-is-better", "-o", "b.jsonl")
    assert by_class.code == 0, by_class.err
    assert "scored by norm of outputs" in dysens("show", "b.jsonl").out
    assert json.loads(by_function.out)["baseline"] != json.loads(by_class.out)["baseline"]


@pytest.mark.parametrize(
    ("evaluator", "said"),
    [
        (None, "There is no evaluator for"),
        ("number", "has to return an Evaluator, not 3"),
        ("two", "needs 2 arguments"),
        ("nrom", 'did you mean "norm"?'),
    ],
)
def test_evaluators_that_cannot_score(dysens, scoring, evaluator, said):
    words = ["-e", f"{scoring}:{evaluator}"] if evaluator else []
    done = dysens("sweep", *BARE, *words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert not Path("sens.jsonl").exists()


def test_an_error_in_the_user_s_code_is_named_with_its_place(dysens, scoring):
    done = dysens("sweep", *BARE, *FAST, "-e", f"{scoring}:fails")
    assert (done.code, done.out) == (1, "")
    assert "error: ValueError: the data set is gone" in done.err
    assert f"{scoring}.py, line" in done.err
    assert "--debug" in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in dysens("sweep", *BARE, *FAST, "-e", f"{scoring}:fails", "--debug").err


def test_a_function_that_makes_no_model(dysens, scoring):
    done = dysens("groups", f"{scoring}:no_model", "--input-shape", "1,3,6,6")
    assert "has to return the model" in done.err


def test_random_weights_are_not_swept(dysens, scoring):
    done = dysens("sweep", "LeNet", "--input-shape", "1,1,28,28", "-e", f"{scoring}:norm")
    assert done.code == 1
    assert "random weights" in done.err


def test_a_model_of_a_function_is_scored_and_exported_but_has_no_training_loop(dysens):
    scored = json.loads(dysens("eval", *MADE, "--json").out)
    assert (scored["indicator"], scored["score"]) == ("score", pytest.approx(1.0))
    assert scored["flops"] > 0
    done = dysens("export", *MADE, "-o", "inference", "--json")
    assert done.code == 0, done.err
    # Under pytest standard output is no descriptor of its own, and a kernel of Paddle 3 prints its name there.
    assert json.loads(done.out[done.out.index("{") :])["difference"] < 1e-4
    assert any(path.suffix == ".pdiparams" for path in Path("inference").iterdir())
    assert "A function scores the live model" in dysens("eval", *MADE, "--exported", "inference").err
    refused = dysens("train", *MADE)
    assert refused.code == 1
    assert "no training loop" in refused.err
    assert "--resume goes with a config" in dysens("train", *MADE, "--resume", "latest").err


def test_ratios_with_the_model_at_hand_are_counted_on_it(dysens):
    assert dysens("sweep", *MADE, *FAST, "--ratios", "0.25,0.5,0.75").code == 0
    counted = json.loads(dysens("ratios", "sens.jsonl", *MADE, "--flops", "0.3", "--json").out)
    direct = json.loads(dysens("prune", *MADE, "sens.jsonl", "--flops", "0.3", "--json").out)
    assert set(counted) == {group["path"] for group in direct["groups"]}
    Path("counted.json").write_text(json.dumps(counted))
    again = json.loads(dysens("prune", *MADE, "counted.json", "--json").out)
    assert again["flops_after"] == direct["flops_after"] <= 0.7 * direct["flops_before"]
