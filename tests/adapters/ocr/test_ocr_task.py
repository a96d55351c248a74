"""Configs brought to life: inputs, training mode, distillation, and what goes wrong."""

from __future__ import annotations

import copy
import multiprocessing
import shutil

import numpy as np
import paddle
import pytest

from dysens.adapters.ocr import OcrTask, load_ppocr
from dysens.adapters.ocr._labels import check_data
from dysens.errors import InputError

SMALL_CROPS = "Train.dataset.transforms.2.EastRandomCropData.size=[96,64]"
SMALL_BATCH = "Train.loader.batch_size_per_card=2"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("ch_PP-OCRv3_det", [1, 3, 64, 96]),
        ("ch_PP-OCRv4_det", [1, 3, 64, 96]),
        ("det_mv3_db", [1, 3, 64, 96]),
        ("ch_PP-OCRv3_rec", [1, 3, 48, 320]),
        ("ch_PP-OCRv4_rec", [1, 3, 48, 320]),
        ("rec_mv3_crnn", [1, 3, 32, 160]),
    ],
)
def test_every_config_runs_and_trains(name, shape, config):
    """Forward in both modes with the task's own inputs, and a loss that reaches the first layer."""
    task = OcrTask(config(name, SMALL_BATCH, *([SMALL_CROPS] if "det" in name else [])))
    assert [list(tensor.shape) for tensor in task.example_inputs] == [shape]
    task.model.eval()
    with paddle.no_grad():
        task.model(*task.example_inputs)
    task.model.train()
    batch = next(iter(task.train_dataloader()))
    arguments = task.train_inputs
    assert list(arguments[0].shape) == [2, *(min(side, 256) if "det" in name else side for side in shape[1:])]
    assert (len(arguments) == 2) == ("PP-OCR" in name and "rec" in name)
    loss = task.loss()(task.model(batch[0], *([batch[1:]] if len(arguments) == 2 else [])), batch)["loss"]
    loss.backward()
    first = task.model.parameters()[0]
    assert np.isfinite(float(loss))
    assert np.abs(first.grad.numpy()).sum() > 0
    task.model(*arguments)


def test_train_inputs_repeat_and_leave_randomness_alone(config):
    np.random.seed(5)
    expected = np.random.rand()
    np.random.seed(5)
    tasks = [OcrTask(config("det_mv3_db", SMALL_BATCH, SMALL_CROPS)) for _ in range(2)]
    first, second = (task.train_inputs[0].numpy() for task in tasks)
    np.testing.assert_array_equal(first, second)
    assert np.random.rand() == expected


def test_config_is_not_changed(config):
    given = config("ch_PP-OCRv3_rec", "Global.pretrained_model=null")
    before = copy.deepcopy(given)
    task = OcrTask(given)
    assert given == before
    assert task.weights is None
    assert task.config["Architecture"]["Head"]["out_channels_list"]["CTCLabelDecode"] == 6625


def test_sub_model_is_the_live_one_inside(distillation):
    task = OcrTask(distillation)
    assert task.submodel == "Student"
    assert task.model is task.network.Student
    assert (
        OcrTask(distillation, submodel="Teacher").model.backbone.out_channels
        != task.model.backbone.out_channels
    )


def test_sub_model_scores_as_within_the_whole(distillation):
    """On random weights hmean is 0 everywhere, so the counts of both are compared."""
    task = OcrTask(distillation)
    evaluator = task.evaluator
    task.network.eval()
    with paddle.no_grad():
        counts = [
            evaluator.measure(task.model(*evaluator.arguments(batch)), batch) for batch in evaluator.batches()
        ]
    seen = []
    metric = task.new_network_metric()
    metric_results = lambda: metric.metrics["Student"].results  # noqa: E731

    class Watching:
        main_indicator = "hmean"

        def __call__(self, *arguments):
            metric(*arguments)

        def get_metric(self):
            seen.extend(metric_results())
            return metric.get_metric()

    result = load_ppocr().program.eval(
        task.network, task.eval_dataloader(), task.post_process, Watching(), "det"
    )
    assert result["hmean"] == evaluator.score(counts)
    assert [(row["gtCare"], row["detCare"], row["detMatched"]) for row in seen] == counts
    assert sum(count.detected for count in counts) > 0


