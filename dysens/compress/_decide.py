"""Deciding: joint candidates, compared as a whole; the best is scored, and gives way to a smaller cut where it loses too much."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dysens.compress._allocate import BY_TRIAL, Allocation, Allocator
from dysens.compress._by_trial import MOST, curves_by_trial
from dysens.compress._criterion import Elimination
from dysens.compress._outcome import Trial
from dysens.compress._output_error import OutputError
from dysens.compress._sequential import SequentialFolding
from dysens.compress._subject import Judge, Subject, folded_plan
from dysens.errors import UnreachableError
from dysens.flags import flag
from dysens.progress import progress
from dysens.pruning import PrunePlan

logger = logging.getLogger(__name__)

IN_SEQUENCE = "folded in sequence"
# A relative loss: a score that falls by more is said aloud, and training is not begun without being asked for.
RUINED = 0.2
_BISECTIONS = 5
_BUDGET_TRIES = 6
# So many of the best candidates are folded in sequence too.
_REFOLDED = 1
# What is found by trial was picked on the very samples that it is compared on, and folding in sequence fits what is peculiar to
# the data too: detectors then score less, at somewhat nearer outputs. So both have to be this much better.
_BETTER_BY_TRIAL = _BETTER_IN_SEQUENCE = 0.75
# Without a budget, this much is tried first at most.
_MOST = 0.9
# So many of the best candidates are scored, where scoring the whole network took no more seconds than this.
_SCORED, _QUICK = 3, 60.0


@dataclass(frozen=True, eq=False)
class Candidate:
    """A joint cut.

    Attributes:
        allocation: Its ratios.
        units: What goes, by group name.
        plan: The cut with its folding.
        trial: What was measured.
    """

    allocation: Allocation
    units: Mapping[str, np.ndarray]
    plan: PrunePlan
    trial: Trial


def _error(candidate: Candidate) -> float:
    """What candidates are ranked by."""
    in_sequence = candidate.allocation.name.endswith(IN_SEQUENCE)
    return candidate.trial.output_error / (_BETTER_IN_SEQUENCE if in_sequence else 1.0)


@dataclass
class Decider:
    """Finds the best joint cut for a budget.

    Attributes:
        subject: The network.
        eliminations: By the name of a proposal, which units go first.
        allocator: Proposes ratios.
        error: Compares joint cuts.
        judge: Scores the best ones, if there is an evaluator.
        sequential: Folds the best ones in sequence too, to see whether that is better.
        shown: Whether to show progress.
        by_time: Whether time is the target: then a cut is chosen by its own time, and no other takes its place.
        tried: All joint cuts so far.
        notes: What the user should know.
    """

    subject: Subject
    eliminations: Mapping[str, Elimination]
    allocator: Allocator
    error: OutputError
    judge: Judge | None = None
    sequential: SequentialFolding | None = None
    shown: bool = False
    by_time: bool = False
    tried: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _known: dict[float, list[Candidate]] = field(default_factory=dict)
    _whole: tuple[int, int] | None = None
    _searched: bool = False

    def decide(self, target: float | None, max_loss: float | None) -> Candidate:
        """The best cut for a target, or the largest within a loss.

        Raises:
            UnreachableError: The target is out of reach, or every cut loses more than ``max_loss``.
        """
        if target is None:
            assert max_loss is not None
            return self._largest(min(_MOST, self.allocator.most()), max_loss)
        found = self.scored(target)
        if self.judge is None or found.trial.score is None:
            return found
        loss = self.judge.loss(found.trial.score)
        if max_loss is not None and loss > max_loss:
            backed_off = self._largest(target, max_loss)
            self._note(
                f"Removing {target:.1%} of the {self.allocator.what} loses {loss:.1%} of the score, more than the {max_loss:.1%} "
                f"of {flag('max_loss')}: {backed_off.trial.removed:.1%} are removed instead."
            )
            return backed_off
        if max_loss is None and loss > RUINED:
            self._warn_of_ruin(target, loss)
        return found

    def best(self, target: float) -> Candidate:
        """Of all proposals for a budget, the one whose outputs are nearest to the whole network's."""
        return self._ranked(target)[0]

    def timed(self, target: float, milliseconds: float) -> None:
        """Keep what the best cut for a budget takes."""
        self._known[target][0] = self._replace(self._known[target][0], milliseconds=milliseconds)

    def scored(self, target: float) -> Candidate:
        """If there is an evaluator, the best by its score of the few whose outputs are nearest; the nearest otherwise."""
        ranked = self._ranked(target)
        if self.judge is None:
            return ranked[0]
        number = self._number
        for place, candidate in enumerate(ranked[:number]):
            if candidate.trial.score is None:
                ranked[place] = self._replace(candidate, score=self.judge.score(candidate.plan))
        # The first of equals: its outputs are the nearest.
        best = min(ranked[:number], key=lambda candidate: self._loss(candidate))
        ranked.remove(best)
        ranked.insert(0, best)
        return best

    def reason(self, chosen: Candidate) -> str:
        """Why a cut was taken of those for its budget, as a sentence; where another comes nearer to the outputs, it is named."""
        budget, what = chosen.trial.budget, chosen.trial.of
        among = [
            trial
            for trial in self.tried
            if (trial.budget, trial.of) == (budget, what)
            and (trial.removed >= budget - 1e-9 or trial is chosen.trial)
        ]
        scored = [trial for trial in among if trial.score is not None]
        error, nearest = chosen.trial.output_error, min(among, key=lambda trial: trial.output_error)
        if len(scored) > 1:
            assert self.judge is not None
            sentence = (
                f'"{chosen.allocation.name}" was taken for the best score ({chosen.trial.score:.4g} by {self.judge.name}) '
                f"of the {len(scored)} cuts with the smallest output errors"
            )
        else:
            sentence = f'"{chosen.allocation.name}" was taken for the smallest output error of {len(among)} cuts ({error:.3g})'
        if nearest.output_error >= error:
            return f"{sentence}."
        other = f'"{nearest.allocation}" has an error of {nearest.output_error:.3g}'
        if nearest.score is not None and nearest.score != chosen.trial.score:
            return f"{sentence}; {other} against {error:.3g}, but scores {nearest.score:.4g}."
        alike = "" if nearest.score is None else f" against {error:.3g} and scores the same"
        return f"{sentence}; {other}{alike}, which would have to be smaller by a quarter."

    @property
    def _number(self) -> int:
        """How many candidates of a budget are scored; of those for a time only the one that was timed."""
        quick = self.judge is not None and self.judge.seconds <= _QUICK
        return _SCORED if quick and not self.by_time else 1

    def _loss(self, candidate: Candidate) -> float:
        assert self.judge is not None
        assert candidate.trial.score is not None
        return self.judge.loss(candidate.trial.score)

    def _ranked(self, target: float) -> list[Candidate]:
        """All that reach a budget, the nearest outputs first."""
        if target not in self._known:
            self._known[target] = self._found(target)
        return self._known[target]

    def _found(self, target: float) -> list[Candidate]:
        aim = target
        for _ in range(_BUDGET_TRIES):
            candidates = self._folded(self.allocator.proposals(aim), target)
            if not self._searched:
                self._searched = True
                candidates += self._folded(self._by_trial(aim, candidates), target)
                candidates.sort(key=_error)
            removed = [self._really_removed(candidate) for candidate in candidates[: self._number]]
            enough = [c for c, share in zip(candidates, removed) if share >= target - 1e-9]
            if enough and enough[0] is candidates[0]:
                return enough
            aim += target - removed[0] + 1e-4
        raise UnreachableError(
            f"No cut found removes {target:.1%} of the {self.allocator.what}; the closest removes {removed[0]:.1%}."
        )

    def _folded(self, allocations: Sequence[Allocation], target: float) -> list[Candidate]:
        """The cuts, and the best of them folded in sequence too; the nearest outputs first."""
        candidates = sorted(self._candidates(allocations, target), key=_error)
        if self.sequential is not None:
            candidates += [self._in_sequence(each, target) for each in candidates[:_REFOLDED]]
        return sorted(candidates, key=_error)

    def _by_trial(self, aim: float, candidates: Sequence[Candidate]) -> list[Allocation]:
        """One more allocation, where trying finds one that is much better; it is proposed for all budgets from now on."""
        starts = [c for c in candidates if self.allocator.curves(c.allocation.name)]
        if not starts or len(self.subject.groups) < 2:
            return []
        start = starts[0]
        curves = self.allocator.curves(start.allocation.name)
        elimination = self.eliminations[start.allocation.name]
        assert curves is not None

        def errors(proposed: Sequence[Mapping[str, float]]) -> Sequence[float]:
            return self.error.of_each([folded_plan(self.subject, elimination, r)[1] for r in proposed])

        with progress(MOST, "allocate by trial", self.shown, unit="cut") as shown:
            found, error = curves_by_trial(
                curves, _error(start), lambda c: self.allocator.least_error(c, aim), errors, shown.reach
            )
            shown.finish()
        if error > _BETTER_BY_TRIAL * candidates[0].trial.output_error:
            logger.info(
                "by trial: output error %.4g, not much better than the best so far (%.4g)",
                error,
                candidates[0].trial.output_error,
            )
            return []
        self.allocator.add(BY_TRIAL, found)
        self.eliminations = {**self.eliminations, BY_TRIAL: elimination}
        return [Allocation(BY_TRIAL, self.allocator.least_error(found, aim))]

    def _in_sequence(self, candidate: Candidate, target: float) -> Candidate:
        assert self.sequential is not None
        plan = self.sequential.refolded(candidate.plan, self.shown)
        error = self.error.of(plan)
        return self._measured(candidate.allocation, candidate.units, plan, target, error, in_sequence=True)

    def _replace(self, candidate: Candidate, **measured: float) -> Candidate:
        """The candidate with more that was measured of it."""
        trial = replace(candidate.trial, **measured)  # type: ignore[arg-type]
        self.tried[self.tried.index(candidate.trial)] = trial
        return replace(candidate, trial=trial)

    def _candidates(self, allocations: Iterable[Allocation], budget: float) -> list[Candidate]:
        cuts = [(a, *folded_plan(self.subject, self.eliminations[a.name], a.ratios)) for a in allocations]
        errors = self.error.of_each([plan for _, _, plan in cuts])
        return [self._measured(*cut, budget, error) for cut, error in zip(cuts, errors)]

    def _measured(
        self,
        allocation: Allocation,
        units: Mapping[str, np.ndarray],
        plan: PrunePlan,
        budget: float,
        error: float,
        in_sequence: bool = False,
    ) -> Candidate:
        name = f"{allocation.name}, {IN_SEQUENCE}" if in_sequence else allocation.name
        trial = Trial(
            name, budget, self.allocator.share_removed(allocation.ratios), error, of=self.allocator.what
        )
        logger.info(
            "%s, -%.1f%%: output error %.4g", trial.allocation, 100 * trial.removed, trial.output_error
        )
        self.tried.append(trial)
        return Candidate(replace(allocation, name=name), units, plan, trial)

    def _really_removed(self, candidate: Candidate) -> float:
        if self.allocator.kind == "time":
            return candidate.trial.removed  # the whole is timed by who asks
        if self._whole is None:
            self._whole = self.subject.flops_and_params()
        place = 0 if self.allocator.kind == "flops" else 1
        return 1 - self.subject.flops_and_params(candidate.plan)[place] / self._whole[place]

    def _largest(self, high: float, max_loss: float) -> Candidate:
        """By bisection, the largest cut between nothing and a budget that keeps within a loss."""
        assert self.judge is not None
        held: Candidate | None = None
        low, smallest = 0.0, math.inf
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            candidate = self.scored(middle)
            assert candidate.trial.score is not None
            loss = self.judge.loss(candidate.trial.score)
            smallest = min(smallest, loss)
            if loss <= max_loss:
                low, held = middle, candidate
            else:
                high = middle
        if held is None:
            raise UnreachableError(
                f"Every cut that was tried loses more than {max_loss:.1%} of the score (the smallest, {high:.1%} of the "
                f"{self.allocator.what}, {smallest:.1%}): allow a larger {flag('max_loss')}, give more data, or fine-tune "
                "after a cut."
            )
        return held

    def _warn_of_ruin(self, target: float, loss: float) -> None:
        sentence = f"Removing {target:.1%} of the {self.allocator.what} loses {loss:.1%} of the score."
        try:
            held = self._largest(target, RUINED)
            sentence += (
                f" {held.trial.removed:.1%} is the largest budget found that loses less than {RUINED:.0%}."
            )
        except UnreachableError:
            sentence += f" No smaller budget that was tried loses less than {RUINED:.0%}."
        self._note(sentence)

    def _note(self, sentence: str) -> None:
        logger.warning("%s", sentence)
        self.notes.append(sentence)
