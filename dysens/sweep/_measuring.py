"""One sweep or search, from what the front door was asked for to what it returns."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import paddle

from dysens.compiled import Scorer
from dysens.costs import Costs
from dysens.criteria import Criterion, compensates, criterion_name
from dysens.errors import InputError
from dysens.evaluators import Evaluator, checked_baseline
from dysens.groups import ChannelGroup, Choice, Role
from dysens.model import fingerprint
from dysens.results import Header, Journal, Sensitivities
from dysens.sweep._examiner import Examiner
from dysens.sweep._options import RunOptions
from dysens.sweep._result import SearchResult
from dysens.sweep._scorers import scorer_of
from dysens.sweep._search import Search
from dysens.sweep._sweep import Sweep, check_journal, open_journal
from dysens.sweep._workers import run_in_workers

logger = logging.getLogger(__name__)

EvalFunc = Union[Callable[[], Any], Evaluator]


@dataclass(frozen=True)
class Measuring:
    """What is measured, how, and where the points go.

    Attributes:
        model: The live layer.
        optimizer: Left as found too.
        roles: The model's layers with weights.
        criterion: Which units go first.
        choose: Which units a ratio removes from a group.
        costs: Counts what the model costs at any ratios.
        groups: What to measure.
        ratios: Shares of units to remove.
        sen_file: The journal, if there is one.
        force: Continue a journal of other weights, criterion, evaluator or baseline.
        progress: Whether to show a bar.
    """

    model: paddle.nn.Layer
    optimizer: paddle.optimizer.Optimizer | None
    roles: Mapping[str, Role]
    criterion: Criterion
    choose: Choice
    costs: Callable[[], Costs]
    groups: Sequence[ChannelGroup]
    ratios: Sequence[float]
    sen_file: str | os.PathLike[str] | None
    force: bool
    progress: bool

    def sweep(self, eval_func: EvalFunc, higher_is_better: bool, options: RunOptions) -> Sensitivities:
        """Measure every group at every ratio.

        Args:
            eval_func: Scores the live model, or an `Evaluator`.
            higher_is_better: False if a function returns an error.
            options: How to run.
        """
        options, scorer = self._prepared(eval_func, higher_is_better, options)
        baseline = checked_baseline(scorer.score())
        header = self._header(scorer, baseline)
        journal = self._journal(header)
        if journal is not None:
            baseline = journal.header.baseline
        sweep = Sweep(self.roles, self.groups, self.choose, self.ratios, scorer, baseline)
        if options.workers > 1:
            compensating = self.criterion if compensates(self.criterion) else None
            points = run_in_workers(sweep, header, journal, options, self.progress, compensating)
        else:
            points = sweep.run(journal, self.progress, options.observer)
        return Sensitivities(
            points, baseline, scorer.higher_is_better, str(self.sen_file or ""), header.costs
        )

    def search(
        self,
        evaluator: EvalFunc,
        higher_is_better: bool,
        options: RunOptions,
        target_loss: float,
        confidence: float,
        spot_checks: int,
    ) -> SearchResult:
        """Find each group's largest ratio within a loss.

        Args:
            evaluator: Scores the live model, if it can batch by batch.
            higher_is_better: False if a function returns an error.
            options: How to run; in one process.
            target_loss: The relative loss that each group may cost.
            confidence: How likely, per point, all data would decide as the part that was seen.
            spot_checks: For how many groups to measure a ratio beyond the answer.
        """
        if options.workers > 1:
            raise InputError(
                "a search decides from what it has seen what to measure next, so it runs in one process: leave workers out."
            )
        options, scorer = self._prepared(evaluator, higher_is_better, options)
        examiner = Examiner(scorer, target_loss, confidence)
        journal = self._journal(self._header(scorer, examiner.baseline))
        search = Search(
            self.roles,
            self.groups,
            self.choose,
            self.ratios,
            examiner,
            spot_checks,
            journal,
            options.observer,
        )
        return search.run(self.progress)

    def _prepared(
        self, eval_func: EvalFunc, higher_is_better: bool, options: RunOptions
    ) -> tuple[RunOptions, Scorer]:
        if compensates(self.criterion):
            options = _live(options, criterion_name(self.criterion))
        if self.sen_file is not None:
            check_journal(self.sen_file)
        scorer = scorer_of(
            self.model, self.roles, self.groups, eval_func, higher_is_better, self.optimizer, options
        )
        return options, scorer

    def _header(self, scorer: Scorer, baseline: float) -> Header:
        return Header(
            type(self.model).__name__,
            fingerprint(self.model),
            criterion_name(self.criterion),
            scorer.name,
            baseline,
            scorer.higher_is_better,
            {group.name: group.path for group in self.groups},
            self.costs(),
        )

    def _journal(self, header: Header) -> Journal | None:
        return open_journal(self.sen_file, header, self.force) if self.sen_file is not None else None


def _live(options: RunOptions, criterion: str) -> RunOptions:
    """The options with the live model, because no compiled copy can stand in for it."""
    why = f"the criterion {criterion} compensates: it shifts biases, which a compiled copy cannot"
    if options.fast == "on":
        raise InputError(f'fast is "on", but {why}. Take fast="off".')
    logger.info("The live model runs: %s.", why)
    return replace(options, fast="off")
