"""PaddleOCR's labelled images as what scores an imported inference model, without a config."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paddle
import yaml

from dysens.adapters.ocr._data import Batches, build_loader, read_dictionary
from dysens.adapters.ocr._evaluators import OcrEvaluator, evaluator_for
from dysens.adapters.ocr._labels import read_lines
from dysens.adapters.ocr._ppocr import load_ppocr
from dysens.errors import InputError
from dysens.flags import setting
from dysens.programs import ProgramLayer, run_eagerly

SETTINGS = "inference.yml"  # PaddleOCR 3 writes it beside an exported model
DICTIONARY = "ppocr/utils/ppocr_keys_v1.txt"  # of the Chinese models up to PP-OCRv4
DIRECTIONS = ("0", "180")
_NORMALIZE = {
    "scale": "1./255.",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "order": "hwc",
}


@dataclass(frozen=True)
class _Kind:
    """How images of one kind of network are prepared, and how it is scored, where nothing else is said."""

    encoder: str
    keys: tuple[str, ...]
    image: tuple[Mapping[str, Any], ...]
    post_process: Mapping[str, Any]
    metric: Mapping[str, Any]
    batch: int


_KINDS = {
    "det": _Kind(
        "DetLabelEncode",
        ("image", "shape", "polys", "ignore_tags"),
        ({"DetResizeForTest": {"limit_side_len": 960, "limit_type": "max"}}, {"NormalizeImage": _NORMALIZE}),
        {
            "name": "DBPostProcess",
            "thresh": 0.3,
            "box_thresh": 0.6,
            "max_candidates": 1000,
            "unclip_ratio": 1.5,
        },
        {"name": "DetMetric", "main_indicator": "hmean"},
        1,
    ),
    "rec": _Kind(
        "CTCLabelEncode",
        ("image", "label", "length"),
        ({"RecResizeImg": {"image_shape": [3, 48, 320]}},),
        {"name": "CTCLabelDecode"},
        {"name": "RecMetric", "main_indicator": "acc", "ignore_space": True},
        16,
    ),
    "cls": _Kind(
        "ClsLabelEncode",
        ("image", "label"),
        ({"ClsResizeImg": {"image_shape": [3, 48, 192]}},),
        {"name": "ClsPostProcess", "label_list": list(DIRECTIONS)},
        {"name": "ClsMetric", "main_indicator": "acc"},
        16,
    ),
}
# Of the transforms in inference.yml, those that are about the image; the others are about labels.
_OF_IMAGES = ("DetResizeForTest", "NormalizeImage", "RecResizeImg", "ClsResizeImg")


def labelled_evaluator(
    labels: str | Path, model: ProgramLayer, source: str | Path, dictionary: str | None = None
) -> OcrEvaluator:
    """Score an imported text detector, recogniser or direction classifier on images with a label file of PaddleOCR.

    What the labels are says what the network is: regions (a detector), 0 and 180 for a network with two outputs (directions),
    or text. Images are prepared, and outputs read, as ``inference.yml`` beside the model says, which PaddleOCR 3 writes; without
    it, as PP-OCR's own configs do.

    Args:
        labels: The label file, or the folder with its ``label.txt``. Images are looked for beside it.
        model: From `load_inference`.
        source: What that was loaded from.
        dictionary: The recogniser's characters, one a line; by default those of ``inference.yml``, or of PP-OCR's Chinese models.

    Raises:
        InputError: Files are missing or do not fit the network.
    """
    file = _label_file(Path(labels))
    lines = read_lines(file)
    if not lines:
        raise InputError(f'The label file "{file}" is empty.')
    kind, classes = _kind(lines, model)
    settings = _settings(Path(source))
    with tempfile.TemporaryDirectory() as folder:  # dictionaries are read when a loader is built
        config = _config(kind, file, lines, settings, model)
        if kind == "rec":
            config["Global"]["character_dict_path"] = _dictionary(
                dictionary, settings, Path(folder), classes, config["Global"]
            )
        ppocr = load_ppocr()
        loader = build_loader(config, "Eval", paddle.device._convert_to_place("cpu"), scored=True)
        post_process = ppocr.build_post_process(dict(config["PostProcess"]), config["Global"])

    def read(outputs: Any, batch: Sequence[Any]) -> Any:
        first = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        return post_process({"maps": first} if kind == "det" else first, batch[1])

    metric = _KINDS[kind].metric
    where = "/".join(file.parts[-2:])
    return evaluator_for(metric["name"])(
        f"{metric['name']}.{metric['main_indicator']} on {where} ({len(loader.dataset)} images)",
        Batches(loader),
        read,
        lambda: ppocr.build_metric(dict(metric)),
    )


def _label_file(labels: Path) -> Path:
    if labels.is_dir():
        named = labels / "label.txt"
        texts = [named] if named.is_file() else sorted(labels.glob("*.txt"))
        if len(texts) != 1:
            raise InputError(
                f'The folder "{labels}" holds {"no" if not texts else "several"} label files (.txt): name the one that is meant.'
            )
        return texts[0]
    if not labels.is_file():
        raise InputError(f'The label file "{labels}" is not there (looked from "{Path.cwd()}").')
    return labels


def _is_region(line: str) -> bool:
    label = line.partition("\t")[2].strip()
    if not label.startswith("["):
        return False
    try:
        return isinstance(json.loads(label), list)
    except ValueError:
        return label.startswith("[{")  # cut short, which the check of the file says


def _kind(lines: Sequence[str], model: ProgramLayer) -> tuple[str, int]:
    """What the network has to be for such labels, and how many classes it tells apart."""
    if _is_region(lines[0]):
        return "det", 0
    shape = run_eagerly(model, model.example_inputs())[0].shape
    found = {line.partition("\t")[2].strip() for line in lines}
    if len(shape) == 2 and shape[-1] == len(DIRECTIONS) and found <= set(DIRECTIONS):
        return "cls", len(DIRECTIONS)
    if len(shape) != 3:
        raise InputError(
            f"The labels are text, and the network's output {list(shape)} is not that of a recogniser (sample, place, class): "
            "a detector needs labelled regions, a classifier of directions the labels 0 and 180."
        )
    return "rec", int(shape[-1])


def _settings(source: Path) -> dict[str, Any]:
    folder = source if source.is_dir() else source.parent
    path = folder / SETTINGS
    if not path.is_file():
        return {}
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f'"{path}", which says how images are prepared, cannot be read: {error}') from error
    return content if isinstance(content, dict) else {}


def _config(
    kind: str, file: Path, lines: Sequence[str], settings: Mapping[str, Any], model: ProgramLayer
) -> dict[str, Any]:
    """The sections of a PaddleOCR config that data and score are made of."""
    known = _KINDS[kind]
    written = [
        {name: arguments}
        for each in (settings.get("PreProcess") or {}).get("transform_ops") or []
        for name, arguments in each.items()
        if name in _OF_IMAGES
    ]
    images: list[Any] = written or [dict(each) for each in known.image]
    if not written and kind == "rec" and model.feeds[0].shape[2] > 0:
        sides = model.feeds[0].shape
        images = [{"RecResizeImg": {"image_shape": [3, sides[2], sides[3] if sides[3] > 0 else 320]}}]
    if kind == "det":
        images.append({"ToCHWImage": None})
    post_process = settings.get("PostProcess") if written else None
    post_process = {key: value for key, value in (post_process or {}).items() if key != "character_dict"}
    longest = max((len(line.partition("\t")[2]) for line in lines), default=0)
    return {
        # A line that is longer than max_text_length would be replaced by another one, at random.
        "Global": {"max_text_length": max(25, longest), "use_space_char": True, "distributed": False},
        "PostProcess": post_process or dict(known.post_process),
        "Eval": {
            "dataset": {
                "name": "SimpleDataSet",
                "data_dir": str(_image_folder(file, lines[0])),
                "label_file_list": [str(file)],
                "ratio_list": [1.0],
                "transforms": [
                    {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
                    {known.encoder: {"label_list": list(DIRECTIONS)} if kind == "cls" else None},
                    *images,
                    {"KeepKeys": {"keep_keys": list(known.keys)}},
                ],
            },
            "loader": {
                "shuffle": False,
                "drop_last": False,
                "batch_size_per_card": known.batch,
                "num_workers": 0,
            },
        },
    }


def _image_folder(file: Path, line: str) -> Path:
    """Where the images are that a label file names: beside it, or a folder up, as PaddleOCR's sets have it."""
    image = line.partition("\t")[0]
    for folder in (file.parent, file.parent.parent):
        if (folder / image).is_file():
            return folder
    return file.parent  # what is missing there is said when the file is checked


def _dictionary(
    given: str | None,
    settings: Mapping[str, Any],
    folder: Path,
    classes: int,
    options: dict[str, Any],
) -> str:
    """The file of the recogniser's characters; with its blank, and with or without a space, it has the network's classes."""
    listed = (settings.get("PostProcess") or {}).get("character_dict")
    if given is not None:
        path = Path(given) if Path(given).is_file() else load_ppocr().home / given
    elif isinstance(listed, list):
        path = folder / "dictionary.txt"
        path.write_text("".join(f"{each}\n" for each in listed), encoding="utf-8")
    else:
        path = load_ppocr().home / DICTIONARY
    found = len(read_dictionary(path))
    if classes not in (found + 1, found + 2):
        name = (
            "inference.yml's dictionary"
            if given is None and listed
            else f'the dictionary "{given or DICTIONARY}"'
        )
        raise InputError(
            f"The network tells {classes} classes apart, and {name} has {found} characters: give the network's own with "
            f"{setting('character_dict_path=FILE')}."
        )
    options["use_space_char"] = classes == found + 2
    return str(path)
