"""A cheap first look: how much each group would cost, from one pass with gradients over some batches.

Removing channels changes the loss by the sum of weight times gradient over the weights that consume them, to first order
(Taylor). That needs no evaluation per ratio; it tells which groups are delicate, not how many points of accuracy they cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle
import pandas as pd

from dysens.display import table_html
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.groups import ChannelGroup, Choice, Slice
from dysens.model import preserved, tensors_by_path
from dysens.ratios import ratio_key
from dysens.results import LossCurve, Sensitivities


class TaylorCurves(Mapping[str, LossCurve]):
    """The estimated rise of the training loss, by group and ratio. Not the loss of accuracy that a sweep measures.

    Args:
        curves: Group name to ratio to rise.
        paths: Group name to layer path.
    """

    _value = "rise"
    _note = "estimated rise of the training loss by share of channels removed"

    def __init__(self, curves: Mapping[str, Mapping[float, float]], paths: Mapping[str, str]) -> None:
        self._curves = {name: LossCurve(name, curve) for name, curve in curves.items()}
        self._paths = dict(paths)

    def __getitem__(self, name: str) -> LossCurve:
        return self._curves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._curves)

    def __len__(self) -> int:
        return len(self._curves)

    def to_frame(self) -> pd.DataFrame:
        """A row per group and ratio: param, path, ratio, and the estimated value (rise)."""
        rows = [
            {"param": name, "path": self._paths[name], "ratio": ratio, self._value: rise}
            for name, curve in self.items()
            for ratio, rise in curve.items()
        ]
        return pd.DataFrame(rows, columns=["param", "path", "ratio", self._value])

    def rank_correlation(self, sens: Sensitivities) -> float:
        """Spearman's rank correlation with measured losses, over all groups and ratios that both know."""
        measured = sens.to_frame()[["path", "ratio", "loss"]]
        both = (
            self.to_frame().merge(measured, on=["path", "ratio"]).replace([np.inf, -np.inf], np.nan).dropna()
        )
        if len(both) < 3:
            raise InputError(
                "The estimate and the sensitivities share fewer than three points; nothing can be compared."
            )
        return float(both[self._value].rank().corr(both["loss"].rank()))

    def __str__(self) -> str:
        return str(self._by_ratio().to_string(float_format="%.3g"))

    def _repr_html_(self) -> str:
        return table_html(self._by_ratio().reset_index().rename_axis(columns=None), [self._note])

    def _by_ratio(self) -> pd.DataFrame:
        table = self.to_frame().pivot(index="path", columns="ratio", values=self._value)
        return table.loc[[self._paths[name] for name in self]]


def taylor_curves(
    model: paddle.nn.Layer,
    groups: Sequence[ChannelGroup],
    choose: Choice,
    ratios: Sequence[float],
    loader: Iterable[Any] | Evaluator,
    loss_fn: Callable[..., Any],
) -> TaylorCurves:
    """Estimate all curves from one pass over the data; the model and its gradients are left as found.

    Args:
        model: The live layer.
        groups: What to estimate.
        choose: Which units a ratio removes from a group.
        ratios: The ratios.
        loader: Batches such as ``[image, label]``, or an `Evaluator`.
        loss_fn: From outputs and labels, ``loss_fn(outputs, *batch[1:])``, to a scalar; with an `Evaluator` it gets outputs and
            the whole batch.
    """
    removed = {(g.name, ratio_key(ratio)): choose(g, ratio) for g in groups for ratio in sorted(ratios)}
    rises = dict.fromkeys(removed, 0.0)
    tensors = tensors_by_path(model)
    weights = {piece.tensor: tensors[piece.tensor] for g in groups for piece in _consumed(g)}
    count = 0
    with preserved(model, gradients=True), _gradients_for(weights.values()):
        model.eval()
        for outputs, rest in _passes(model, loader):
            loss = loss_fn(outputs, *rest)
            _check_loss(loss)
            loss.backward()
            count += 1
            effects = {group.name: _unit_effects(group, weights) for group in groups}
            for key, units in removed.items():
                rises[key] += float(np.abs(effects[key[0]][units]).sum())
            for tensor in model.parameters():
                tensor.clear_gradient(False)  # by position: Paddle overlooks the argument if it is named
    if not count:
        raise InputError("The loader has no batches; an estimate needs at least one.")
    curves: dict[str, dict[float, float]] = {group.name: {} for group in groups}
    for (name, ratio), rise in rises.items():
        curves[name][ratio] = rise / count
    return TaylorCurves(curves, {group.name: group.path for group in groups})


def _passes(model: paddle.nn.Layer, loader: Iterable[Any] | Evaluator) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Outputs, and what else the loss is computed from."""
    if isinstance(loader, Evaluator):
        for batch in loader.batches():
            yield model(*loader.arguments(batch)), (batch,)
        return
    for batch in loader:
        yield model(batch[0]), list(batch[1:])


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, paddle.Tensor) or loss.size != 1:
        raise InputError(f"The function loss_fn has to return one number as a tensor, not {loss!r:.80}.")
    if loss.stop_gradient:
        raise InputError(
            "The function loss_fn returned a tensor without gradient: compute it from the outputs, without no_grad."
        )


def _consumed(group: ChannelGroup) -> list[Slice]:
    return [piece for port in group.units if port.reads for piece in port.slices]


@contextmanager
def _gradients_for(tensors: Iterable[paddle.Tensor]) -> Iterator[None]:
    """Frozen weights get gradients too, and none has any at the start."""
    frozen = [tensor for tensor in tensors if tensor.stop_gradient]
    try:
        for tensor in tensors:
            tensor.stop_gradient = False
            tensor.clear_gradient(False)
        with paddle.set_grad_enabled(True):
            yield
    finally:
        for tensor in frozen:
            tensor.stop_gradient = True


def _unit_effects(group: ChannelGroup, weights: Mapping[str, paddle.Tensor]) -> np.ndarray:
    """What the loss loses with each unit, to first order."""
    effects = np.zeros(group.size)
    done: set[tuple[int, int]] = set()
    for port, units in group.units.items():
        if not port.reads:
            continue
        for piece in port.slices:
            weight = weights[piece.tensor]
            if (id(weight), piece.axis) in done or weight.grad is None:
                continue  # a tied weight counts once; one that did not run has no say
            done.add((id(weight), piece.axis))
            inside = units >= 0
            per_channel = _per_channel((weight * weight.grad).astype("float32").numpy(), piece)
            effects += np.bincount(units[inside], weights=per_channel[inside], minlength=group.size)
    return effects


def _per_channel(products: np.ndarray, piece: Slice) -> np.ndarray:
    """Summed up for each channel that the weight consumes."""
    if piece.blocks > 1:
        # The second axis counts within each block of the first.
        blocks = products.reshape(piece.blocks, products.shape[0] // piece.blocks, *products.shape[1:])
        return blocks.sum(axis=tuple(axis for axis in range(blocks.ndim) if axis not in (0, 2))).reshape(-1)
    return products.sum(axis=tuple(axis for axis in range(products.ndim) if axis != piece.axis))
