"""The tools for PaddleOCR from the command line: every step from the files of the one before, and what goes wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import paddle
import pytest
import yaml

from dysens.adapters.ocr import InferenceModel, OcrTask, load_config
from dysens.ratios import read_ratio_file, write_ratio_file
from dysens.results import Sensitivities

# Three late groups that a few images can tell apart, and little of everything else.
GROUPS = (
    "backbone.stage3.0.expand_conv.conv.weight",
    "backbone.stage3.1.expand_conv.conv.weight",
    "backbone.stage3.2.expand_conv.conv.weight",
)
RATIOS = (0.3, 0.6, 0.9)
TRAINING = (
    "Train.loader.batch_size_per_card=2",
    "Train.loader.shuffle=false",
    "Global.print_batch_step=1",
    "Global.log_smooth_window=1",
    "Global.epoch_num=2",
    "Optimizer.lr.learning_rate=0.0003",
)


class Session:
    """The command line of a user who prunes the released PP-OCRv3 detector.

    Args:
        config: A copy of the shipped config with paths of the test's images.
        folder: Where files go.
        tool: Imports a tool.
    """

    def __init__(self, config, folder, tool):
        self.folder = folder
        self.file = folder / "det.yml"
        self.file.write_text(
            yaml.safe_dump(config("ch_PP-OCRv3_det", f"Global.save_model_dir={folder}", *TRAINING))
        )
        self.journal = folder / "sensitivities.jsonl"
        self._tool = tool

    def arguments(self, *options, opt=()):
        return ["-c", str(self.file), "-o", "Global.use_gpu=false", *opt, *options]

    def sensitivity(self, *options, opt=()):
        self._tool("ocr_sensitivity").main(self.arguments(*options, opt=opt))

    def run(self, name, *options, opt=()):
        self._tool(name).main(self.arguments(*options, opt=opt))

    def process(self, *options, opt=()):
        command = [sys.executable, self._tool("ocr_sensitivity").__file__, *self.arguments(*options, opt=opt)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder
        )

    def points(self):
        """The whole lines of the journal that are points."""
        lines = self.journal.read_text().split("\n")[:-1] if self.journal.is_file() else []
        return [line for line in lines if '"kind": "point"' in line]


@pytest.fixture(scope="module")
def session(config, tool, tmp_path_factory):
    return Session(config, tmp_path_factory.mktemp("pruning"), tool)


SWEEP = ("--steps", "sweep", "--pruned_params", *GROUPS, "--fast", "off")
EVAL_ONLY = (
    "--eval_only",
)  # the cut itself is proven for the training forward too; looking for groups twice costs seconds
ALL_RATIOS = ("--ratios", *map(str, RATIOS))
# A story of every step, 80 CPU seconds long. In `make test` pipeline/test_front_ends.py goes through the same tools on the other
# stack, and cli/test_configs.py from a sweep to a checkpoint on this one; training is test_ocr_training.py's.
STORY = pytest.mark.once("test-all")


@pytest.fixture(scope="module")
def swept(session):
    """A sweep of part of the ratios, and the rest with a network that is built anew; what was on disk in between."""
    session.sensitivity(*SWEEP, *EVAL_ONLY, "--ratios", str(RATIOS[0]))
    before = session.points()
    assert len(before) == len(GROUPS)
    session.sensitivity(*SWEEP, *EVAL_ONLY, *ALL_RATIOS)
    return before


@pytest.fixture(scope="module")
def pruned(session, swept):
    """The steps ratios and prune, each alone."""
    session.sensitivity("--steps", "ratios", "--flops", "0.03", *EVAL_ONLY)
    session.sensitivity("--steps", "prune")
    return session.folder / "pruned"


@pytest.fixture(scope="module")
def trained(session, pruned):
    """The step train, alone, in a process of its own; what it reported."""
    process = session.process("--steps", "train")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def losses(output):
    return {
        int(step): float(loss) for step, loss in re.findall(r"global_step: (\d+),.*? loss: ([\d.]+)", output)
    }


@STORY
def test_a_sweep_goes_on_with_more_ratios_and_loses_no_point(session, swept):
    after = session.points()
    assert after[: len(swept)] == swept
    measured = [(json.loads(line)["path"], json.loads(line)["ratio"]) for line in after]
    assert sorted(measured) == sorted((group, ratio) for group in GROUPS for ratio in RATIOS)


@STORY
def test_ratios_and_cut_come_from_the_files(session, pruned):
    ratios = yaml.safe_load((session.folder / "ratios.yml").read_text())
    assert set(ratios) <= set(GROUPS)
    task = OcrTask(load_config(session.file, [f"Global.pretrained_model={pruned}"]))
    whole = OcrTask(load_config(session.file))
    widths = {
        path: (tensor.shape[0], whole.model.state_dict()[path].shape[0])
        for path, tensor in task.model.state_dict().items()
        if path in ratios
    }
    assert len(widths) == len(ratios)
    assert all(
        left == pytest.approx(before * (1 - ratios[path]), abs=1) for path, (left, before) in widths.items()
    )


@STORY
def test_training_goes_on_in_a_new_process(session, trained, capsys):
    """The loss goes on from where it was; a network without the weights is far from there."""
    first = losses(trained)
    assert list(first) == [1, 2, 3, 4, 5, 6]
    latest = session.folder / "latest"
    process = session.process("--steps", "train", opt=[f"Global.checkpoints={latest}", "Global.epoch_num=3"])
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    second = losses(output)
    assert list(second) == [7, 8, 9]
    fresh_folder = session.folder / "fresh"
    session.sensitivity(
        "--steps",
        "prune",
        "train",
        "--ratios_file",
        str(session.folder / "ratios.yml"),
        opt=[
            "Global.pretrained_model=null",
            f"Global.save_model_dir={fresh_folder}",
            "Global.epoch_num=1",
        ],
    )
    fresh = losses(capsys.readouterr().err)[1]
    assert second[7] < (first[6] + fresh) / 2
    assert np.mean(list(second.values())) < np.mean(list(first.values())[:3])


@STORY
def test_exported_network_answers_as_the_live_one(session, trained, capsys):
    weights = f"Global.pretrained_model={session.folder / 'latest'}"
    session.run("ocr_export", opt=[weights])
    printed = capsys.readouterr().out
    assert re.search(r"exported to \S+inference \([\d,]+ bytes\)", printed)
    assert re.search(
        r"outputs on \d+ of Eval's images differ from the network's by \S+e-\d+ at most", printed
    )
    task = OcrTask(load_config(session.file, [weights]))
    exported = InferenceModel(task, session.folder / "inference")
    task.model.eval()
    image = next(iter(task.evaluator.batches()))[0]
    with paddle.no_grad():
        expected = task.model(image)["maps"].numpy()
    np.testing.assert_allclose(exported(image)["maps"].numpy(), expected, rtol=0, atol=1e-4)

    session.run("ocr_eval", opt=[weights])
    session.run("ocr_eval", "--exported", str(session.folder / "inference"))
    live, served = re.findall(r"hmean (\d\.\d+)", capsys.readouterr().out)
    assert live == served
    assert float(live) > 0.5


@STORY  # the same pipeline searches in cli/test_models.py
def test_search_leaves_ratios_and_a_budget_within_them(session, capsys):
    target = ("--target_loss", "0.1")
    journal = session.folder / "search" / "journal.jsonl"
    files = ("--sen_file", str(journal), "--ratios_file", str(session.folder / "searched.json"))
    session.sensitivity(*SWEEP, *EVAL_ONLY, *ALL_RATIOS, *target, *files, "--steps", "sweep", "ratios")
    assert "target loss 0.1" in capsys.readouterr().out
    found = Sensitivities.load(journal.parent / "journal.search-0.1.json")
    assert set(found.paths.values()) == set(GROUPS)
    assert all(len(curve) == 1 and max(curve.values()) <= 0.1 for curve in found.values())

    searched = json.loads((session.folder / "searched.json").read_text())
    assert searched == {path: max(found[path]) for path in GROUPS if max(found[path]) > 0}
    session.sensitivity("--steps", "ratios", "--flops", "0.02", *EVAL_ONLY, *target, *files)
    within = json.loads((session.folder / "searched.json").read_text())
    assert within
    assert all(ratio <= searched[path] for path, ratio in within.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "ratios"], "Say how much to prune by one of --loss"),
        (["--steps", "ratios", "--loss", "0.1", "--flops", "0.3"], "not by --loss and --flops at once"),
        (
            ["--steps", "ratios", "--loss", "0.1", "--target_loss", "0.1"],
            "A search for a --target_loss .* leave one out",
        ),
        (["--steps", "ratios", "--loss", "0.1", "--align", "8"], "--align goes with --flops or --params"),
        (["--steps", "ratios", "--flops", "0.3"], "sensitivities.jsonl.*run the step sweep first"),
        (["--steps", "ratios", "--target_loss", "0.3"], "search-0.3.json.*run the step sweep first"),
        (["--steps", "prune"], r"ratios.yml cannot be read"),
        (["--steps", "train"], r"no pruned checkpoint .*run the step prune first"),
        (["--steps", "sweep", "--cpus_per_worker", "2"], "--cpus_per_worker goes with --ray"),
    ],
)
def test_steps_that_cannot_be_done_yet(options, message, session, tmp_path):
    with pytest.raises(SystemExit, match=f"(?s)^error: .*{message}"):
        session.sensitivity(*options, opt=[f"Global.save_model_dir={tmp_path}"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("Global.pretraned_model=x", r'names "pretraned_model".*pretrained_model'),
        ("Eval.dataset.label_file_list=[gone/label.txt]", r'label file "gone/label.txt" is not there'),
        ("Global.pretrained_model=ch_PP-OCRv4_det", r"do not fit the config's network: "),
        ("Global.pretrained_model=ch_PP-OCRv3_de", r"ch_PP-OCRv3_det"),
        ("Architecture.Backbone.name=MobileNetV33", r"cannot build the config's Architecture.*only support"),
    ],
)
def test_mistakes_end_in_a_sentence(override, message, session, capsys):
    with pytest.raises(SystemExit, match=f"(?s)^error: .*{message}"):
        session.sensitivity(*SWEEP, opt=[override])
    assert "Traceback" not in capsys.readouterr().err


@STORY
def test_training_data_that_are_not_there_are_a_sentence(session, pruned):
    with pytest.raises(SystemExit, match=r'label file "gone/label.txt" is not there'):
        session.sensitivity("--steps", "train", opt=["Train.dataset.label_file_list=[gone/label.txt]"])


def test_exit_code_of_a_mistake(session):
    process = session.process("--flops", "0.3", opt=["Global.pretraned_model=x"])
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "error: The override" in output
    assert "Traceback" not in output


@STORY
def test_an_export_without_data(session, trained, capsys):
    missing = "Eval.dataset.label_file_list=[nowhere.txt]"
    weights = f"Global.pretrained_model={session.folder / 'latest'}"
    session.run("ocr_export", "--out", str(session.folder / "elsewhere"), opt=[weights, missing])
    printed = capsys.readouterr()
    assert 'no images to compare on: The label file "nowhere.txt" is not there' in printed.err
    assert "-o Eval.dataset.label_file_list" in printed.err
    assert "its outputs on noise differ" in printed.out


@STORY
def test_training_begins_with_the_network_that_is_meant(session, pruned, tmp_path, capsys):
    """The config's weights may be of a pruned network themselves."""
    weights, save = f"Global.pretrained_model={pruned}", ("--save", str(tmp_path / "other"))
    plan = json.loads((session.folder / "pruned.plan.json").read_text())
    plan["stages"][0]["cuts"].pop()
    (tmp_path / "other.plan.json").write_text(json.dumps(plan))
    with pytest.raises(SystemExit, match=r"other\" is of one that is cut in another way"):
        session.sensitivity("--steps", "train", *save, opt=[weights])
    (tmp_path / "other.plan.json").unlink()
    once = (weights, "Global.epoch_num=1", f"Global.save_model_dir={tmp_path}")
    session.sensitivity("--steps", "train", *save, opt=once)
    assert "training begins with its weights as they are" in capsys.readouterr().err
    trained = json.loads((tmp_path / "latest.plan.json").read_text())
    assert trained["stages"] == json.loads((session.folder / "pruned.plan.json").read_text())["stages"]


