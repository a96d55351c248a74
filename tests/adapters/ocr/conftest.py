"""Small sets of text images, and the shipped configs pointed at them."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dysens.adapters.ocr import load_config
from dysens.data import Fonts, find_fonts, write_lines, write_scenes

ROOT = Path(__file__).parents[3]
CONFIGS, TOOLS = ROOT / "configs" / "ocr", ROOT / "tools"
SMALL_TRAINING = (
    "Train.loader.batch_size_per_card=2",
    "Train.dataset.transforms.2.EastRandomCropData.size=[96,64]",
)
GetConfig = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sets as tools/make_text_images.py lays them out, with Latin text only so that they are the same everywhere."""
    folder = tmp_path_factory.mktemp("text_images")
    fonts = Fonts(find_fonts().latin)
    for part, seed, lines in (("train", 1, 12), ("eval", 2, 8)):
        write_scenes(folder / f"det_{part}", 6, seed, (256, 192), fonts)
        write_lines(folder / f"rec_{part}", lines, seed, fonts)
    return folder


@pytest.fixture(scope="session")
def config(images: Path) -> GetConfig:
    """Reads one of configs/ocr with the paths of `images`, plus overrides."""

    def read(name: str, *overrides: str) -> dict[str, Any]:
        kind = "det" if "det" in name else "rec"
        paths = [
            f"{mode}.dataset.{key}"
            for mode in ("Train", "Eval")
            for key in (
                f"data_dir={images}/{kind}_{mode.lower()}",
                f"label_file_list=[{images}/{kind}_{mode.lower()}/label.txt]",
            )
        ]
        return load_config(CONFIGS / f"{name}.yml", [*paths, *overrides])

    return read


@pytest.fixture
def distillation(config: GetConfig) -> dict[str, Any]:
    """Two small detectors, one teaching the other, in the shape of PaddleOCR's distillation configs."""
    single = config("det_mv3_db", *SMALL_TRAINING)
    network = single["Architecture"] | {
        "return_all_feats": False,
        "Neck": {"name": "DBFPN", "out_channels": 24},
    }
    teacher = copy.deepcopy(network) | {"freeze_params": True}
    student = copy.deepcopy(network)
    student["Backbone"] = {"name": "MobileNetV3", "scale": 0.35, "model_name": "small"}
    single["Architecture"] = {
        "name": "DistillationModel",
        "algorithm": "Distillation",
        "model_type": "det",
        "Models": {"Teacher": teacher, "Student": student},
    }
    single["PostProcess"] |= {
        "name": "DistillationDBPostProcess",
        "model_name": ["Student", "Teacher"],
        "box_thresh": 0.1,
    }
    single["PostProcess"] |= {"thresh": 0.1}
    single["Metric"] = {
        "name": "DistillationMetric",
        "base_metric_name": "DetMetric",
        "main_indicator": "hmean",
        "key": "Student",
    }
    single["Loss"] = {
        "name": "CombinedLoss",
        "loss_config_list": [
            {
                "DistillationDBLoss": {
                    "weight": 1.0,
                    "model_name_list": ["Student"],
                    "name": "DBLoss",
                    "balance_loss": True,
                    "main_loss_type": "DiceLoss",
                    "alpha": 5,
                    "beta": 10,
                    "ohem_ratio": 3,
                }
            }
        ],
    }
    return single


@pytest.fixture(scope="session")
def tool() -> Callable[..., ModuleType]:
    """Imports one of tools/ from its file: PaddleOCR has a package of that name too."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
