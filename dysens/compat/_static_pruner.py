"""PaddleSlim's pruner of static programs, by its name, arguments and results."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from paddle import Tensor

from dysens.criteria import Criterion, GroupCriterion, LowestScores, check_criterion
from dysens.errors import InputError, nearest
from dysens.groups import ChannelGroup, checked_ratio
from dysens.model import tensors_by_path
from dysens.programs import (
    ProgramCut,
    StaticNetwork,
    apply_cut,
    check_parameters,
    in_dynamic_mode,
    program_shapes,
    scope_array,
)

logger = logging.getLogger(__name__)

Selector = Callable[[ChannelGroup, np.ndarray, float], np.ndarray]
"""Which units of a group go, from their scores and the ratio."""

_CRITERIA = {"l1_norm": "l1", "geometry_median": "fpgm", "bn_scale": "bn_scale"}
_REMEMBERED = 8


class BatchNormScale(GroupCriterion):
    """PaddleSlim's "bn_scale": the size of the scale that the batch norm behind a convolution gives to each channel.

    Args:
        scales: The path of that scale, by the path of the convolution's weight.
    """

    def __init__(self, scales: Mapping[str, str]) -> None:
        self._scales = scales

    @property
    def name(self) -> str:
        """As PaddleSlim calls it."""
        return "bn_scale"

    def score(self, group: ChannelGroup, tensors: Mapping[str, Tensor]) -> np.ndarray:
        """The mean over the channels of a unit."""
        port, piece = group.scored[0]
        scale = self._scales.get(piece.tensor)
        if scale is None:
            raise InputError(
                f'There is no batch norm behind "{group.name}", so the criterion bn_scale cannot rank it.'
            )
        return group.unit_scores(
            {each: _padded(each, port, np.abs(tensors[scale].numpy())) for each, _ in group.scored}
        )


def _padded(port: Any, first: Any, scores: np.ndarray) -> np.ndarray:
    """Scores of the first weight's channels; others are only asked for units that it does not have."""
    return scores.astype("float64") if port == first else np.full(port.size, np.inf)


def criterion_of(criterion: Any, network: StaticNetwork) -> Criterion:
    """What ranks filters, from what PaddleSlim's users give."""
    if criterion == "bn_scale":
        return BatchNormScale(network.scales())
    if isinstance(criterion, str):
        return _CRITERIA.get(criterion, criterion)
    chosen: Criterion = criterion
    return chosen


def check_static_criterion(criterion: Any) -> None:
    """Refuse what ranks nothing, before any work is done."""
    if criterion in _CRITERIA:
        return
    if callable(criterion) and not isinstance(criterion, GroupCriterion):
        needed = [p for p in inspect.signature(criterion).parameters.values() if p.default is p.empty]
        if len(needed) > 1:
            raise InputError(
                "A criterion of one's own takes a weight with filters along axis 0, and returns their scores; PaddleSlim's form "
                "with (group, values, graph) is not taken."
            )
    try:
        check_criterion(criterion)
    except InputError as error:
        known = ", ".join(_CRITERIA)
        raise InputError(f"{error} PaddleSlim's names are taken too: {known}.") from error


def default_idx_selector(group: ChannelGroup, scores: np.ndarray, ratio: float) -> np.ndarray:
    """PaddleSlim's default: the share of units with the lowest scores."""
    return group.weakest(scores, ratio)


def optimal_threshold(group: ChannelGroup, scores: np.ndarray, ratio: float) -> np.ndarray:
    """PaddleSlim's other way: the units whose squared scores together make up no more than a share of all."""
    floor = np.maximum(scores, 1e-18)
    ordered = np.sort(floor)
    energy = np.cumsum(ordered**2)
    last = int(np.argmax(energy / energy[-1] > ratio))
    threshold = (ordered[last - 1] + ordered[last]) / 2 if last > 0 else 0.0
    return group.weakest(scores, int((floor < threshold).sum()) / len(scores))


_SELECTORS: dict[str, Selector] = {
    "default_idx_selector": default_idx_selector,
    "optimal_threshold": optimal_threshold,
}


@dataclass(frozen=True)
class _Earlier:
    """What an earlier prune removed, for programs that share the scope that it cut."""

    ratios: tuple[tuple[str, float], ...]
    cut: ProgramCut


_earlier: deque[_Earlier] = deque(maxlen=_REMEMBERED)  # the newest first


