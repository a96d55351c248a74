"""How far the outputs of a cut network are from those of the whole one: what candidates are compared by, without labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.compress._samples import Call, few
from dysens.errors import InputError
from dysens.groups import ChannelGroup, Role
from dysens.model import View, eagerly, leaves, preserved
from dysens.pruning import PrunePlan, masked

Answers = list[list[np.ndarray]]
"""For every call, all outputs."""


class OutputError:
    """Compares networks by their outputs: squared differences, relative to how much the whole network's outputs vary.

    Where the outputs are no plain maps (boxes behind a non-maximum suppression), the layers that make them are compared.

    Args:
        model: The whole live layer; it is left as found.
        roles: Its layers with weights.
        groups: What may be cut.
        calls: What it is run on.
        trial: A mild cut, to see whether the outputs keep their shapes; not needed where it is known what to compare.
        watched: Layers whose outputs stand for the model's, where that is known.

    Attributes:
        calls: What it is run on.

    Raises:
        InputError: The whole network's outputs are not finite.
    """

    def __init__(
        self,
        model: nn.Layer,
        roles: Mapping[str, Role],
        groups: Sequence[ChannelGroup],
        calls: Sequence[Call],
        trial: PrunePlan | None,
        watched: Sequence[Role] = (),
    ) -> None:
        self._model = model
        self.calls = calls
        self._watched: list[Role] = list(watched)
        self._parts: dict[int, tuple[Sequence[Call], Answers]] = {}
        self._whole = self._answers(calls)
        if not all(np.isfinite(array).all() for call in self._whole for array in call):
            raise InputError(
                "The model's outputs on the data hold NaN or infinite values; check the data and whether weights are loaded."
            )
        if trial is not None and (not math.isfinite(self.of(trial)) or not any(self._whole)):
            self._watched = list(last_layers(roles, groups).values())
            self._whole = self._answers(calls)

    def of(self, plan: PrunePlan, samples: int | None = None) -> float:
        """The error of a network that is cut by a plan, on all calls or about so many samples."""
        calls, whole = (self.calls, self._whole) if samples is None else self._few(samples)
        with masked(self._model, plan):
            ours = self._answers(calls)
        return relative_error(whole, ours)

    def _few(self, samples: int) -> tuple[Sequence[Call], Answers]:
        """The first so many samples, and what the whole network makes of them."""
        if samples not in self._parts:
            calls = few(self.calls, samples)
            self._parts[samples] = (calls, self._answers(calls))
        return self._parts[samples]

    @property
    def watched(self) -> Sequence[Role]:
        """The layers whose outputs stand for the model's; none where the model's own can be compared."""
        return self._watched

    def of_each(
        self, plans: Sequence[PrunePlan], some: int | None = None, advance: Callable[[], None] = lambda: None
    ) -> list[float]:
        """The error of every cut, see `of`; ``advance`` is called after each."""
        found = []
        for plan in plans:
            found.append(self.of(plan, some))
            advance()
        return found

    def of_live(self) -> float:
        """The error of the model as it is now."""
        return relative_error(self._whole, self._answers(self.calls))

    def _answers(self, calls: Iterable[Call]) -> Answers:
        found: Answers = []
        with preserved(self._model), paddle.no_grad():
            self._model.eval()
            collected: list[np.ndarray] = []
            for role in self._watched:
                role.layer.register_forward_post_hook(_into(collected))
            with eagerly(self._model, [View(tuple(call)) for call in calls]) as views:
                for view in views:
                    collected.clear()
                    outputs = self._model(*view.arguments)
                    found.append(list(collected) if self._watched else _floats(outputs))
        return found


def last_layers(roles: Mapping[str, Role], groups: Sequence[ChannelGroup]) -> dict[str, Role]:
    """The layers whose outputs no cut changes in shape: heads, whatever is done with what they make."""
    made = {port for group in groups for port in group.units if port.side == "out"}
    return {
        path: role
        for path, role in roles.items()
        if role.kind == "mixer" and role.outputs not in made and not role.fixed_outputs and not role.inside
    }


def _into(collected: list[np.ndarray]) -> Callable[..., None]:
    def hook(layer: nn.Layer, inputs: Any, output: Any) -> None:
        collected.extend(_floats(output))

    return hook


def _floats(outputs: Any) -> list[np.ndarray]:
    return [
        comparable(leaf.astype("float32")).numpy()
        for leaf in leaves(outputs)
        if isinstance(leaf, paddle.Tensor) and leaf.is_floating_point() and leaf.size
    ]


def comparable(output: paddle.Tensor) -> paddle.Tensor:
    """An output, so that squared differences say something: of probabilities of many classes, the fourth roots. Most of them are
    nearly 0 or 1, and plain differences only count the few that have turned over; roots see the second best come nearer."""
    if output.ndim < 2 or output.shape[-1] < 3:
        return output
    sums = output.detach().sum(axis=-1)
    if float(output.detach().min()) < 0 or float((sums - 1).abs().max()) > 1e-3:
        return output
    return (output + 1e-6) ** 0.25


def relative_error(whole: Answers, ours: Answers) -> float:
    """The mean over outputs of the squared difference, each relative to the output's variance over all calls; infinite for NaN
    or other shapes."""
    if any(len(a) != len(b) for a, b in zip(whole, ours)) or len({len(call) for call in whole}) > 1:
        return math.inf
    errors = []
    for place in range(len(whole[0])):
        theirs, mine = [call[place] for call in whole], [call[place] for call in ours]
        if any(a.shape != b.shape for a, b in zip(theirs, mine)):
            return math.inf
        values = np.concatenate([array.ravel() for array in theirs]).astype("float64")
        apart = sum(float(np.square(a.astype("float64") - b).sum()) for a, b in zip(theirs, mine))
        varies = float(np.square(values - values.mean()).sum())
        if varies > 0:
            errors.append(apart / varies)
    error = float(np.mean(errors)) if errors else math.inf
    return error if math.isfinite(error) else math.inf
