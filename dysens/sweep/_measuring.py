"""What a sweep and a search have in common, from the baseline to the journal; and a warning about noise."""

from __future__ import annotations

import logging
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Union

import paddle

import dysens
from dysens.compiled import EvaluatorScorer, FunctionScorer, Scorer
from dysens.costs import Costs
from dysens.criteria import Criterion, compensates, criterion_name
from dysens.errors import InputError
from dysens.evaluators import Evaluator, checked_baseline, metric_of
from dysens.flags import given
from dysens.groups import ChannelGroup, Choice, Role
from dysens.model import fingerprint
from dysens.ratios import ratio_key
from dysens.results import Header, Journal, Point, Sensitivities, encode, same_baseline
from dysens.sweep._examiner import Examiner
from dysens.sweep._executors import Factory, Here
from dysens.sweep._forecast import Forecast, peak_mib
from dysens.sweep._measurer import (
    Greeting,
    Job,
    Measurer,
    RemoteMeasurer,
    Scored,
    checked_criterion,
    weights_of,
)
from dysens.sweep._options import RunOptions, scorer_of
from dysens.sweep._pool import Pool
from dysens.sweep._processes import Processes
from dysens.sweep._result import SearchResult
from dysens.sweep._search import Search
from dysens.sweep._sweep import Sweep, check_journal, open_journal

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