class Pruner:
    """Prunes filters of static programs: `paddleslim.prune.Pruner`.

    Args:
        criterion: "l1_norm", "geometry_median" or "bn_scale", or any criterion of dysens: "l2", a function from a weight to the
            scores of its filters.
        idx_selector: "default_idx_selector", or "optimal_threshold".

    Attributes:
        pruned_weights: Whether the last prune changed a scope.
    """

    def __init__(
        self, criterion: Any = "l1_norm", idx_selector: str | Selector = "default_idx_selector"
    ) -> None:
        check_static_criterion(criterion)
        if isinstance(idx_selector, str):
            if idx_selector not in _SELECTORS:
                raise InputError(
                    f'There is no idx_selector "{idx_selector}"{nearest(idx_selector, _SELECTORS) or "."}'
                )
            idx_selector = _SELECTORS[idx_selector]
        self.criterion = criterion
        self.idx_selector: Selector = idx_selector
        self.pruned_weights = False

    def prune(
        self,
        program: Any,
        scope: Any,
        params: Iterable[str],
        ratios: Iterable[float],
        place: Any = None,
        lazy: bool = False,
        only_graph: bool = False,
        param_backup: bool | None = False,
        param_shape_backup: bool | None = False,
    ) -> tuple[Any, dict[str, np.ndarray] | None, dict[str, tuple[int, ...]] | None]:
        """Prune the groups of some weights, with gradients and optimizer state. Where it fails, nothing is changed.

        A program of Paddle 2's kind stays as it is and a pruned copy is returned; a program of Paddle 3's kind (PIR) is changed
        itself, and returned.

        Args:
            program: For training or testing.
            scope: Where its values are.
            params: Names of weights of convolutions.
            ratios: How much of each goes, from 0 to under 1.
            place: Where pruned values are put; by default where they are.
            lazy: Zero what would go; shapes stay.
            only_graph: Leave the scope alone: for a second program of the same parameters, before or after the first is pruned.
            param_backup: Return what the scope held, bit for bit.
            param_shape_backup: Return the shapes that the program stated.

        Returns:
            The pruned program, values by name or None, and shapes by name or None.

        Raises:
            InputError: A name, ratio or program cannot be used.
        """
        wanted = _paired(params, ratios)
        if not hasattr(scope, "find_var"):
            raise InputError(f"The scope has to be a paddle.static.Scope, not {scope!r:.80}.")
        check_parameters(program, wanted)
        cut, model = self._cut(program, scope, wanted, only_graph)
        pruned = apply_cut(program, scope, cut, model, place, lazy, only_graph)
        if not lazy:
            _earlier.appendleft(_Earlier(tuple(wanted.items()), cut))
        self.pruned_weights = not only_graph
        return (
            pruned.program,
            pruned.values if param_backup else None,
            pruned.shapes if param_shape_backup else None,
        )

    def _cut(
        self, program: Any, scope: Any, ratios: Mapping[str, float], only_graph: bool
    ) -> tuple[ProgramCut, Any]:
        """What goes, and the layer that was made of the program, if one could be."""
        if only_graph:
            again = _already_cut(program, scope, ratios)
            if again is not None:
                return again, None
        network = StaticNetwork(program, scope)
        with in_dynamic_mode():
            scores = LowestScores(tensors_by_path(network.model), criterion_of(self.criterion, network))
            units = [
                (group, self.idx_selector(group, scores.scores(group), ratio))
                for group, ratio in network.chosen(ratios)
            ]
            return network.cut_for(units), network.model


def _already_cut(program: Any, scope: Any, ratios: Mapping[str, float]) -> ProgramCut | None:
    """What an earlier prune removed, if it had the same ratios, cut the scope, and the program is still whole."""
    stated: Mapping[str, Any] = program_shapes(program)
    for earlier in _earlier:
        plan = earlier.cut.program
        if earlier.ratios != tuple(ratios.items()) or not plan.fits(stated, cut=False):
            continue
        held = {name: scope_array(scope, name) for name in plan.cuts}
        if plan.cuts and plan.fits(
            {n: v.shape if v is not None else None for n, v in held.items()}, cut=True
        ):
            return earlier.cut
    return None


def _paired(params: Iterable[str], ratios: Iterable[float]) -> dict[str, float]:
    if isinstance(params, str):
        raise InputError(
            f'The argument params is the text "{params}"; it has to be a list of names of parameters.'
        )
    for what, given in (("params", params), ("ratios", ratios)):
        if not isinstance(given, Iterable):
            raise InputError(f"The argument {what} has to be a list, not {given!r:.80}.")
    names, numbers = list(params), list(ratios)
    if len(names) != len(numbers):
        raise InputError(
            f"There are {len(names)} params and {len(numbers)} ratios; each parameter needs one ratio."
        )
    if len(set(names)) != len(names):
        raise InputError("A parameter is named twice in params; each has one ratio.")
    return {name: checked_ratio(ratio, str(name)) for name, ratio in zip(names, numbers)}
