from __future__ import annotations

import pytest
from ppdet.core.workspace import create, global_config, register

from dysens.adapters.det import DetTask, load_config
from dysens.errors import InputError


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_base_is_read_and_overruled(tmp_path):
    write(
        tmp_path / "base.yml",
        "architecture: PicoDet\nnum_classes: 80\nLCNet: {scale: 1.5, feature_maps: [3, 4, 5]}\n",
    )
    child = write(tmp_path / "child.yml", "_BASE_: [base.yml]\nLCNet: {scale: 0.75}\n")
    config = load_config(child)
    assert config["num_classes"] == 80
    assert dict(config["LCNet"]) == {"scale": 0.75, "feature_maps": [3, 4, 5]}


def test_two_configs_do_not_see_each_other(config):
    before = dict(global_config)
    first = config("picodet_s_shapes", "LCNet.scale=0.5", "num_classes=7")
    second = config("picodet_s_shapes")
    assert (first["LCNet"]["scale"], first["num_classes"]) == (0.5, 7)
    assert (second["LCNet"]["scale"], second["num_classes"]) == (0.75, 3)
    assert dict(global_config) == before


def test_two_models_live_in_one_process(config):
    yolo = DetTask(config("yolov3_mobilenet_v1_shapes", "num_classes=5"))
    pico = DetTask(config("picodet_s_shapes"))
    # ppdet's LCPAN appends to a default of its own constructor: without care, the second one does not run.
    second = DetTask(pico.config)
    second.model.eval()
    second.model(second.example_inputs)
    again = DetTask(yolo.config)
    assert type(yolo.model).__name__ == type(again.model).__name__ == "YOLOv3"
    assert yolo.model.yolo_head.num_classes == again.model.yolo_head.num_classes == 5
    assert pico.model.head.num_classes == 3


def test_what_the_user_had_loaded_comes_back(config):
    picodet = config("picodet_s_shapes")
    global_config["mine"] = "still here"
    try:
        with picodet.installed() as live:
            assert live is global_config
            assert "mine" not in live
            live["theirs"] = 1
        assert global_config["mine"] == "still here"
        assert "theirs" not in global_config
        assert picodet.get("theirs") is None
    finally:
        del global_config["mine"]


def test_a_class_registered_meanwhile_stays_registered(config):
    with config("picodet_s_shapes").installed():

        @register
        class RegisteredMeanwhile:
            def __init__(self, size=3):
                self.size = size

    RegisteredMeanwhile.__module__ = __name__
    try:
        assert "RegisteredMeanwhile" in global_config
        with config("picodet_s_shapes").installed() as live:
            assert "RegisteredMeanwhile" in live
    finally:
        del global_config["RegisteredMeanwhile"]


def test_overrides_reach_objects_that_yaml_tags_build(tmp_path):
    path = write(
        tmp_path / "tagged.yml", "architecture: PicoDet\nEvalDataset:\n  !COCODataSet\n    dataset_dir: a\n"
    )
    config = load_config(path, ["EvalDataset.dataset_dir=b"])
    with config.installed():
        assert create("EvalDataset").dataset_dir == "b"


def test_overrides_are_yaml(config):
    changed = config(
        "picodet_s_shapes", "epoch=7", "TrainReader.shuffle=false", "EvalDataset.anno_path=x=y.json"
    )
    assert changed["epoch"] == 7
    assert changed["TrainReader"]["shuffle"] is False
    assert changed["EvalDataset"]["anno_path"] == "x=y.json"


def test_a_setting_that_no_config_has_is_added_with_a_warning(config, caplog):
    assert config("picodet_s_shapes", "use_vdl=true").get("use_vdl") is True
    assert '"use_vdl" is not a setting of this config' in caplog.text


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("epoch", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("epoch=[1", "not valid YAML"),
        ("EvalDatset.anno_path=a.json", 'a section that is not there; did you mean "EvalDataset"'),
        ("LCNet.scal=1", 'LCNet takes no "scal"; did you mean "scale"'),
        ("LCNet=3", "would replace a whole section"),
        ("TrainReader.batch_transforms.Permute=1", "goes through a list"),
    ],
)
def test_bad_overrides_are_sentences(config, override, sentence):
    with pytest.raises(InputError, match=sentence):
        config("picodet_s_shapes", override)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("architecture: [", "is not a PaddleDetection config in YAML"),
        ("- a\n- b\n", "is not a PaddleDetection config in YAML"),
        ("num_classes: 3\n", "names no architecture"),
        ("_BASE_: [nowhere.yml]\n", "builds on .*nowhere.yml, which is not there"),
        ("x: !NoSuchClass {}\n", "is not a PaddleDetection config in YAML"),
    ],
)
def test_bad_configs_are_sentences(tmp_path, text, sentence):
    before = dict(global_config)
    with pytest.raises(InputError, match=sentence):
        load_config(write(tmp_path / "bad.yml", text))
    assert dict(global_config) == before


def test_a_missing_config_and_a_missing_setting_are_sentences(tmp_path, config):
    with pytest.raises(InputError, match="There is no config"):
        load_config(tmp_path / "none.yml")
    with pytest.raises(InputError, match='does not set "epoc"; did you mean "epoch"'):
        config("picodet_s_shapes")["epoc"]
