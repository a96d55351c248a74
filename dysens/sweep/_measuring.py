"""What a sweep and a search have in common, from the baseline to the journal; and a word about noise."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Union

import paddle

from dysens.compiled import EvaluatorScorer, FunctionScorer, Scorer
from dysens.costs import Costs
from dysens.criteria import Criterion, compensates, criterion_name
from dysens.errors import InputError
from dysens.evaluators import Evaluator, checked_baseline, metric_of
from dysens.groups import ChannelGroup, Choice, Role
from dysens.model import fingerprint
from dysens.results import Header, Journal, Sensitivities, same_baseline
from dysens.sweep._examiner import Examiner
from dysens.sweep._options import RunOptions, scorer_of
from dysens.sweep._result import SearchResult
from dysens.sweep._search import Search
from dysens.sweep._sweep import Sweep, check_journal, open_journal
from dysens.sweep._workers import run_in_workers

logger = logging.getLogger(__name__)

# Scoring the whole model twice must not cost more than a twentieth of a sweep.
_POINTS_WORTH_A_REPEAT = 20


def warn_of_noise(scorer: Scorer, baseline: float, points: int) -> None:
    """Warn if the same model does not get the same score again, or is scored in training mode.

    A function is called once more where many points follow; of an `Evaluator`, one batch is measured once more.

    Args:
        scorer: What scores, after it scored the whole model.
        baseline: That score.
        points: How many scores lie ahead.
    """
    if isinstance(scorer, FunctionScorer) and scorer.in_training_mode:
        logger.warning(
            "The evaluation runs the model in training mode: dropout and statistics of each batch change its score. "
            "Call model.eval() in eval_func before the model."
        )
    again = baseline
    if isinstance(scorer, EvaluatorScorer):
        baseline, again = scorer.first_batch_twice()
    elif points >= _POINTS_WORTH_A_REPEAT:
        again = metric_of(scorer.score())
    if not same_baseline(baseline, again) and (baseline == baseline or again == again):
        what = "the first batch" if isinstance(scorer, EvaluatorScorer) else "the whole model"
        logger.warning(
            "The evaluation is noisy: %s scores %.6g and then %.6g. Losses that differ by less mean nothing. Call "
            "model.eval(), leave random augmentation and sampling out, or set a seed at the start of every evaluation.",
            what,
            baseline,
            again,
        )


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
        known = len(journal.points()) if journal is not None else 0
        warn_of_noise(scorer, baseline, len(self.groups) * len(self.ratios) - known)
        if journal is not None:
            baseline = journal.header.baseline
        sweep = Sweep(self.roles, self.groups, self.choose, self.ratios, scorer, baseline)
        if options.workers > 1:
            compensating = self.criterion if compensates(self.criterion) else None
            points = run_in_workers(sweep, header, journal, options, self.progress, compensating)
        else:
            points = sweep.run(journal, self.progress, options.observer)
        return Sensitivities(
            points, sweep.baseline, scorer.higher_is_better, str(self.sen_file or ""), header.costs
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
                "A search decides from what it has seen what to measure next, so it runs in one process: leave workers out."
            )
        options, scorer = self._prepared(evaluator, higher_is_better, options)
        examiner = Examiner(scorer, target_loss, confidence)
        warn_of_noise(scorer, examiner.baseline, len(self.groups))
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
        with journal or nullcontext():
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