@STORY
def test_a_slim_config_of_paddledetection_prunes_by_its_criterion(session, pruned, capsys):
    """Other filters than those that `pruned` lacks, which went by fpgm, in the same number."""
    slim = session.folder / "slim.yml"
    write_ratio_file(slim, read_ratio_file(session.folder / "ratios.yml").ratios, "slim", "l1")
    names = ("--ratios_file", str(slim), "--save", str(session.folder / "varied"))
    session.sensitivity("--steps", "prune", *names, *EVAL_ONLY)
    assert re.search(r"pruned: hmean 0\.\d", capsys.readouterr().out)
    cuts = [
        {
            (cut["tensor"], cut["axis"]): cut["removed"]
            for cut in json.loads(file.read_text())["stages"][0]["cuts"]
        }
        for file in (session.folder / "varied.plan.json", session.folder / "pruned.plan.json")
    ]
    assert {key: len(gone) for key, gone in cuts[0].items()} == {
        key: len(gone) for key, gone in cuts[1].items()
    }
    assert cuts[0] != cuts[1]


def test_a_wrong_dictionary_is_named_before_the_sweep(config, tool, tmp_path):
    """As many characters in another order: the weights fit, and every word is read wrong."""
    given = config("ch_PP-OCRv3_rec", "Train.loader.batch_size_per_card=2")
    right = OcrTask(given).config["Global"]["character_dict_path"]
    with open(right, encoding="utf-8") as lines:
        characters = lines.read().split("\n")
    wrong = tmp_path / "wrong_dict.txt"
    wrong.write_text("\n".join(reversed([c for c in characters if c])) + "\n", encoding="utf-8")
    given["Global"]["character_dict_path"] = str(wrong)
    file = tmp_path / "rec.yml"
    file.write_text(yaml.safe_dump(given))
    with pytest.raises(SystemExit, match=r"scores 0\.0000 in RecMetric\.acc.*wrong_dict\.txt"):
        tool("ocr_sensitivity").main(["-c", str(file), "--steps", "sweep", "--fast", "off", "--eval_only"])