def test_recognition_student_scores_as_within_the_whole(config):
    """Its networks return dicts, and the decoder picks the entry that the config names."""
    given = config("rec_mv3_crnn")
    network = given["Architecture"] | {"return_all_feats": True}
    network["Backbone"] = {"name": "MobileNetV3", "scale": 0.35, "model_name": "small"}
    given["Architecture"] = {
        "name": "DistillationModel",
        "algorithm": "Distillation",
        "model_type": "rec",
        "Models": {"Teacher": copy.deepcopy(network), "Student": network},
    }
    given["PostProcess"] = {
        "name": "DistillationCTCLabelDecode",
        "model_name": ["Student", "Teacher"],
        "key": "head_out",
    }
    given["Metric"] = {
        "name": "DistillationMetric",
        "base_metric_name": "RecMetric",
        "main_indicator": "norm_edit_dis",
        "key": "Student",
    }
    task = OcrTask(given)
    evaluator = task.evaluator
    task.network.eval()
    with paddle.no_grad():
        counts = [
            evaluator.measure(task.model(*evaluator.arguments(batch)), batch) for batch in evaluator.batches()
        ]
    arguments = task.network, task.eval_dataloader(), task.post_process, task.new_network_metric(), "rec"
    assert evaluator.score(counts) == load_ppocr().program.eval(*arguments)["norm_edit_dis"]


def test_weights_of_the_whole_and_of_the_student(distillation, tmp_path):
    task = OcrTask(distillation)
    whole, student = tmp_path / "whole.pdparams", tmp_path / "student.pdparams"
    paddle.save(task.network.state_dict(), str(whole))
    paddle.save(task.model.state_dict(), str(student))
    other = OcrTask(distillation)
    assert other.load(whole).count == len(task.network.state_dict())
    assert other.load(student).count == len(task.model.state_dict())
    np.testing.assert_array_equal(other.model.parameters()[0].numpy(), task.model.parameters()[0].numpy())


def test_student_file_in_a_plain_config_is_explained(distillation, config, tmp_path):
    path = tmp_path / "whole.pdparams"
    paddle.save(OcrTask(distillation).network.state_dict(), str(path))
    with pytest.raises(InputError, match="begin with Student, Teacher"):
        OcrTask(config("det_mv3_db", f"Global.pretrained_model={path}"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "Eval.dataset.label_file_list=[no/such/label.txt]",
            r'label file "no/such/label.txt" is not there.*write_scenes',
        ),
        ("Eval.dataset.data_dir=no/such/folder", "the image in line 1 of.*Eval.dataset.data_dir"),
        ("Global.character_dict_path=no/dict.txt", 'dictionary "no/dict.txt"'),
        ("Global.pretrained_model=ch_PP-OCRv3_dett", 'did you mean "ch_PP-OCRv3_det"'),
        ("Architecture=", '"Architecture" of the config is None'),
        ("Architecture.Backbone.name=MobileNetV9", "cannot build the config's Architecture.*backbone"),
        ("Architecture.Backbone.scale=0.123", "cannot build the config's Architecture.*scale"),
    ],
)
def test_mistakes_are_sentences(override, message, config):
    with pytest.raises(InputError, match=message):
        _ = OcrTask(config("det_mv3_db", override)).evaluator


def test_a_section_that_is_missing(config):
    given = config("det_mv3_db")
    del given["PostProcess"]
    with pytest.raises(InputError, match='no section "PostProcess"'):
        OcrTask(given)


def test_too_few_images_for_a_batch(config):
    with pytest.raises(InputError, match="6 images, too few for one batch of 64"):
        OcrTask(config("det_mv3_db", "Train.loader.batch_size_per_card=64")).train_dataloader()


def test_label_file_of_another_kind(config, tmp_path):
    path = tmp_path / "label.txt"
    path.write_text("only one column\n")
    with pytest.raises(
        InputError, match=r"Line 1 of 1 .* is not an image, a tab and its label.*spaces where the tab"
    ):
        OcrTask(config("det_mv3_db", f"Eval.dataset.label_file_list=[{path}]")).eval_dataloader()


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("ch_PP-OCRv3_det", lambda text: text[:-40], r"line 6 of 6 .* is cut short or garbled"),
        (
            "ch_PP-OCRv3_det",
            lambda text: text[: text.rindex("\t")],
            r"Line 6 of 6 .* is not an image, a tab",
        ),
        (
            "ch_PP-OCRv3_rec",
            lambda text: text[: text.rindex("\t")],
            r"Line 8 of 8 .* is not an image, a tab",
        ),
        (
            "ch_PP-OCRv3_det",
            lambda text: f"{text.partition(chr(9))[0]}\t\n{text}",
            r"line 1 of 7 .* is cut short",
        ),
        ("ch_PP-OCRv3_rec", lambda text: "\n" + text, r"Line 1 of 9 .* is empty"),
        ("ch_PP-OCRv3_rec", lambda text: "", r"is empty"),
        ("ch_PP-OCRv3_rec", lambda text: "\ufeff" + text, r"Line 1 .* byte-order mark"),
        ("ch_PP-OCRv3_rec", lambda text: text.replace("\t", "    "), r"Line 1 of 8 .*There are spaces"),
        ("ch_PP-OCRv3_rec", lambda text: text.replace("3.", "gone."), r"gone.*the image in line \d of"),
    ],
)
def test_a_label_file_that_is_cut_short_is_named(config, images, tmp_path, name, damage, said):
    kind = "det" if "det" in name else "rec"
    labels = (images / f"{kind}_eval" / "label.txt").read_text(encoding="utf-8").rstrip("\n")
    torn = tmp_path / "label.txt"
    torn.write_text(damage(labels), encoding="utf-8")
    with pytest.raises(InputError, match=said):
        check_data(config(name, f"Eval.dataset.label_file_list=[{torn}]"), "Eval")


