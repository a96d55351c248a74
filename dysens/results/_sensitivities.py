"""`Sensitivities`: what a sweep found, as a mapping, a table and files; and ratios whose budget the cut model really keeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Union

from dysens.atomic import write_whole
from dysens.costs import Costs
from dysens.display import heat_html
from dysens.errors import InputError, UnreachableError, nearest
from dysens.ratios import (
    Target,
    by_path,
    checked_number,
    ratio_key,
    ratios_by_flops,
    ratios_by_loss,
    ratios_by_params,
)
from dysens.results._files import csv_of, frame_of, json_of, load_content, losses_by_ratio, points_of
from dysens.results._points import Point, merged_points, one_baseline, one_costs, partial_points

if TYPE_CHECKING:
    import pandas as pd


PathLike = Union[str, "os.PathLike[str]"]


class UnknownNameError(InputError, KeyError):
    """No sensitivities are known for a name or a ratio."""

    __str__ = Exception.__str__  # KeyError would show the sentence in quotes


class LossCurve(Mapping[float, float]):
    """Ratio to loss of one group, by rising ratio; 0.1 + 0.2 finds 0.3."""

    def __init__(self, name: str, losses: Mapping[float, float]) -> None:
        self._name = name
        self._losses = dict(sorted(losses.items()))

    def __getitem__(self, ratio: float) -> float:
        try:
            return self._losses[ratio_key(ratio)]
        except (KeyError, TypeError, ValueError):
            known = ", ".join(map(str, self._losses))
            raise UnknownNameError(f"{self._name} was not measured at {ratio}; it was at {known}.") from None

    def __iter__(self) -> Iterator[float]:
        return iter(self._losses)

    def __len__(self) -> int:
        return len(self._losses)

    def __repr__(self) -> str:
        return repr(self._losses)


class Sensitivities(Mapping[str, LossCurve]):
    """The relative loss of every measured group and ratio.

    A read-only mapping of group names to loss curves. A layer path finds its group as well.

    Args:
        points: What was measured. Points that saw only part of the data are no part of the mapping; see
            ``partial_points``. Names keep the order in which they first come.
        baseline: The score of the whole network; None if unknown, as for a PaddleSlim file.
        higher_is_better: False if the score is an error.
        source: Where the points come from, for messages.
        costs: What the network costs at any ratios, if known: for ratios by FLOPs without the network.

    Example:
        >>> sens = Sensitivities([Point("conv2d_0.w_0", "stem.0.weight", 0.3, 0.8, 0.11, 1.0)], baseline=0.9)
        >>> sens["conv2d_0.w_0"][0.3], sens["stem.0.weight"][0.1 + 0.2]
        (0.11, 0.11)
    """

    def __init__(
        self,
        points: Iterable[Point],
        baseline: float | None = None,
        higher_is_better: bool = True,
        source: str = "",
        costs: Costs | None = None,
    ) -> None:
        self.baseline = None if baseline is None else checked_number("The baseline", baseline)
        self.higher_is_better = higher_is_better
        self.source = source
        points = list(points)
        full = [point for point in points if point.full]
        self._points = tuple(merged_points([(source or "the points", full)]))
        self.partial_points = tuple(partial_points(points, self._points))
        curves: dict[str, dict[float, float]] = {}
        for point in self._points:
            curves.setdefault(point.param, {})[point.ratio] = point.loss
        self._curves = {name: LossCurve(name, losses) for name, losses in curves.items()}
        self._names = {point.path: point.param for point in self._points if point.path}
        self.costs = None if costs is None else costs.renamed(self._names)

    @property
    def points(self) -> tuple[Point, ...]:
        """The full points, group by group, by rising ratio."""
        return self._points

    @property
    def paths(self) -> dict[str, str]:
        """Group name to layer path, where it is known."""
        return {name: path for path, name in self._names.items()}

    def __getitem__(self, name: str) -> LossCurve:
        known = self._curves.get(name) or self._curves.get(self._names.get(name, ""))
        if known is None:
            hint = nearest(name, [*self._curves, *self._names]) if isinstance(name, str) else ""
            raise UnknownNameError(f"There are no sensitivities of {name!r}{hint or '.'}")
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._curves)

    def __len__(self) -> int:
        return len(self._curves)

    def __repr__(self) -> str:
        baseline = "unknown" if self.baseline is None else f"{self.baseline:.6g}"
        return f"Sensitivities({len(self)} groups, {len(self._points)} points, baseline {baseline})"

    def _repr_html_(self) -> str:
        note = f"{self!r}; relative loss by share of channels removed."
        paths = self.paths
        return heat_html(losses_by_ratio(self).rename(index=lambda name: paths.get(name, name)), [note])

    def to_dict(self) -> dict[str, dict[float, float]]:
        """Plain dicts, as PaddleSlim has them."""
        return {name: dict(curve) for name, curve in self.items()}

    def ratios_by_loss(self, threshold: float, monotone: bool = True) -> dict[str, float]:
        """The ratio per group whose loss stays at the threshold; see `dysens.ratios.ratios_by_loss`.

        Args:
            threshold: The loss that one group may cost.
            monotone: The cautious rule, for which a lucky point beyond a high loss does not count. False is PaddleSlim's.
        """
        return ratios_by_loss(self, threshold, monotone)

    def ratios_by_flops(self, target: float, align: int | None = None) -> dict[str, float]:
        """Ratios that are predicted to remove this share of the FLOPs, without the network.

        `DygraphSensitivity.ratios_by_flops` does the same and counts the cut network, to be sure.

        Args:
            target: Share of the FLOPs to remove, 0.5 for half of them.
            align: Leave a multiple of so many channels in every group that is cut.
        """
        return ratios_by_flops(self, self._known_costs(), target, align)

    def ratios_by_params(self, target: float, align: int | None = None) -> dict[str, float]:
        """The same for a share of the parameters."""
        return ratios_by_params(self, self._known_costs(), target, align)

    def ratios_for(self, target: Target) -> dict[str, float]:
        """Ratios by layer path for a target, without the network.

        Raises:
            InputError: No target is given, or several; no group may lose anything; or costs are not known.
            UnreachableError: The measured ratios do not reach that far.
        """
        target.check()
        if target.flops is not None:
            ratios = self.ratios_by_flops(target.flops, target.align)
        elif target.params is not None:
            ratios = self.ratios_by_params(target.params, target.align)
        else:
            assert target.loss is not None  # that is what was checked
            ratios = self.ratios_by_loss(target.loss, target.monotone)
        return by_path(ratios, self.paths)

    def _known_costs(self) -> Costs:
        if self.costs is None:
            raise InputError(
                f"{self.source or 'This result'} does not say what the network costs: only journals that dysens wrote since "
                "it knows costs do. Choose ratios with DygraphSensitivity, or continue the sweep, which adds them."
            )
        return self.costs

    def to_frame(self) -> pd.DataFrame:
        """A table with a row per point: param, path, ratio, metric, loss, seconds."""
        return frame_of(self._points)

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, baseline: float | None = None, higher_is_better: bool = True
    ) -> Sensitivities:
        """From a table such as `to_frame` gives; only param, ratio and loss are needed."""
        return cls(points_of(frame), baseline, higher_is_better)

    def to_csv(self, path: PathLike) -> None:
        """Writes the table as CSV. It holds no baseline; `to_json` does."""
        write_whole(Path(path), csv_of(self._points))

    def to_json(self, path: PathLike) -> None:
        """Writes everything as one JSON document."""
        write_whole(Path(path), json_of(self._points, self.baseline, self.higher_is_better, self.costs))

    @classmethod
    def load(cls, path: PathLike) -> Sensitivities:
        """Read a journal, a CSV or JSON file of dysens, or a PaddleSlim pickle, told apart by content."""
        found = load_content(Path(path))
        return cls(found.points, found.baseline, found.higher_is_better, os.fspath(path), found.costs)

    @classmethod
    def merge(cls, parts: Sequence[Sensitivities | PathLike], prefer: str | None = None) -> Sensitivities:
        """Several results of one network as one.

        Groups are matched by layer path where it is known; the first part's names count.

        Args:
            parts: Results, or files of them.
            prefer: "first" or "last": which part is right where two disagree.

        Raises:
            InputError: Two parts disagree on a point or on the baseline; the message names both.
        """
        if prefer not in (None, "first", "last"):
            raise InputError(f'The argument prefer must be "first", "last" or None, not {prefer!r}.')
        results = [part if isinstance(part, Sensitivities) else cls.load(part) for part in parts]
        if not results:
            raise InputError("There is nothing to merge: give at least one result or file.")
        named = [(part.source or f"part {number}", part) for number, part in enumerate(results, start=1)]
        if len({part.higher_is_better for part in results}) > 1:
            raise InputError(
                "The parts do not agree on whether a higher score is better; they cannot be merged."
            )
        baseline = one_baseline([(label, part.baseline) for label, part in named], prefer)
        points = merged_points([(label, part.points) for label, part in named], prefer)
        partial = [point for part in results for point in part.partial_points]
        costs = one_costs([(label, part.costs) for label, part in named], prefer)
        return cls([*points, *partial], baseline, results[0].higher_is_better, costs=costs)

    def renamed(self, names: Mapping[str, str]) -> Sensitivities:
        """The same points under other names.

        Automatic parameter names shift when another network was built before in the process; layer paths
        do not.

        Args:
            names: Layer path to the name that the parameter has now. Points of other paths keep their names.
        """
        points = [
            replace(point, param=names.get(point.path, point.param))
            for point in (*self._points, *self.partial_points)
        ]
        return Sensitivities(points, self.baseline, self.higher_is_better, self.source, self.costs)


# How often a budget that the real count misses by a little is asked for again, slightly higher.
_TRIES = 6
_MARGIN = 1e-4

Ratios = dict[str, float]


def curves_of(sens: Sensitivities, paths: Mapping[str, str]) -> dict[str, LossCurve]:
    """The loss curves of a model's groups, by the names that they have in this process.

    Args:
        sens: What was measured, here or elsewhere.
        paths: The model's groups: name to layer path.

    Raises:
        InputError: None of them was measured.
    """
    named = sens.renamed({path: name for name, path in paths.items()})
    # Automatic names repeat from network to network: where a layer path is known, it has to be the same.
    same = [name for name, path in paths.items() if name in named and named.paths.get(name, path) == path]
    if not same:
        raise InputError(
            "These sensitivities know none of this model's groups; were they measured on another model?"
        )
    return {name: named[name] for name in same}


def recounted(
    choose: Callable[[float], Ratios], removed: Callable[[Ratios], float], target: float, what: str
) -> Ratios:
    """Ratios that remove a share of the cost when the cut model is counted, not only as predicted.

    Args:
        choose: From the share to remove to ratios that are predicted to remove it.
        removed: From ratios to the share that they really remove.
        target: The share to remove.
        what: What is counted, for the message.

    Raises:
        UnreachableError: The count stays under the target.
    """
    aim, most = target, 0.0
    for _ in range(_TRIES):
        ratios = choose(aim)
        share = removed(ratios)
        if share >= target:
            return ratios
        aim, most = aim + target - share + _MARGIN, max(most, share)
    raise UnreachableError(
        f"No ratios remove {target:.1%} of the {what}; the closest found remove {most:.1%}."
    )