@contextmanager
def opened_pool(factory: Factory, header: Header, options: RunOptions) -> Iterator[Pool]:
    """Workers that agree with what this process measures.

    Args:
        factory: Makes what each of them holds, which can `greet`.
        header: What they have to agree with.
        options: How many, and where.
    """
    executor = options.executor or Processes()
    with executor.opened(factory, options.workers) as start:

        def check(greeting: Greeting) -> tuple[str, str]:
            clauses = greeting.differences(header)
            why = f"what build makes there is not what is being measured: {'; '.join(clauses)}."
            return f"{greeting.host} (process {greeting.pid})", why if clauses else ""

        yield Pool(start, options.workers, check, options.timeout, executor.why_waiting)


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
        by = "" if header.evaluator == "<lambda>" else f" ({header.evaluator})"
        logger.info("The whole network scores %.6g%s.", baseline, by)
        journal = self._journal(header)
        known = len(journal.points()) if journal is not None else 0
        warn_of_noise(scorer, baseline, len(self.groups) * len(self.ratios) - known)
        if journal is not None:
            baseline = journal.header.baseline
        sweep = Sweep(
            self.groups,
            self.choose,
            self.ratios,
            baseline,
            scorer.higher_is_better,
            options.workers,
            journal,
            options.observer,
            alone=not options.elsewhere,
        )
        points = sweep.points.found
        if sweep.done:
            if points:
                logger.info(
                    "All %d points are in %s already: nothing is measured.", len(points), self.sen_file
                )
        else:
            measurer = Measurer(self.roles, self.groups, scorer)
            with (
                journal or nullcontext(),
                self._pool(options, measurer, replace(header, baseline=baseline)) as pool,
            ):
                points = sweep.run(pool, self.progress)
        return Sensitivities(
            points, sweep.baseline, scorer.higher_is_better, str(self.sen_file or ""), header.costs
        )

    def forecast(self, eval_func: EvalFunc, higher_is_better: bool, options: RunOptions) -> Forecast:
        """What `sweep` would take; scores the whole model, and one point. Nothing is written.

        Args:
            eval_func: Scores the live model, or an `Evaluator`.
            higher_is_better: False if a function returns an error.
            options: How it would run.
        """
        known: set[tuple[str, float]] = set()
        if self.sen_file is not None and Path(self.sen_file).exists():
            known = {(point.path, point.ratio) for point in Sensitivities.load(self.sen_file).points}
        options, scorer = self._prepared(eval_func, higher_is_better, options)
        baseline = checked_baseline(scorer.score())
        header = self._header(scorer, baseline)
        places = [(group, ratio_key(ratio)) for group in self.groups for ratio in self.ratios]
        left = [(group, ratio) for group, ratio in places if (group.path, ratio) not in known]
        masked = {(group.path, self.choose(group, ratio).tobytes()) for group, ratio in left}
        group = self.groups[len(self.groups) // 2]
        measurer = Measurer(self.roles, self.groups, scorer)
        # The first one may prepare something.
        answers = [measurer.score((group.path, self.choose(group, ratio))) for ratio in (0.25, 0.5)]
        seconds = answers[-1].seconds if isinstance(answers[-1], Scored) else math.nan
        line = encode(Point(group.name, group.path, 0.5, 1 / 3, 1 / 3, 1 / 3))
        return Forecast(
            len(self.groups),
            len(places),
            len(places) - len(left),
            len(masked),
            seconds,
            seconds * len(masked) / options.workers,
            options.workers,
            scorer.runtime,
            peak_mib() * options.workers,
            # A point, and the line that claims it.
            (len(encode(header)) + 2 * len(line) * len(places)) / 2**10,
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
            options: How to run.
            target_loss: The relative loss that each group may cost.
            confidence: How likely, per point, all data would decide as the part that was seen.
            spot_checks: For how many groups to measure a ratio beyond the answer.
        """
        options, scorer = self._prepared(evaluator, higher_is_better, options)
        examiner = Examiner(scorer, target_loss, confidence)
        warn_of_noise(scorer, examiner.baseline, len(self.groups))
        header = self._header(scorer, examiner.baseline)
        by = "" if header.evaluator == "<lambda>" else f" ({header.evaluator})"
        logger.info("The whole network scores %.6g%s.", examiner.baseline, by)
        journal = self._journal(header)
        search = Search(
            self.groups,
            self.choose,
            self.ratios,
            examiner,
            spot_checks,
            journal,
            options.observer,
            options.workers,
            alone=not options.elsewhere,
        )
        measurer = Measurer(self.roles, self.groups, scorer, examiner)
        target = (examiner.target, examiner.confidence)
        with journal or nullcontext(), self._pool(options, measurer, header, target) as pool:
            return search.run(pool, self.progress)

    @contextmanager
    def _pool(
        self,
        options: RunOptions,
        measurer: Measurer,
        header: Header,
        target: tuple[float, float] | None = None,
    ) -> Iterator[Pool]:
        """Those who measure.

        Args:
            options: How many, and where.
            measurer: Measures if it is this process.
            header: What others have to agree with.
            target: Of a search, with its confidence.
        """
        if not options.elsewhere:
            with Here().opened(lambda: measurer) as start:
                yield Pool(start)
            return
        job = Job(
            options.checked_build(),
            weights_of(self.model),
            self.groups,
            replace(header, costs=None, paths={}),
            RunOptions(fast=_chosen(options.fast, header.runtime), cache_gib=options.cache_gib),
            checked_criterion(self.criterion) if compensates(self.criterion) else None,
            target,
        )
        with opened_pool(partial(RemoteMeasurer, job), header, options) as pool:
            yield pool

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
            {"dysens": dysens.__version__, "Paddle": paddle.__version__, "Python": platform.python_version()},
            scorer.runtime,
            scorer.sample_count,
        )

    def _journal(self, header: Header) -> Journal | None:
        return open_journal(self.sen_file, header, self.force) if self.sen_file is not None else None


def _chosen(fast: str, runtime: str) -> str:
    """What workers are told: to take the runtime that this process found to be the fastest, so that all round alike."""
    return runtime if fast == "auto" and runtime not in ("", "live") else fast


def _live(options: RunOptions, criterion: str) -> RunOptions:
    """The options with the live model, because no compiled copy can stand in for it."""
    why = f"the criterion {criterion} compensates: it shifts biases, which a compiled copy cannot"
    if options.fast == "on":
        raise InputError(
            f"A compiled copy ({given('fast', 'on')}) cannot be used: {why}. Take {given('fast', 'off')}."
        )
    logger.info("The live model runs: %s.", why)
    return replace(options, fast="off")
