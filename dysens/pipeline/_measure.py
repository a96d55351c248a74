"""Measuring what each group is worth: a sweep of all ratios, or a search for the largest within a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.flags import flag
from dysens.pipeline._scoring import guarded
from dysens.pipeline._subject import Subject
from dysens.results import Point, Sensitivities, continue_slim_file, is_slim_file
from dysens.sweep import Executor, Forecast, Observer, RunOptions, SearchResult, checked_ratios


@dataclass(frozen=True)
class Measuring:
    """How sensitivities are measured.

    Attributes:
        sen_file: The journal; one that is there is continued. A PaddleSlim file is continued in a journal beside it.
        ratios: Shares to try; None for 0.1 to 0.9.
        only: Groups to measure, by parameter name, layer path or pattern; None for all that are deployed.
        target_loss: If given, each group's largest ratio within this loss is searched, instead of measuring all ratios.
        workers: How many processes share it.
        fast: "auto", "on", "off" or a runtime, see `DygraphSensitivity.sensitive`.
        force: Continue a journal of other weights, or of another criterion.
        progress: Whether to show a bar.
        observer: Called with every point.
        executor: Where the processes run; None for this machine.
    """

    sen_file: Path
    ratios: Sequence[float] | None = None
    only: Sequence[str] | None = None
    target_loss: float | None = None
    workers: int = 1
    fast: str = "auto"
    force: bool = False
    progress: bool = True
    observer: Observer | None = None
    executor: Executor | None = None

    def check(self) -> None:
        """Refuse what no sweep and no search can do, before anything is built.

        Raises:
            InputError: It is asked for.
        """
        checked_ratios(self.ratios)


def sweep(subject: Subject, options: Measuring) -> Sensitivities:
    """Measure every group that is wanted at every ratio, or go on with a journal that is there.

    Raises:
        InputError: The network has random weights, or the whole of it scores next to nothing.
    """
    arguments = _arguments(subject, options)  # which refuses what makes no sense before groups are looked for
    return subject.ds.sensitive(**arguments)


def forecast(subject: Subject, options: Measuring) -> Forecast:
    """What `sweep` would take: points, seconds, memory, disk.

    Raises:
        InputError: As for `sweep`.
    """
    arguments = _arguments(subject, options)
    run = {name: arguments.pop(name) for name in ("workers", "build", "executor", "fast")}
    for name in ("progress", "force", "observer"):
        arguments.pop(name)
    return subject.ds.forecast(**arguments, options=RunOptions(**run))


def search(subject: Subject, options: Measuring) -> SearchResult:
    """Search how far every group may go within ``options.target_loss``; the answers also go into `search_file`.

    Raises:
        InputError: As for `sweep`; or there is no target loss.
    """
    if options.target_loss is None:
        raise InputError(f"A search needs a {flag('target_loss')}.")
    arguments = _arguments(subject, options)
    evaluator = arguments.pop("eval_func")
    found = subject.ds.search(evaluator, options.target_loss, **arguments)
    points = [Point(group.name, group.path, group.ratio, None, group.loss) for group in found.groups]
    better = evaluator.higher_is_better if isinstance(evaluator, Evaluator) else not subject.lower_is_better
    answers = Sensitivities(points, found.baseline, better, costs=subject.ds.costs())
    answers.to_json(search_file(options))
    return found


def search_file(options: Measuring) -> Path:
    """What a search finds: a point per group, its largest ratio. Beside the journal, which keeps all that it tried."""
    return options.sen_file.with_name(f"{options.sen_file.stem}.search-{options.target_loss:g}.json")


def result_file(options: Measuring) -> Path:
    """What ratios are chosen from."""
    if options.target_loss is not None:
        return search_file(options)
    if is_slim_file(options.sen_file):
        _, beside = continue_slim_file(options.sen_file)
        return beside if beside.is_file() else options.sen_file
    return options.sen_file


def _arguments(subject: Subject, options: Measuring) -> dict[str, Any]:
    """What both methods of `DygraphSensitivity` take."""
    options.check()
    subject.check_weights()
    options.sen_file.parent.mkdir(parents=True, exist_ok=True)
    elsewhere = options.workers > 1 or options.executor is not None
    return {
        "workers": options.workers,
        "build": (subject.build or subject.task.build) if elsewhere else None,
        "executor": options.executor,
        "eval_func": guarded(subject),
        "ratios": options.ratios,
        "sen_file": options.sen_file,
        "target_vars": options.only or subject.deployed,
        "progress": options.progress,
        "higher_is_better": not subject.lower_is_better,
        "force": options.force,
        "fast": options.fast,
        "observer": options.observer,
    }
