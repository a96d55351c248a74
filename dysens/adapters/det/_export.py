"""From a detector, pruned or not, to the inference model that PaddleDetection's deployment loads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
import yaml
from paddle.static import InputSpec

from dysens.adapters.det._ppdet import import_ppdet, quiet
from dysens.compiled import used_inputs
from dysens.costs import Array, Predictor, file_size
from dysens.errors import InputError, ProofError
from dysens.evaluators import evaluate
from dysens.model import preserved
from dysens.programs import Exported, saved_and_run

if TYPE_CHECKING:
    from dysens.adapters.det._task import DetTask

logger = logging.getLogger(__name__)

NAME = "model"  # what PaddleDetection's deploy/ looks for in a folder
SETTINGS = "infer_cfg.yml"
TOLERANCE = 1e-3
# Boxes at the edge of a threshold come and go with the last bits of a score.
AGREEING = 0.95
ROW_LENGTH = 6  # class, score, four edges
# Rows of all boxes, and how many of them each image has.
Boxes = tuple[Array, Array]


@dataclass(frozen=True)
class ExportedDetector(Exported):
    """An inference model on disk, compared by the boxes that it finds.

    Attributes:
        boxes: How many the network found in the images that both were compared on. Without any, nothing is shown.
    """

    boxes: int = 0

    @property
    def comparison(self) -> str:
        """How it was compared with the live network, in a line."""
        if not self.boxes:
            return f"not compared: the network finds no box in {self.compared_on}"
        return f"its {self.boxes} boxes in {self.compared_on} differ from the network's by {self.difference:.1e} at most"


def export(
    task: DetTask, folder: str | Path, images: Mapping[str, paddle.Tensor] | None = None
) -> ExportedDetector:
    """Writes ``task.model`` as it is now, with ``infer_cfg.yml``; the live network stays as it was.

    Branches that exist in training only (RepVGG blocks of PP-YOLOE) are fused, as PaddleDetection's export does. What is there
    of an earlier export is replaced.

    Args:
        task: With the network.
        folder: Is made if it is not there.
        images: What to compare the boxes on, see `DetEvaluator.first_inputs`; by default noise, in which there may be none.

    Raises:
        InputError: PaddleDetection cannot export such a network.
        ProofError: The exported model does not find the network's boxes.
    """
    _check_architecture(str(task.config["architecture"]))
    prefix = Path(folder) / NAME
    tensors = task.example_inputs if images is None else images
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    with preserved(task.model), paddle.no_grad():
        task.model.eval()
        _fuse(task.model)
        expected = _found(task.model(dict(tensors)))
        outputs = saved_and_run(
            task.model,
            prefix,
            [_input_spec(task)],
            arrays,
            settings=lambda place: _write_settings(task, place.with_name(SETTINGS)),
        )
        got = _boxes(outputs)
    side = float((arrays["im_shape"] / arrays["scale_factor"]).max())
    difference = largest_difference(expected, got, side)
    compared_on = "noise" if images is None else f"{len(arrays['image'])} images of EvalDataset"
    return ExportedDetector(prefix, difference, file_size(prefix), compared_on, boxes=len(expected[0]))


class InferenceModel(paddle.nn.Layer):
    """An exported model with the call signature of the network.

    Args:
        source: The folder, or the files' path without endings.
        threads: See `Predictor`.
        onednn: See `Predictor`.
    """

    def __init__(self, source: str | Path, threads: int = 1, onednn: bool = True) -> None:
        super().__init__()
        path = Path(source)
        self._predictor = Predictor(path / NAME if path.is_dir() else path, threads, onednn)

    def forward(self, inputs: Mapping[str, paddle.Tensor]) -> dict[str, Any]:
        """Boxes as the network gives them."""
        rows, counts = _boxes(self._predictor.answer({name: each.numpy() for name, each in inputs.items()}))
        return {"bbox": paddle.to_tensor(rows), "bbox_num": paddle.to_tensor(counts)}


def score_exported(task: DetTask, source: str | Path) -> float:
    """The mAP of an exported model on ``EvalDataset``."""
    return evaluate(InferenceModel(source), task.evaluator)


def _input_spec(task: DetTask) -> dict[str, InputSpec]:
    """Those of the inputs that boxes are computed from."""
    spec = {
        "image": InputSpec([-1, 3, *task.input_size], "float32", "image"),
        "im_shape": InputSpec([-1, 2], "float32", "im_shape"),
        "scale_factor": InputSpec([-1, 2], "float32", "scale_factor"),
    }
    with preserved(task.model):  # to_static stays on a layer, with its input_spec
        used = used_inputs(paddle.jit.to_static(task.model, input_spec=[spec], full_graph=True))
    return {name: each for name, each in spec.items() if name in used}


def _fuse(model: paddle.nn.Layer) -> None:
    for layer in model.sublayers():
        if hasattr(layer, "convert_to_deploy"):
            layer.convert_to_deploy()


def _found(outputs: Mapping[str, paddle.Tensor]) -> Boxes:
    return outputs["bbox"].numpy(), outputs["bbox_num"].numpy()


def _boxes(outputs: list[Array]) -> Boxes:
    counts, rows = sorted(outputs[:2], key=lambda each: each.ndim)
    return rows, counts


def largest_difference(expected: Boxes, got: Boxes, side: float) -> float:
    """The largest difference of a score, or of an edge in parts of the images' side, between boxes that belong together.

    Raises:
        ProofError: Too many boxes of one have no partner in the other.
    """
    scale = np.array([1, *[1 / side] * 4])
    worst = 0.0
    for boxes, others in ((expected, got), (got, expected)):
        apart = np.array([_nearest(row, _numbered(others), scale) for row in _numbered(boxes)])
        agreeing = apart <= TOLERANCE
        if len(apart) and agreeing.mean() < AGREEING:
            raise ProofError(
                f"The exported model does not find the network's boxes: {int((~agreeing).sum())} of {len(apart)} differ."
            )
        worst = max(worst, float(apart[agreeing].max(initial=0)))
    return worst


def _numbered(boxes: Boxes) -> Array:
    """Rows with the number of their image in front."""
    rows, counts = boxes
    return np.column_stack([np.repeat(np.arange(len(counts)), counts), rows.reshape(-1, ROW_LENGTH)])


def _nearest(row: Array, others: Array, scale: Array) -> float:
    """How far the most similar box of the same class in the same image is."""
    same = others[(others[:, :2] == row[:2]).all(axis=1)]
    return float((np.abs(same[:, 2:] - row[2:]) * scale).max(axis=1).min(initial=np.inf))


def _check_architecture(architecture: str) -> None:
    known = import_ppdet("engine.export_utils").TRT_MIN_SUBGRAPH
    # For others ppdet would end the whole process, with exit code 0.
    if not any(name in architecture for name in known):
        raise InputError(f"PaddleDetection cannot export the architecture {architecture}.")


def _write_settings(task: DetTask, path: Path) -> None:
    """Write pre-processing and labels in the format of PaddleDetection's deployment (infer_cfg.yml)."""
    with task.config.installed() as live, quiet():
        # Which head is in use, ppdet sees from the sections that the config leaves empty.
        for name, section in task.config.values.items():
            if isinstance(section, dict) and not section:
                live[name].clear()
        live["TestDataset"] = import_ppdet("core.workspace").create("TestDataset")()
        dump = import_ppdet("engine.export_utils")._dump_infer_config
        dump(live, str(path), [None, 3, *task.input_size], task.model)
    labels = len(yaml.safe_load(path.read_text(encoding="utf-8"))["label_list"])
    if labels != task.config["num_classes"]:
        logger.warning(
            "%s has the names of %d classes, and the network has %d: ppdet takes names of its own where it finds no "
            "annotations. Point TestDataset.dataset_dir and TestDataset.anno_path to some, or edit label_list.",
            path,
            labels,
            task.config["num_classes"],
        )
