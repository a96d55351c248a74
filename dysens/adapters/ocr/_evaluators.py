"""PaddleOCR's own metrics as evaluators: counts per batch, and the config's main indicator from their sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from dysens.adapters.base import Reading, picture_of
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.model import fresh, preserved


class DetCounts(NamedTuple):
    """Text boxes of a batch: how many are labelled, how many were detected, and how many of those match."""

    labelled: int
    detected: int
    matched: int


class RecCounts(NamedTuple):
    """Text lines of a batch: how many, how many of them read right, and the sum of their edit distances."""

    lines: int
    correct: int
    edit_distance: float


class OcrEvaluator(Evaluator):
    """What detection and recognition have in common: PaddleOCR's data, post-process and metric.

    Args:
        name: Goes into the journal.
        batches: The loader of ``Eval``.
        post_process: From the network's outputs and a batch to what the metric takes.
        new_metric: Makes an empty metric.
        with_labels: Whether the network is called with the labels too.
    """

    def __init__(
        self,
        name: str,
        batches: Iterable[Any],
        post_process: Callable[[Any, Sequence[Any]], Any],
        new_metric: Callable[[], Any],
        with_labels: bool = False,
    ) -> None:
        self.name = name
        self._batches = batches
        self._post_process = post_process
        self._new_metric = new_metric
        self._with_labels = with_labels
        self.indicator = str(new_metric().main_indicator)

    def batches(self) -> Iterable[Any]:
        """The batches of ``Eval``, as lists of tensors."""
        return self._batches

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """The image, and the labels where the network wants them in eval mode too."""
        return (batch[0], batch[1:]) if self._with_labels else (batch[0],)

    def readings(self, model: paddle.nn.Layer, count: int) -> list[Reading]:
        """What the network makes of the first images; it is left as found.

        Args:
            model: The network.
            count: How many images at most.
        """
        found: list[Reading] = []  # PaddleOCR's images are blue, green, red
        with preserved(model), paddle.no_grad():
            model.eval()
            for whole in self._batches:
                batch = [each[: count - len(found)] for each in whole]
                arrays = _arrays(batch)
                answers = self._post_process(model(*fresh(self.arguments(batch))), arrays)
                images = batch[0].numpy()
                found += [self._reading(image, answers, arrays, row) for row, image in enumerate(images)]
                if len(found) >= count:
                    break
        return found

    def _reading(self, image: np.ndarray, answers: Any, arrays: Sequence[Any], row: int) -> Reading:
        """What the network made of one image of a batch; lines of text, unless a subclass knows better."""
        lines = answers[0] if isinstance(answers, tuple) else answers
        return Reading(picture_of(image[::-1]), text=str(lines[row][0]))

    def _measured(self, outputs: Any, batch: Any) -> Any:
        """A metric that has seen this batch only."""
        arrays = _arrays(batch)
        metric = self._empty_metric()
        metric(self._post_process(outputs, arrays), arrays)
        return metric

    def _empty_metric(self) -> Any:
        return self._new_metric()


def _arrays(batch: Any) -> list[Any]:
    # The image stays a tensor: nothing here looks at it, and it is most of a batch.
    return [batch[0], *(item.numpy() if isinstance(item, paddle.Tensor) else item for item in batch[1:])]


_COUNTS = ("gtCare", "detCare", "detMatched")


class ByNeighbours:
    """PaddleOCR's comparison of boxes, given only those at a time that lie near each other: the same counts, sooner.

    It intersects every labelled box of an image with every detected one. Boxes that do not touch neither match nor ignore each
    other, so an image falls into parts that can be judged alone. On a page of 120 lines that is most of what a sweep takes.

    Args:
        evaluator: PaddleOCR's ``DetectionIoUEvaluator``, which judges each part.
    """

    def __init__(self, evaluator: Any) -> None:
        self._evaluator = evaluator

    def evaluate_image(
        self, gt: Sequence[Mapping[str, Any]], pred: Sequence[Mapping[str, Any]]
    ) -> dict[str, int]:
        """Labelled, detected and matched boxes of an image."""
        found = [
            self._evaluator.evaluate_image([gt[i] for i in labelled], [pred[i] for i in detected])
            for labelled, detected in _neighbours(_rectangles(gt), _rectangles(pred))
        ]
        return {key: sum(part[key] for part in found) for key in _COUNTS}


def _rectangles(boxes: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """What each box lies in: left, top, right, bottom."""
    corners = [np.asarray(box["points"], dtype="float64").reshape(-1, 2) for box in boxes]
    return np.array([[*each.min(axis=0), *each.max(axis=0)] for each in corners]).reshape(-1, 4)


def _neighbours(labelled: np.ndarray, detected: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """Parts of an image: boxes that touch, or touch what touches them. Those that touch nothing are one part too.

    Returns:
        For each part the places of its labelled and of its detected boxes, in order.
    """
    one, other = labelled[:, None], detected[None]
    touching: np.ndarray = np.all(
        (one[..., :2] <= other[..., 2:]) & (other[..., :2] <= one[..., 2:]), axis=-1
    )
    alone = [np.flatnonzero(~touching.any(axis=axis)).tolist() for axis in (1, 0)]
    parts = [(alone[0], alone[1])]
    seen = set(alone[0])
    for start in range(len(labelled)):
        if start in seen:
            continue
        rows: np.ndarray = np.zeros(len(labelled), dtype=bool)
        rows[start], count = True, 0
        while rows.sum() > count:
            count = rows.sum()
            columns = np.logical_or.reduce(touching[rows], axis=0)
            rows = np.logical_or.reduce(touching[:, columns], axis=1)
        parts.append((np.flatnonzero(rows).tolist(), np.flatnonzero(columns).tolist()))
        seen.update(parts[-1][0])
    return parts


class TextDetEvaluator(OcrEvaluator):
    """Scores a text detector by PaddleOCR's ``DetMetric``: hmean, precision or recall."""

    def measure(self, outputs: Any, batch: Any) -> DetCounts:
        """Labelled, detected and matched boxes of the batch."""
        images = self._measured(outputs, batch).results
        return DetCounts(*(sum(image[key] for image in images) for key in _COUNTS))

    def _empty_metric(self) -> Any:
        metric = self._new_metric()
        metric.evaluator = ByNeighbours(metric.evaluator)
        return metric

    def _reading(self, image: np.ndarray, answers: Any, arrays: Sequence[Any], row: int) -> Reading:
        _, _, ratio_height, ratio_width = (float(number) for number in arrays[1][row])
        scale = np.array([ratio_width, ratio_height])  # boxes are those of the image before it was resized
        boxes = [np.asarray(box, dtype="float64").reshape(-1, 2) * scale for box in answers[row]["points"]]
        regions = tuple((tuple((float(x), float(y)) for x, y in box), "") for box in boxes)
        return Reading(picture_of(image[::-1]), regions)

    def score(self, measurements: Sequence[DetCounts]) -> float:
        """The config's main indicator."""
        images = [
            {"gtCare": counts.labelled, "detCare": counts.detected, "detMatched": counts.matched}
            for counts in measurements
        ]
        return float(self._new_metric().evaluator.combine_results(images)[self.indicator])


