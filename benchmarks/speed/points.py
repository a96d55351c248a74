"""What a point costs: PaddleSlim, dysens with the live model, dysens with the compiled copy, on the same points in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import paddle
from store import Figures, sized
from subjects import SUBJECTS, Subject, slim_of, spread

from dysens import DygraphSensitivity
from dysens.evaluators import Evaluator

SAMPLE = sized(3, 1)
EXTRA = 0.45


def measure(name: str) -> Figures:
    """One network."""
    subject = SUBJECTS[name]()
    baseline = subject.eval_func()
    slim = slim_of(subject)
    ds = DygraphSensitivity(subject.model, subject.shape)
    names = [group.name for group in ds.groups]
    common = [group for group in names if slim is None or group in slim.groups]
    rows = [_in_turns(subject, ds, slim, group, ratio, baseline) for group, ratio in spread(common, SAMPLE)]
    return {
        "network": subject.name,
        "images": subject.samples,
        "baseline": baseline,
        "groups": len(names),
        "slim_groups": len(slim.groups) if slim is not None else None,
        "common": common,
        "points": rows,
        "breakdown": _breakdown(subject),
    }


def _in_turns(
    subject: Subject, ds: DygraphSensitivity, slim: Any, group: str, ratio: float, baseline: float
) -> Figures:
    """One point by every way: its loss and its processor seconds."""
    row: Figures = {"group": group, "ratio": ratio, "cpu": {}, "loss": {}}

    def note(way: str, action: Callable[[], float]) -> None:
        start = time.process_time()
        row["loss"][way] = action()
        row["cpu"][way] = time.process_time() - start

    if slim is not None:
        note("slim", lambda: slim.point(group, ratio, baseline))
    options = {"target_vars": [group], "progress": False}
    known = remembering(subject.eval_func, baseline)
    note("eager", lambda: ds.sensitive(known, [ratio], fast="off", **options)[group][ratio])
    # Two points, of which the second is timed: the first is charged with what is done once, such as ranking the filters.
    clock, clocked = Clock(subject.eval_func), Clocked(subject.evaluator)
    row["loss"]["function"] = ds.sensitive(clock, [ratio, EXTRA], fast="on", **options)[group][ratio]
    row["loss"]["fast"] = ds.sensitive(clocked, [ratio, EXTRA], fast="on", **options)[group][ratio]
    row["cpu"]["function"], row["cpu"]["fast"] = clock.last, clocked.clock.last
    print(row, flush=True)
    return row


def remembering(eval_func: Callable[[], float], baseline: float) -> Callable[[], float]:
    """The function, with its first answer known."""
    answers = [baseline]
    return lambda: answers.pop() if answers else eval_func()


class Clock:
    """A function that notes when it ends: from the end of one score to that of the next is what a point costs."""

    def __init__(self, function: Callable[..., float]) -> None:
        self._function = function
        self._ends: list[float] = []

    def __call__(self, *arguments: Any) -> float:
        found = self._function(*arguments)
        self._ends.append(time.process_time())
        return found

    @property
    def calls(self) -> int:
        """How many scores there were."""
        return len(self._ends)

    @property
    def last(self) -> float:
        """Seconds of the last point."""
        return self._ends[-1] - self._ends[-2]


class Clocked(Evaluator):
    """An evaluator with a `Clock` around its score.

    Attributes:
        measure_seconds: Processor seconds of this thread in `measure` so far.
        score_seconds: The same in `score`.
        forward_seconds: Seconds in `forward`, by the clock on the wall.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.name = evaluator.name
        self.higher_is_better = evaluator.higher_is_better
        self._evaluator = evaluator
        self.clock = Clock(evaluator.score)
        self.restart()

    def restart(self) -> None:
        """Forget what was spent so far."""
        self.measure_seconds = self.score_seconds = self.forward_seconds = 0.0

    def batches(self) -> Iterable[Any]:
        return self._evaluator.batches()

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        return self._evaluator.arguments(batch)

    def measure(self, outputs: Any, batch: Any) -> Any:
        start = time.thread_time()
        found = self._evaluator.measure(outputs, batch)
        self.measure_seconds += time.thread_time() - start
        return found

    def score(self, measurements: Sequence[Any]) -> float:
        start = time.thread_time()
        found = self.clock(measurements)
        self.score_seconds += time.thread_time() - start
        if self.clock.calls == 1:  # the baseline, with all that is done once
            self.restart()
        return found

    def around(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The scorer's forward of a chunk, clocked."""

        def clocked(*arguments: Any) -> Any:
            start = time.perf_counter()
            found = forward(*arguments)
            self.forward_seconds += time.perf_counter() - start
            return found

        return clocked


def _breakdown(subject: Subject) -> Figures:
    """Where an evaluation of the live model spends its processor seconds."""
    evaluator, model = subject.evaluator, subject.model
    spent = {"load": 0.0, "forward": 0.0, "measure": 0.0}
    since = time.process_time()

    def note(what: str) -> None:
        nonlocal since
        spent[what] += time.process_time() - since
        since = time.process_time()

    with paddle.no_grad():
        for batch in evaluator.batches():
            note("load")
            outputs = model(*evaluator.arguments(batch))
            note("forward")
            evaluator.measure(outputs, batch)
            note("measure")
    return spent
