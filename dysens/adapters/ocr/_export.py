"""From a network, pruned or not, to the inference model that PaddleOCR's predictors load."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
import yaml

from dysens.adapters._shared import ExportedModel
from dysens.adapters.ocr._config import input_shape, network_section, transforms
from dysens.adapters.ocr._data import read_dictionary
from dysens.adapters.ocr._ppocr import load_ppocr, remarks
from dysens.adapters.ocr._weights import reparameterize
from dysens.atomic import write_file
from dysens.costs import Array, file_size
from dysens.errors import ProofError, in_a_sentence
from dysens.evaluators import evaluate
from dysens.model import doubled, in_double_precision, preserved
from dysens.programs import Exported, largest_gap, saved_and_run

if TYPE_CHECKING:
    from dysens.adapters.ocr._task import OcrTask

logger = logging.getLogger(__name__)

NAME = "inference"  # what PaddleOCR's tools look for in a folder
TOLERANCE = 1e-4
# Two ways to round are seldom equally lucky. In logarithms, where a real difference is far larger than any rounding, there is
# room for more.
_TIMES_OWN_ROUNDING, _IN_LOGARITHMS = 4.0, 8.0
# Recognisers that read lines of any width; the height is fixed by the network.
FREE_WIDTH = frozenset({"CRNN", "Rosetta", "SVTR_LCNet", "SVTR_HGNet"})


def export(task: OcrTask, folder: str | Path, images: paddle.Tensor | None = None) -> Exported:
    """Writes `task.model` as it is now; the live network stays as it was.

    Branches that PP-LCNetV3 has in training only are fused. What is there of an earlier export is replaced.

    Args:
        task: With the network.
        folder: Is made if it is not there.
        images: A batch to compare the outputs on; by default noise, in which a detector sees no text.

    Raises:
        ProofError: The exported model does not give the network's outputs.
    """
    prefix = Path(folder) / NAME
    arguments = task.example_inputs if images is None else (images,)
    inputs = [tensor.numpy() for tensor in arguments]
    with preserved(task.model), paddle.no_grad():
        reparameterize(task.model)
        task.model.eval()
        expected = [t.numpy() for t in paddle.utils.flatten(task.model(*arguments))]

        def check(beside: Path, got: list[Array]) -> None:
            apart = largest_gap(got, expected)
            if apart <= TOLERANCE:
                return
            refusal = f'the exported model "{prefix}" does not give the network\'s outputs: they differ by {apart:.2g}'
            if not is_rounding(got, expected, _exactly(task.model, arguments, refusal)):
                raise ProofError(f"{refusal}.")
            logger.info(
                "The exported outputs differ from the network's by %.2g, as rounding in single precision does here.",
                apart,
            )

        got = saved_and_run(
            task.model,
            prefix,
            [input_spec(task.config, task.submodel)],
            inputs,
            check,
            settings=lambda place: _write_settings(task.config, place),
        )
        difference = largest_gap(got, expected)
    compared_on = "noise" if images is None else f"{len(images)} of Eval's images"
    return Exported(prefix, difference, file_size(prefix), compared_on)


def _exactly(model: paddle.nn.Layer, arguments: Any, refusal: str) -> list[Array]:
    """What a network gives in double precision; ``refusal`` is said if something inside insists on single precision."""
    try:
        with in_double_precision(model):
            return [t.numpy() for t in paddle.utils.flatten(model(*doubled(arguments)))]
    except Exception as error:  # whatever its layers raise
        raise ProofError(
            f"{refusal}; whether by rounding cannot be told, the network fails in double precision with "
            f"{in_a_sentence(error)}"
        ) from error


def is_rounding(got: Sequence[Array], expected: Sequence[Array], exact: Sequence[Array]) -> bool:
    """Whether two answers differ only because both are rounded.

    Where a softmax is steep, one network computed in two ways differs by more than the tolerance. Then neither is far from
    what double precision gives, compared with the other. Probabilities of characters are compared by their logarithms: of 18,000
    classes at 40 places, one that is just turning over would decide alone otherwise.

    Args:
        got: The exported model's outputs.
        expected: The live network's.
        exact: The live network's in double precision.
    """
    if all(_are_probabilities(array) for array in exact):
        got, expected, exact = ([_logarithms(array) for array in arrays] for arrays in (got, expected, exact))
        return largest_gap(got, exact) <= _IN_LOGARITHMS * largest_gap(expected, exact)
    return largest_gap(got, exact) <= _TIMES_OWN_ROUNDING * largest_gap(expected, exact)


def _are_probabilities(array: Array) -> bool:
    """Of classes, along the last axis."""
    return bool(
        array.ndim >= 2
        and array.shape[-1] > 2
        and (array >= 0).all()
        and np.allclose(array.sum(axis=-1), 1, atol=1e-5)
    )


def _logarithms(array: Array) -> Array:
    return np.log(np.maximum(array, 1e-30))


class InferenceModel(ExportedModel):
    """An exported model in the place of the network, for whoever calls that.

    Args:
        task: Of the config that the model was exported with; its network says in which structure outputs come.
        source: The folder, or the files' path without endings.
        threads: See `Predictor`.
        onednn: See `Predictor`.
    """

    def __init__(self, task: OcrTask, source: str | Path, threads: int = 1, onednn: bool = True) -> None:
        path = Path(source)
        prefix = path / NAME if path.is_dir() else path
        super().__init__(task.model, task.example_inputs, prefix, threads, onednn)


def score_exported(task: OcrTask, source: str | Path) -> float:
    """The main indicator of an exported model on ``Eval``."""
    return evaluate(InferenceModel(task, source), task.evaluator)


def input_spec(config: Mapping[str, Any], submodel: str | None = None) -> paddle.static.InputSpec:
    """Which images the exported model shall take: any size for detection, any width for most recognisers."""
    channels, height, width = input_shape(config)
    kind = config["Architecture"]["model_type"]
    algorithm = network_section(config, submodel).get("algorithm")
    if kind in ("det", "cls"):
        height = width = -1
    elif algorithm in FREE_WIDTH:
        width = -1
    return paddle.static.InputSpec([-1, channels, height, width], "float32", "x")


def _write_settings(config: Mapping[str, Any], prefix: Path) -> None:
    """``inference.yml`` with pre- and post-processing: by PaddleOCR where it has code for that, else in the same form."""
    dictionary, name = config["Global"].get("character_dict_path"), config["Global"].get("model_name")
    characters = read_dictionary(Path(dictionary)) if dictionary else None
    target = prefix.with_name(f"{prefix.name}.yml")
    if (load_ppocr().home / "ppocr" / "utils" / "export_model.py").is_file():
        module = importlib.import_module("ppocr.utils.export_model")
        module.dump_infer_config(deepcopy(dict(config)), str(target), remarks)
        content = yaml.safe_load(target.read_text(encoding="utf-8"))
    else:
        eval_transforms = [{each: given or None} for each, given in transforms(config, "Eval")]
        content = {
            "PreProcess": {"transform_ops": eval_transforms},
            "PostProcess": deepcopy(dict(config["PostProcess"])),
        }
    # By this name PaddleOCR 3 knows the kind of model; older versions leave it out.
    content = {"Global": {"model_name": name}, **content} if name else content
    if characters is not None:
        # PaddleOCR would keep the carriage returns of a Windows file in the characters.
        content["PostProcess"]["character_dict"] = characters
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_file(target, lambda place: place.write_text(text, encoding="utf-8"))