def prune_and_train(tool, given, path, tmp_path, *options):
    """Cuts one group of a network that nobody trained, and trains; the checkpoint."""
    file, ratios = tmp_path / "config.yml", tmp_path / "ratios.yml"
    given["Global"] |= {"save_model_dir": str(tmp_path), "epoch_num": 1, "print_batch_step": 1}
    file.write_text(yaml.safe_dump(given))
    ratios.write_text(yaml.safe_dump({path: 0.5}))
    tool("ocr_sensitivity").main(["-c", str(file), "--steps", "prune", "train", *options])
    return paddle.load(str(tmp_path / "latest.pdparams"))


@pytest.mark.parametrize("submodel", ["Student", pytest.param("Student2", marks=STORY)])
def test_a_network_that_learns_from_others_is_pruned_alone(submodel, distillation, tool, tmp_path):
    """PaddleOCR's CML: two students learn from each other and from a teacher."""
    models = distillation["Architecture"]["Models"]
    models["Student2"] = json.loads(json.dumps(models["Student"]))
    distillation["PostProcess"]["model_name"] = list(models)
    pairs = {"model_name_pairs": [["Student", "Student2"]], "maps_name": "thrink_maps", "weight": 1.0}
    names = {"model_name_list": ["Student", "Student2"]}
    losses_of = distillation["Loss"]["loss_config_list"]
    losses_of[0]["DistillationDBLoss"] |= names
    losses_of.append({"DistillationDMLLoss": {**pairs, "act": None, "key": "maps"}})
    wide = OcrTask(distillation, submodel).model.state_dict()
    path = next(name for name in wide if name.endswith("expand_conv.conv.weight"))
    saved = prune_and_train(tool, distillation, path, tmp_path, "--submodel", submodel)
    for name in models:
        whole = OcrTask(distillation, name).model.state_dict()[path].shape[0]
        assert saved[f"{name}.{path}"].shape[0] == (whole // 2 if name == submodel else whole)
    again = OcrTask(load_config(tmp_path / "config.yml", [f"Global.pretrained_model={tmp_path / 'latest'}"]))
    assert getattr(again.network, submodel).state_dict()[path].shape[0] == wide[path].shape[0] // 2


@STORY  # test_ocr_coverage.py cuts and trains this branch
def test_a_multi_head_trains_with_its_branch_after_the_cut(config, tool, tmp_path, capsys):
    given = config(
        "ch_PP-OCRv4_rec",
        "Train.loader.batch_size_per_card=4",
        "Train.dataset.transforms.2.RecResizeImg.image_shape=[3,48,96]",
        "Eval.dataset.transforms.2.RecResizeImg.image_shape=[3,48,96]",
    )
    path = "backbone.blocks6.1.pw_conv.reparam_conv.weight"
    saved = prune_and_train(tool, given, path, tmp_path)
    assert saved[path].shape[0] == OcrTask(given).model.state_dict()[path].shape[0] // 2
    reported = capsys.readouterr().err
    assert "CTCLoss" in reported
    assert "NRTRLoss" in reported
    # The released weights have nothing for that branch.
    assert "the branch that only training runs (head.before_gtc and head.gtc_head): it" in reported