class TextRecEvaluator(OcrEvaluator):
    """Scores a text recogniser, or the direction classifier, by PaddleOCR's ``RecMetric``."""

    def measure(self, outputs: Any, batch: Any) -> RecCounts:
        """Lines, correct lines and edit distance of the batch."""
        metric = self._measured(outputs, batch)
        return RecCounts(metric.all_num, metric.correct_num, getattr(metric, "norm_edit_dis", 0.0))

    def score(self, measurements: Sequence[RecCounts]) -> float:
        """The config's main indicator."""
        metric = self._new_metric()
        metric.all_num = sum(counts.lines for counts in measurements)
        metric.correct_num = sum(counts.correct for counts in measurements)
        metric.norm_edit_dis = sum(counts.edit_distance for counts in measurements)
        return float(metric.get_metric()[self.indicator])


# Metrics of PaddleOCR that are sums over images, and so can be scored batch by batch.
EVALUATORS: Mapping[str, type[OcrEvaluator]] = {
    "DetMetric": TextDetEvaluator,
    "RecMetric": TextRecEvaluator,
    "CNTMetric": TextRecEvaluator,
    "ClsMetric": TextRecEvaluator,
}


def evaluator_for(metric: str) -> type[OcrEvaluator]:
    """The evaluator that goes with a metric of PaddleOCR.

    Raises:
        InputError: There is none.
    """
    if metric not in EVALUATORS:
        raise InputError(
            f'the config\'s metric "{metric}" cannot be scored batch by batch; these can: '
            f"{', '.join(EVALUATORS)}. Score the model with a function of your own instead."
        )
    return EVALUATORS[metric]
