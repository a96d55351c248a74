"""One call from a task to a smaller model: calibrate, cut, train, export, and every state in one table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import paddle

from dysens.adapters import Exported, Reading, Scoring, Unlabelled
from dysens.compress import RUINED, CompressOutcome
from dysens.errors import DysensError, InputError
from dysens.evaluators import Evaluator, evaluate, metric_of, relative_loss
from dysens.flags import flag
from dysens.model import leaves, map_leaves, preserved, view_of
from dysens.pipeline._produce import train
from dysens.pipeline._scoring import Baseline, Scores, Watched
from dysens.pipeline._states import EXPORTED, ORIGINAL, PRUNED, TRAINED, Row, States, states_table
from dysens.pipeline._subject import Subject
from dysens.pruning import has_plan, save_pruned
from dysens.results import Sensitivities
from dysens.sweep import Executor

logger = logging.getLogger(__name__)

SAVED_AS, EXPORTED_TO, TRAINED_IN = "pruned", "inference", "trained"
"""In the folder of a compressed model: its weights and plan, the exported model, and what training writes."""

SHOWN = 10  # images to compare by eye
PADDLE = "paddle"


class RuinedError(DysensError):
    """The cut lost too much for training to begin without a word; `compressed` is what was reached."""

    def __init__(self, message: str, compressed: Compressed) -> None:
        super().__init__(message)
        self.compressed = compressed


@dataclass(frozen=True)
class Compressing:
    """How a network is compressed; see `DygraphSensitivity.compress` for what is not described here.

    Attributes:
        folder: Gets the weights and the plan, and the exported model.
        data: What to calibrate on; None for the task's own.
        data_name: What these data are, for people.
        train: Whether to train the cut network with its framework's own loop.
        export: Whether to export the result.
        anyway: Train even if the cut has lost more than a fifth of the score.
        replace: Replace a compressed model that is in the folder.
        rounds: How often the exported models are timed.
        progress: Whether to show a bar.
        workers: How many processes compare cuts.
        executor: Where they run; None for this machine.
    """

    folder: Path
    flops: float | None = None
    params: float | None = None
    latency: float | None = None
    max_loss: float | None = None
    samples: int = 64
    align: int | None = 8
    runtime: str = PADDLE
    sens: Sensitivities | None = None
    data: Any = None
    data_name: str = "given data"
    train: bool = False
    export: bool = False
    anyway: bool = False
    replace: bool = False
    rounds: int = 30
    progress: bool = True
    workers: int = 1
    executor: Executor | None = None

    @property
    def save(self) -> Path:
        """Where weights and plan go, without an ending."""
        return self.folder / SAVED_AS

    def check(self) -> None:
        """Refuse what cannot be done, before anything is built.

        Raises:
            InputError: No budget is given, or several, or there is a compressed model in the folder.
        """
        self.check_budget()
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f'"{self.folder}" is a file; what is compressed goes into a folder.')
        if has_plan(self.save) and not self.replace:
            raise InputError(
                f'There is a compressed model in "{self.folder}" already: name another folder, or replace it by {flag("force")}.'
            )

    def check_budget(self) -> None:
        """The same for the budget alone: the folder may not be known yet."""
        budgets = {"flops": self.flops, "params": self.params, "latency": self.latency}
        given = [flag(name) for name, share in budgets.items() if share is not None]
        if len(given) > 1:
            raise InputError(f"Give one budget, not {' and '.join(given)}.")
        if not given and self.max_loss is None:
            raise InputError(
                f"Nothing says how much to remove: give {flag('flops')} 0.5 (a share; 50% is the same), {flag('params')}, "
                f"{flag('latency')}, or {flag('max_loss')} 0.02."
            )
        for name, share in {**budgets, "max_loss": self.max_loss}.items():
            if share is not None and not 0 < share < 1:
                raise InputError(
                    f"{flag(name)} is a share above 0 and under 1, such as 0.5 or 50%, not {share:g}."
                )


@dataclass(frozen=True, eq=False)
class Compressed:
    """What came of it.

    Attributes:
        rows: Every state of the network.
        indicator: What its score is called.
        outcome: What the cut brought.
        save: Where weights and plan are, without an ending.
        data: What was calibrated on.
        scored_on: What the score is of; None without one.
        before: What the original made of some images.
        after: What the result makes of them.
        trained: The folder with the checkpoints of the training.
        exported: The exported result.
    """

    rows: Sequence[Row]
    indicator: str
    outcome: CompressOutcome
    save: Path
    data: str
    scored_on: str | None = None
    before: Sequence[Reading] = ()
    after: Sequence[Reading] = ()
    trained: Path | None = None
    exported: Exported | None = None

    def __str__(self) -> str:
        return states_table(self.rows, self.indicator)


Observer = Callable[[Compressed], None]
"""Told of every state as it is reached."""


def compress(subject: Subject, options: Compressing, observer: Observer | None = None) -> Compressed:
    """Make a network smaller; its weights and plan, and whatever else is asked for, go into the folder.

    Args:
        subject: The network; it is cut (and trained) in place.
        options: What is wanted.
        observer: Told of every state as it is reached, from the cut on; times come with the last one.

    Raises:
        InputError: Options or data cannot be used.
        UnreachableError: The budget is out of reach.
        RuinedError: The cut lost too much, so it was saved but not trained.
    """
    options.check()
    if not subject.task.has_weights:
        logger.warning(
            "The network has random weights, so the result is only good for a trial%s: give %s.",
            ", and is not scored" if subject.scores_chance else "",
            flag("weights"),
        )
    options.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".states-", dir=options.folder) as folder:
        run = _Run(subject, options, States(subject.task, Path(folder)), observer)
        run.cut()
        ruin = run.ruin() if options.train and not options.anyway else None
        if options.train and ruin is None:
            run.train()
        if options.export and ruin is None:
            run.export()
        compressed = run.finish()
    if ruin is not None:
        raise RuinedError(ruin, compressed)
    return compressed


class _Run:
    """One compression on its way."""

    def __init__(
        self, subject: Subject, options: Compressing, states: States, observer: Observer | None
    ) -> None:
        self.subject, self.task = subject, subject.task
        self.options = options
        self.states = states
        self.observer = observer
        self.scores: Scores | None = None
        self.scoring = self._watched()
        if options.max_loss is not None and self.scoring is None:
            needed = (
                flag("weights") if subject.scores_chance else f"{flag('evaluator')} package.module:function"
            )
            raise InputError(f"{flag('max_loss')} is about a score: give {needed}.")
        self.data = calibration_data(subject, options)
        self.found: dict[str, Any] = {}  # what there is of a `Compressed`

    def cut(self) -> None:
        """Calibrate, decide, cut, save."""
        options = self.options
        self.found["before"] = self.task.readings(SHOWN)
        self._reached(ORIGINAL, None)  # its score comes with that of the cut
        elsewhere = options.workers > 1 or options.executor is not None
        outcome = self.subject.ds.compress(
            self.data,
            options.flops,
            options.params,
            options.latency,
            options.max_loss,
            evaluator=self.scoring,
            samples=options.samples,
            align=options.align,
            target_vars=self.subject.deployed,
            sens=options.sens,
            runtime=options.runtime,
            progress=options.progress,
            workers=options.workers,
            build=(self.subject.build or self.task.build) if elsewhere else None,
            executor=options.executor,
        )
        save_pruned(self.task.network, options.save)
        self.found["outcome"] = outcome
        whole = self.states.rows[0]
        self.states.rows[0] = replace(
            whole, score=outcome.score_before, spread=self._spread(outcome.score_before)
        )
        self._reached(PRUNED, outcome.score_after)

    def train(self) -> None:
        """By the framework's own loop."""
        logger.info("Training with %s's own loop.", self.task.framework)
        self.found["trained"] = train(self.task)
        self._reached(TRAINED, self._score())

    def export(self) -> None:
        """For use; what was exported is scored too."""
        exported = self.task.export(self.options.folder / EXPORTED_TO)
        self.found["exported"] = exported
        # A function scores the live model only; so does an evaluator that is not the task's own.
        scores = self.subject.scoring is None and isinstance(self.scoring, Evaluator)
        score = self.task.score_exported(self.options.folder / EXPORTED_TO) if scores else None
        self._reached(EXPORTED, score, exported)

    def ruin(self) -> str | None:
        """Why not to train, as a sentence."""
        first, last = self.states.rows[0].score, self.states.rows[-1].score
        if first is None or last is None:
            return None
        loss = relative_loss(first, last, self.subject.higher_is_better)
        if loss <= RUINED:
            return None
        return (
            f"The cut loses {loss:.0%} of the score ({first:.4f} -> {last:.4f}), so training was not begun. Remove less, or give "
            f"{flag('max_loss')} 0.1, which removes as much as that allows; or train it all the same with {flag('anyway')}. "
            f"The cut network is in {self.options.save}.pdparams."
        )

    def finish(self) -> Compressed:
        """Time all states, and look at the images again."""
        if self.options.runtime == PADDLE:
            self.states.time(self.options.rounds)
        else:  # measured by whatever will run it; what is trained has the shapes of what was cut
            outcome = self.found["outcome"]
            times = {row.state: outcome.ms_after for row in self.states.rows}
            self.states.set_times({**times, ORIGINAL: outcome.ms_before})
        if self.found["before"]:
            self.found["after"] = self.task.readings(SHOWN)
        return self._told()

    def _watched(self) -> Scoring | None:
        """What scores the network, watched; None if nothing is named that does."""
        if self.subject.scores_chance or not self.subject.has_evaluator:
            return None
        evaluator = self.subject.evaluator
        if not isinstance(evaluator, Evaluator):
            if self.subject.lower_is_better:
                raise InputError(
                    "To compress by an error, give an Evaluator with higher_is_better=False: a function has to return a score "
                    "that is the better the higher it is."
                )
            return self._told_first(evaluator)
        self.scores = Scores(evaluator)
        refuse, first = Baseline(self.subject, evaluator.name), [ORIGINAL]

        def told(score: float, measurements: Sequence[Any]) -> None:
            refuse(score, measurements)
            if first:
                logger.info("%s: %s %.4f (%s)", first.pop(), self.subject.indicator, score, evaluator.name)
            assert self.scores is not None
            self.scores(score, measurements)

        return Watched(evaluator, told)

    def _told_first(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """A function whose first score, that of the original, is shown."""
        first = [ORIGINAL]

        @wraps(function)
        def scored() -> Any:
            found = function()
            if first:
                logger.info("%s: %s %.4f", first.pop(), self.subject.indicator, metric_of(found))
            return found

        return scored

    def _spread(self, score: float | None) -> float | None:
        return None if self.scores is None else self.scores.spread(score)

    def _score(self) -> float | None:
        if self.scoring is None:
            return None
        if isinstance(self.scoring, Evaluator):
            return evaluate(self.task.model, self.scoring)
        with preserved(self.task.model):
            self.task.model.eval()
            return metric_of(self.scoring())

    def _reached(self, state: str, score: float | None, exported: Exported | None = None) -> None:
        self.states.add(state, score, self._spread(score), exported)
        if score is not None:
            logger.info("%s: %s %.4f", state, self.subject.indicator, score)
        if "outcome" in self.found:
            self._told()

    def _told(self) -> Compressed:
        name = None if self.scoring is None else getattr(self.scoring, "name", self.subject.indicator)
        compressed = Compressed(
            tuple(self.states.rows),
            self.subject.indicator,
            save=self.options.save,
            data=self.data.name,
            scored_on=name,
            **self.found,
        )
        if self.observer is not None:
            self.observer(compressed)
        return compressed


def calibration_data(subject: Subject, options: Compressing) -> Unlabelled:
    """What to calibrate on: what was given, what the task has, or, said aloud, noise.

    Raises:
        InputError: A config's data cannot be read.
    """
    if options.data is not None:
        if isinstance(options.data, Evaluator):
            return Unlabelled(options.data.batches(), options.data.arguments, options.data_name)
        return Unlabelled(
            options.data, lambda item: item if isinstance(item, tuple) else (item,), options.data_name
        )
    if (
        subject.scoring is not None
        and not subject.task.has_evaluator
        and isinstance(subject.scoring, Evaluator)
    ):
        return Unlabelled(
            subject.scoring.batches(), subject.scoring.arguments, f"data of {subject.scoring.name}"
        )
    try:
        found = subject.task.unlabelled()
    except InputError as error:
        if subject.task.has_evaluator and isinstance(subject.task.evaluator, Evaluator):
            raise
        logger.warning(
            "%s Generated noise is used instead, which says little about real inputs: the result is smaller, but may be "
            "useless.",
            error,
        )
        return Unlabelled(_Noise(subject.task.example_inputs, options.samples), tuple, "generated noise")
    logger.info("Calibrating on up to %d of the %s, without their labels.", options.samples, found.name)
    return found


class _Noise:
    """Calls like an example, with random numbers; the same at every pass."""

    def __init__(self, inputs: Any, samples: int) -> None:
        self._arguments = view_of(inputs).arguments
        sizes = [tensor.shape[0] for tensor in leaves(self._arguments) if isinstance(tensor, paddle.Tensor)]
        self._calls = -(-samples // max(1, sizes[0] if sizes else 1))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        generator = np.random.default_rng(0)

        def drawn(leaf: Any) -> Any:
            if not isinstance(leaf, paddle.Tensor) or not leaf.is_floating_point():
                return leaf
            return paddle.to_tensor(generator.standard_normal(leaf.shape).astype("float32")).astype(
                leaf.dtype
            )

        for _ in range(self._calls):
            yield tuple(map_leaves(drawn, self._arguments))
