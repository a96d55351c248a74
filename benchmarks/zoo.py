"""The networks that people prune, as functions: name, and how to build it with its example inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle

import dysens  # noqa: F401  before Paddle: see dysens/__init__.py

CONFIGS = Path(__file__).parent.parent / "configs"

# Family by family; AlexNet, GoogLeNet and Inception need pictures of full size.
VISION = {
    "LeNet": [1, 1, 28, 28],
    "alexnet": [1, 3, 224, 224],
    "vgg11": [1, 3, 64, 64],
    "resnet18": [1, 3, 64, 64],
    "resnet50": [1, 3, 64, 64],
    "resnext50_32x4d": [1, 3, 64, 64],
    "wide_resnet50_2": [1, 3, 64, 64],
    "mobilenet_v1": [1, 3, 64, 64],
    "mobilenet_v2": [1, 3, 64, 64],
    "mobilenet_v3_small": [1, 3, 64, 64],
    "mobilenet_v3_large": [1, 3, 64, 64],
    "squeezenet1_0": [1, 3, 64, 64],
    "densenet121": [1, 3, 64, 64],
    "googlenet": [1, 3, 224, 224],
    "inception_v3": [1, 3, 224, 224],
    "shufflenet_v2_x1_0": [1, 3, 64, 64],
}
OCR = {
    "PP-OCRv3 det": ("ch_PP-OCRv3_det.yml", "ch_PP-OCRv3_det"),
    "PP-OCRv4 det": ("ch_PP-OCRv4_det.yml", "ch_PP-OCRv4_det"),
    "PP-OCRv3 rec": ("ch_PP-OCRv3_rec.yml", "ch_PP-OCRv3_rec"),
    "PP-OCRv4 rec": ("ch_PP-OCRv4_rec.yml", "ch_PP-OCRv4_rec"),
    "DB MobileNetV3": ("det_mv3_db.yml", ""),
    "CRNN MobileNetV3": ("rec_mv3_crnn.yml", ""),
}
DET = {
    "YOLOv3-MobileNetV1": "yolov3_mobilenet_v1_shapes.yml",
    "PP-YOLOE-s": "ppyoloe_crn_s_shapes.yml",
    "PicoDet-s": "picodet_s_shapes.yml",
}

Built = tuple[paddle.nn.Layer, Any]


def _vision(name: str) -> Built:
    return getattr(paddle.vision.models, name)(), VISION[name]


def _ocr(name: str) -> Built:
    from dysens.adapters.ocr import OcrTask, load_config

    config, weights = OCR[name]
    task = OcrTask(load_config(CONFIGS / "ocr" / config, [f"Global.pretrained_model={weights}"]))
    return task.model, task.example_inputs


def _det(name: str) -> Built:
    from dysens.adapters.det import DetTask, load_config

    task = DetTask(load_config(CONFIGS / "det" / DET[name], ["weights=null"]))
    return task.model, task.example_inputs


NETWORKS: dict[str, Callable[[str], Built]] = {
    **dict.fromkeys(VISION, _vision),
    **dict.fromkeys(OCR, _ocr),
    **dict.fromkeys(DET, _det),
}


def _enliven(model: paddle.nn.Layer) -> None:
    """Weights that make a network answer: a detector fresh from its constructor finds nothing, whatever is cut."""
    random = np.random.default_rng(0)
    for path, tensor in model.state_dict().items():
        if path.endswith("_variance"):
            values = random.uniform(0.5, 1.5, tensor.shape)
        elif path.endswith("_mean"):
            values = random.normal(0.0, 0.3, tensor.shape)
        elif tensor.stop_gradient:
            continue  # constants, such as the bins of a distribution head
        elif tensor.ndim < 2:
            values = random.normal(0.9 if path.endswith("weight") else 0.0, 0.3, tensor.shape)
        else:
            values = random.normal(0.0, 1.4 / np.sqrt(np.prod(tensor.shape[1:])), tensor.shape)
        tensor.set_value(values.astype("float32"))


def build(name: str) -> Built:
    """The network in eval mode, with random or released weights, and what its forward takes."""
    paddle.seed(0)
    model, inputs = NETWORKS[name](name)
    if not OCR.get(name, ("", ""))[1]:
        _enliven(model)
    model.eval()
    return model, inputs
