"""How a model is scored: batches in, outputs measured, a number out; ready for Paddle's metrics, and open for any other."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol

import numpy as np
import paddle

from dysens.errors import InputError
from dysens.model import fresh, preserved
from dysens.progress import at_work, step_done


class Evaluator(ABC):
    """Scores a model's outputs on a fixed list of batches.

    Attributes:
        name: Goes into the journal's header, so that points of two evaluators never mix.
        higher_is_better: False for an error or a loss.
    """

    name: str = "evaluator"
    higher_is_better: bool = True

    @abstractmethod
    def batches(self) -> Iterable[Any]:
        """The data, batch by batch, in the same order at every call."""

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """The positional arguments that the model is called with for this batch."""
        return (batch[0],)

    @abstractmethod
    def measure(self, outputs: Any, batch: Any) -> Any:
        """Measure the outputs of one batch; the result is kept in memory, so keep it small."""

    @abstractmethod
    def score(self, measurements: Sequence[Any]) -> float:
        """The metric that these measurements amount to."""


def evaluate(model: paddle.nn.Layer, evaluator: Evaluator) -> float:
    """Score the live model on all batches, in eval mode. The model is left unchanged.

    Args:
        model: The live layer.
        evaluator: Gives the batches and measures the outputs.
    """
    measured = []
    with preserved(model), paddle.no_grad(), at_work(f"scoring by {evaluator.name}", "batches"):
        model.eval()
        for batch in evaluator.batches():
            measured.append(evaluator.measure(model(*fresh(evaluator.arguments(batch))), batch))
            step_done()
        return evaluator.score(measured)


# PaddleSlim's dygraph formula adds this to the baseline.
_SLIM_EPSILON = 1e-3


def metric_of(value: Any) -> float:
    """The number that an evaluation returned; raise InputError for anything else."""
    if isinstance(value, paddle.Tensor):
        value = value.numpy()
    if value is None:
        raise InputError(
            "The evaluation returned None; it has to return the metric as a number (is a return missing?)."
        )
    if isinstance(value, (bool, str, bytes)):
        raise InputError(f"The evaluation returned {value!r}; it has to return the metric as a number.")
    try:
        array = np.asarray(value, dtype="float64")
    except (TypeError, ValueError):
        raise InputError(
            f"The evaluation returned a {type(value).__name__}; it has to return the metric as one number."
        ) from None
    if array.size != 1:
        raise InputError(
            f"The evaluation returned {array.size} values; it has to return one number, such as their mean."
        )
    return float(array.reshape(()))


def checked_baseline(value: Any) -> float:
    """The metric of the whole model; losses are relative to it, so it has to be positive."""
    baseline = metric_of(value)
    if math.isnan(baseline) or math.isinf(baseline):
        raise InputError(
            f"The whole model scores {baseline}; a sweep needs a finite baseline. Check the evaluation and the weights."
        )
    if baseline == 0:
        raise InputError(
            "The whole model scores 0, so no relative loss can be computed. Are the weights loaded, and do data, labels "
            "and dictionary fit the model?"
        )
    if baseline < 0:
        raise InputError(
            f"The whole model scores {baseline:g}; a relative loss needs a positive baseline. Shift the metric, or return an "
            "error with higher_is_better=False."
        )
    return baseline


def relative_loss(baseline: float, metric: float, higher_is_better: bool = True) -> float:
    """PaddleSlim's dygraph formula; for an error, its relative rise.

    Example:
        >>> round(relative_loss(0.9, 0.8), 4)
        0.111
    """
    lost = baseline - metric if higher_is_better else metric - baseline
    return lost / (baseline + _SLIM_EPSILON)


Measurements = Mapping[int, Any]  # batch number: what its outputs tell


class MetricEvaluator(Evaluator):
    """Scores by a `paddle.metric.Metric`, as `paddle.Model.evaluate` does.

    Args:
        loader: Batches such as ``[image, label]``, the same at every pass: a DataLoader without shuffling, or a list.
        metric: The metric; it is copied, so its own state stays.
        labels: How many items at the end of a batch are labels; those before are the arguments of the model.
        index: Which number counts, if the metric gives several (``Accuracy(topk=(1, 5))``).
        higher_is_better: False if the metric is an error.
        name: Goes into the journal; made from the metric's own if not given.

    Example:
        >>> import numpy as np, paddle
        >>> batches = [(paddle.to_tensor([[0.9, 0.1], [0.2, 0.8]]), paddle.to_tensor([[0], [0]]))]
        >>> evaluator = MetricEvaluator(batches, paddle.metric.Accuracy())
        >>> evaluator.score([evaluator.measure(*batch[:1], batch) for batch in evaluator.batches()])
        0.5
    """

    def __init__(
        self,
        loader: Iterable[Any],
        metric: paddle.metric.Metric,
        *,
        labels: int = 1,
        index: int = 0,
        higher_is_better: bool = True,
        name: str = "",
    ) -> None:
        if not isinstance(metric, paddle.metric.Metric):
            raise InputError(
                f"The metric has to be a paddle.metric.Metric, not {metric!r:.80}; for an object with update and compute there "
                "is UpdateEvaluator."
            )
        self._loader = checked_loader(loader)
        self._metric = deepcopy(metric)
        self._metric.reset()
        self._labels = labels
        self._index = index
        self.higher_is_better = higher_is_better
        names = metric.name()
        self.name = name or f"{type(metric).__name__} {names[index] if isinstance(names, list) else names}"

    def batches(self) -> Iterable[Any]:
        """What the loader gives."""
        return self._loader

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """All of a batch but its labels."""
        return tuple(batch[: len(batch) - self._labels])

    def measure(self, outputs: Any, batch: Any) -> tuple[np.ndarray, ...]:
        """What the metric makes of a batch before it adds it up."""
        labels = batch[len(batch) - self._labels :]
        computed = self._metric.compute(*_listed(outputs), *labels)
        return tuple(_array(value) for value in _listed(computed))

    def score(self, measurements: Sequence[tuple[np.ndarray, ...]]) -> float:
        """The accumulated metric."""
        metric = deepcopy(self._metric)
        for measured in measurements:
            metric.update(*measured)
        return float(_listed(metric.accumulate())[self._index])


class UpdateCompute(Protocol):
    """A metric that is updated batch by batch."""

    def update(self, outputs: Any, batch: Any) -> object:
        """Add one batch."""

    def compute(self) -> Any:
        """The metric of all batches added."""


class UpdateEvaluator(Evaluator):
    """Scores by any object with ``update(outputs, batch)`` and ``compute()``.

    Outputs and batches are kept until a score is asked for; if they are large, give ``keep``.

    Args:
        loader: Batches, the same at every pass: a DataLoader without shuffling, or a list.
        new_metric: Makes an empty metric, usually its class.
        keep: From outputs and batch to smaller ones that `update` can do with as well.
        arguments: From a batch to the positional arguments of the model; its first item if not given.
        higher_is_better: False if the metric is an error.
        name: Goes into the journal; the metric's class name if not given.

    Example:
        >>> class Mean:
        ...     def __init__(self): self.values = []
        ...     def update(self, outputs, batch): self.values.append(float(outputs.mean()))
        ...     def compute(self): return sum(self.values) / len(self.values)
        >>> UpdateEvaluator([[paddle.ones([2, 3])]], Mean).name
        'Mean'
    """

    def __init__(
        self,
        loader: Iterable[Any],
        new_metric: Callable[[], UpdateCompute],
        *,
        keep: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        arguments: Callable[[Any], tuple[Any, ...]] | None = None,
        higher_is_better: bool = True,
        name: str = "",
    ) -> None:
        if not callable(new_metric):
            raise InputError(
                "The argument new_metric has to make an empty metric at every call, such as its class does; "
                f"not {new_metric!r:.80}."
            )
        example = new_metric()
        lacking = [verb for verb in ("update", "compute") if not callable(getattr(example, verb, None))]
        if lacking:
            raise InputError(
                f"A {type(example).__name__} has no {' and no '.join(lacking)}, which a metric needs."
            )
        self._loader = checked_loader(loader)
        self._new_metric = new_metric
        self._keep = keep
        self._arguments = arguments
        self.higher_is_better = higher_is_better
        self.name = name or type(example).__name__

    def batches(self) -> Iterable[Any]:
        """What the loader gives."""
        return self._loader

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """What the model is called with."""
        return self._arguments(batch) if self._arguments is not None else super().arguments(batch)

    def measure(self, outputs: Any, batch: Any) -> tuple[Any, Any]:
        """Outputs and batch, reduced by ``keep`` if given."""
        return self._keep(outputs, batch) if self._keep is not None else (outputs, batch)

    def score(self, measurements: Sequence[tuple[Any, Any]]) -> float:
        """The metric after an update with each batch."""
        metric = self._new_metric()
        for outputs, batch in measurements:
            metric.update(outputs, batch)
        return float(metric.compute())


def checked_loader(loader: Any) -> Iterable[Any]:
    """A loader that can be read more than once."""
    if not isinstance(loader, Iterable):
        raise InputError(
            f"The loader has to give batches, such as a DataLoader or a list; not {loader!r:.80}."
        )
    if isinstance(loader, Iterator):
        raise InputError(
            "The loader is a generator, which can be read only once: give a DataLoader or a list."
        )
    return loader


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.numpy() if isinstance(value, paddle.Tensor) else value)
