"""What every engine gives: groups that are proven on the real weights, reasons for the rest, a way to choose what goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import paddle

from dysens.criteria import Criterion, LowestScores
from dysens.errors import ForwardError
from dysens.groups import ChannelGroup, Choice, Removal, Role, Visit, roles_of, run
from dysens.model import ModelState, View, leaves, preserved
from dysens.pruning import TOLERANCE, CannotCutError, difference, plan_for, proof_removals


@dataclass(frozen=True)
class Analysis:
    """What an engine knows about a model: groups that can be cut, reasons for the rest, a way to choose what goes.

    Attributes:
        groups: Groups that can be cut, in parameter order.
        reasons: Why a 4-D weight is in none of them, by its path.
        roles: The layers with weights, by path.
        untried: What could not be tried, as a sentence; empty if all was.
        choice: Makes, from the model's tensors by path and a criterion, the choice of what a ratio removes.
    """

    groups: list[ChannelGroup]
    reasons: dict[str, str]
    roles: Mapping[str, Role]
    choice: Callable[[Mapping[str, paddle.Tensor], Criterion], Choice] = LowestScores
    untried: str = ""


class Engine(Protocol):
    """Finds the groups of a live model: any function or object that can be called like this."""

    def __call__(self, model: paddle.nn.Layer, views: Sequence[View], /) -> Analysis:
        """Find the groups. Whatever it does to the model is undone.

        Args:
            model: The live layer.
            views: The ways in which it is run (inference and, where given, training), with example arguments.
        """
        ...


@dataclass(frozen=True)
class Proof:
    """What a removal has to stand.

    Attributes:
        model: The live layer.
        views: How the user runs it, maybe with smaller pictures.
        large: How the user runs it with pictures that are too large to look at them for every removal: one is enough.
        others: Further inputs and sizes that it takes.
        implied: Forwards that only have to run.
    """

    model: paddle.nn.Layer
    views: Sequence[View]
    large: Sequence[View] = ()
    others: Sequence[View] = ()
    implied: Sequence[View] = ()

    def provable(self, found: Analysis) -> Analysis:
        """What remains of an analysis: the groups that are proven one by one and all together."""
        failure = self.failure(found, found.groups)
        return found if failure is None else self._kept(found, failure)

    def failure(self, found: Analysis, groups: Sequence[ChannelGroup]) -> str | None:
        """Cut random shares of all these groups at once on the real weights: None if the masked and the cut model agree."""
        if not groups:
            return None
        single, halves = proof_removals(groups)
        trials = [(each, [*self.views]) for each in single]
        trials += [(each, [*self.views, *self.others]) for each in halves]
        trials[-1][1].extend(
            [*self.large, *self.implied]
        )  # whether it runs does not depend on which channels go
        return next((why for each, views in trials if (why := self._wrong(found, each, views))), None)

    def _wrong(self, found: Analysis, removal: Removal, views: Sequence[View]) -> str | None:
        try:
            plan = plan_for(found.roles, removal, self.model)
            worst = difference(self.model, views, plan)
        except CannotCutError as error:
            return str(error)
        except ForwardError as error:
            return f"the cut model does not run: {error}"
        if worst.amount > TOLERANCE:
            return f"in the cut and the masked model, {worst.where} differ by {worst.amount:.2g} of the largest value"
        return None

    def _kept(self, found: Analysis, failure: str) -> Analysis:
        """The slow way, when something fails on the real weights: who fails alone, then who fails together with others."""
        failing = self._failing(found, found.groups, failure)
        kept = [group for group in found.groups if group not in failing]
        if self.failure(found, kept) is not None:
            together: list[ChannelGroup] = []
            for group in kept:
                why = self.failure(found, [*together, group])
                if why is None:
                    together.append(group)
                else:
                    failing[group] = why
            kept = together
        reasons = {
            path: f"the proof fails when layer '{group.scored[0][0].layer}' is cut: {why}"
            for group, why in failing.items()
            for path in group.filters
        }
        return replace(found, groups=kept, reasons={**found.reasons, **reasons})

    def _failing(
        self, found: Analysis, groups: Sequence[ChannelGroup], failure: str
    ) -> dict[ChannelGroup, str]:
        """Those of groups that fail together that also fail alone; halving finds few among many quickly."""
        if len(groups) == 1:
            return {groups[0]: failure}
        failing: dict[ChannelGroup, str] = {}
        for half in (groups[: len(groups) // 2], groups[len(groups) // 2 :]):
            why = self.failure(found, half)
            if why is not None:
                failing.update(self._failing(found, half, why))
        return failing


class Forwards:
    """Real forwards inside `dysens.model.preserved`: each view is run once, and the model is brought back after it."""

    def __init__(self, model: paddle.nn.Layer) -> None:
        """Take the model as it is."""
        self.model = model
        self._whole = ModelState(model)
        self._roles = roles_of(model)
        self._seen: dict[int, tuple[View, set[str] | ForwardError]] = {}
        self._empty: set[int] = set()

    def called(self, view: View) -> set[str]:
        """The layers with weights that a forward runs.

        Raises:
            ForwardError: If it fails.
        """
        if id(view) not in self._seen:
            self._seen[id(view)] = view, self._run(view)
        found = self._seen[id(view)][1]
        if isinstance(found, ForwardError):
            raise found
        return found

    def runs(self, view: View) -> bool:
        """Whether the whole model takes these inputs, and every layer that it runs returns something.

        Convolutions take pictures that are too small for them, and what comes behind an empty tensor is whatever was in memory.
        """
        try:
            self.called(view)
        except ForwardError:
            return False
        return id(view) not in self._empty

    def others(self, view: View) -> list[View]:
        """Other inputs than the given ones, and another size, as far as the model takes them."""
        wanted = [list(view.varied())]
        for ratio, shift in (((1, 2), -2.5), ((3, 2), 0.0), ((2, 1), 2.5)):
            # Darker and brighter ones, too: some forwards choose their way by values.
            wanted.append(
                [each.shifted(shift) for each in (*view.resized([ratio]), view) if each is not view or shift]
            )
        taken = (next((each for each in some if self.runs(each)), None) for some in wanted)
        return [each for each in taken if each is not None]

    def _run(self, view: View) -> set[str] | ForwardError:
        seen: set[str] = set()

        def listen(visit: Visit) -> Any:
            answer = visit.real()
            if any(isinstance(leaf, paddle.Tensor) and 0 in leaf.shape for leaf in leaves(answer)):
                self._empty.add(id(view))
            return answer

        try:
            run(
                self.model,
                view,
                self._roles.values(),
                listen,
                lambda visit: seen.add(visit.call[0]),
            )
        except ForwardError as error:
            return error
        finally:
            self._whole.restore()
        return seen


def proven(model: paddle.nn.Layer, views: Sequence[View], found: Analysis) -> Analysis:
    """What was found, without the groups that do not stand the proof."""
    with preserved(model, weights_too=True):
        return Proof(model, views, others=Forwards(model).others(views[0])).provable(found)