def test_texts_like_lists_and_texts_that_are_empty(config, images, tmp_path, caplog):
    """What a line says may look like a list; one that says nothing is told, as PaddleOCR reads another instead."""
    names = [line.split("\t")[0] for line in (images / "rec_eval" / "label.txt").read_text().splitlines()]
    labels = tmp_path / "label.txt"
    labels.write_text("".join(f"{name}\t{text}\n" for name, text in zip(names, ["[12]", "a", "", "[{"])))
    check_data(config("ch_PP-OCRv3_rec", f"Eval.dataset.label_file_list=[{labels}]"), "Eval")
    assert "1 of 4 lines of" in caplog.text
    assert "the first is line 3" in caplog.text


def test_an_image_of_no_bytes(config, images, tmp_path):
    (tmp_path / "a.png").touch()
    labels = tmp_path / "label.txt"
    labels.write_text("a.png\ttext\n")
    given = config(
        "ch_PP-OCRv3_rec",
        f"Eval.dataset.label_file_list=[{labels}]",
        f"Eval.dataset.data_dir={tmp_path}",
    )
    with pytest.raises(InputError, match=r"the image in line 1 of .* is an empty file"):
        check_data(given, "Eval")


def _with_a_damaged_image(images, folder, number):
    """The lines to score on, one of whose files begins like an image and goes on as something else."""
    copied = shutil.copytree(images / "rec_eval", folder / "rec")
    name = (copied / "label.txt").read_text(encoding="utf-8").splitlines()[number - 1].split("\t")[0]
    (copied / name).write_bytes((copied / name).read_bytes()[:20] + b"<html>404</html>")
    return copied, name


def test_a_damaged_image_to_score_on_is_refused(config, images, tmp_path):
    folder, name = _with_a_damaged_image(images, tmp_path, 3)
    task = OcrTask(
        config(
            "ch_PP-OCRv3_rec",
            f"Eval.dataset.label_file_list=[{folder}/label.txt]",
            f"Eval.dataset.data_dir={folder}",
        )
    )
    with pytest.raises(InputError, match=rf"{name}.*the image in line 3 of .*label.txt.* cannot be decoded"):
        _ = task.evaluator


def test_a_damaged_image_to_train_on_is_warned_of_once(config, images, tmp_path, caplog):
    """PaddleOCR goes on with another one, as it would for a user of its own tools."""
    folder, name = _with_a_damaged_image(images, tmp_path, 3)
    task = OcrTask(
        config(
            "ch_PP-OCRv3_rec",
            f"Train.dataset.label_file_list=[{folder}/label.txt]",
            f"Train.dataset.data_dir={folder}",
            "Train.loader.num_workers=0",
            "Train.loader.batch_size_per_card=4",
        )
    )
    loader = task.train_dataloader()
    shapes = [batch[0].shape for _ in range(2) for batch in loader]
    assert [shape[0] for shape in shapes] == [4] * len(shapes)
    said = [each.getMessage() for each in caplog.records if "cannot be decoded" in each.getMessage()]
    assert len(said) == 1
    assert name in said[0]
    assert "the image in line 3 of" in said[0]
    assert sum(1 for _ in task.unlabelled().batches) > 0  # calibrating is no scoring


def test_labels_that_paddleocr_passes_over_are_counted(config, images, tmp_path, caplog):
    names = [line.split("\t")[0] for line in (images / "rec_eval" / "label.txt").read_text().splitlines()]
    labels = tmp_path / "label.txt"
    texts = ["good", "far too long " * 9, "fine", "\ue000\ue001"]  # the last is in no dictionary
    labels.write_text("".join(f"{name}\t{text}\n" for name, text in zip(names, texts)), encoding="utf-8")
    OcrTask(config("ch_PP-OCRv3_rec", f"Eval.dataset.label_file_list=[{labels}]")).eval_dataloader()
    assert "2 of 4 labels of Eval cannot be encoded" in caplog.text
    assert "the first is line 2 of" in caplog.text


def test_workers_end_when_batches_are_left_early(config):
    """A first look at the images must not leave processes behind until the program ends."""
    task = OcrTask(
        config("ch_PP-OCRv3_rec", "Eval.loader.num_workers=2", "Eval.loader.batch_size_per_card=2")
    )
    before = set(multiprocessing.active_children())
    first = task.first_images()
    assert set(multiprocessing.active_children()) <= before
    assert len(list(task.evaluator.batches())) == len(task.evaluator.batches()) == 4
    np.testing.assert_array_equal(next(iter(task.evaluator.batches()))[0].numpy(), first.numpy())


def test_a_loss_that_paddleocr_does_not_know(config):
    task = OcrTask(config("ch_PP-OCRv3_det", "Loss.main_loss_type=NoLoss", "Global.pretrained_model=null"))
    with pytest.raises(InputError, match=r"cannot build the config's Loss: Exception: .*main_loss_type"):
        task.loss()


def test_a_large_batch_is_not_run_to_look_at_a_few_images(config, images, tmp_path):
    """Stock recognisers have batches of 128 lines: one of them in double precision takes minutes."""
    labels = tmp_path / "label.txt"
    labels.write_text((images / "rec_eval" / "label.txt").read_text(encoding="utf-8") * 3, encoding="utf-8")
    task = OcrTask(
        config(
            "ch_PP-OCRv3_rec",
            f"Eval.dataset.label_file_list=[{labels}]",
            "Eval.loader.batch_size_per_card=24",
        )
    )
    assert len(next(iter(task.evaluator.batches()))[0]) == 24
    assert len(task.first_images()) == 16
    seen: list[int] = []
    hook = task.model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    readings = task.readings(3)
    hook.remove()
    assert seen == [3]
    assert [each.text for each in readings] == [each.text for each in task.readings(20)[:3]]


def test_a_label_file_that_is_no_text_is_named(config, tmp_path):
    torn = tmp_path / "label.txt"
    torn.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"Line 1 of .* is not UTF-8 text"):
        check_data(config("ch_PP-OCRv3_rec", f"Eval.dataset.label_file_list=[{torn}]"), "Eval")


def test_windows_line_ends_are_read_as_paddleocr_reads_them(config, images, tmp_path):
    labels = tmp_path / "label.txt"
    labels.write_bytes((images / "rec_eval" / "label.txt").read_bytes().replace(b"\n", b"\r\n"))
    task = OcrTask(config("ch_PP-OCRv3_rec", f"Eval.dataset.label_file_list=[{labels}]"))
    assert len(task.eval_dataloader().dataset) == 8


def test_a_label_file_in_another_encoding(config, tmp_path):
    labels = tmp_path / "label.txt"
    labels.write_bytes("a.png\tgood\nb.png\tschön\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"Line 2 of the label file .* is not UTF-8 text"):
        OcrTask(config("ch_PP-OCRv3_rec", f"Eval.dataset.label_file_list=[{labels}]")).eval_dataloader()


def test_keys_of_a_stock_config_are_handled(config, caplog):
    """A GPU that is not there, several processes, a profiler: PaddleOCR 3's files have them all."""
    given = config(
        "ch_PP-OCRv3_det", "Global.use_gpu=true", "+Global.distributed=true", "+Global.debug=false"
    )
    given["profiler_options"] = "batch_range=[1, 2]"
    task = OcrTask(given)
    assert task.config["Global"]["distributed"] is False
    assert task.config["profiler_options"] is None
    if not paddle.is_compiled_with_cuda():
        assert task.config["Global"]["use_gpu"] is False
        assert "this Paddle is built for CPU" in caplog.text


@pytest.mark.parametrize("name", ["det_mv3_db", "ch_PP-OCRv3_rec", "ch_PP-OCRv4_rec"])
def test_training_inputs_need_no_data(config, name):
    task = OcrTask(config(name, "Train.dataset.label_file_list=[gone.txt]", "Train.dataset.data_dir=gone"))
    task.model.train()
    assert len(task.train_inputs[0]) == 2
    task.model(*task.train_inputs)
