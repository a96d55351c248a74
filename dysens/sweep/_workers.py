"""A sweep shared by several processes on this machine, each with a model of its own.

The workers need no word from each other: they claim points in the journal (see `dysens.sweep`). The parent watches
the journal for the progress bar, and the workers for failures. Workers are started anew, never forked: Paddle's threads do
not survive a fork.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import paddle

from dysens.compiled import available_cores
from dysens.criteria import GroupCriterion
from dysens.errors import InputError, WorkerError
from dysens.model import run_through
from dysens.progress import progress
from dysens.results import Header, Journal, Owner, Point
from dysens.sweep._options import Build, RunOptions
from dysens.sweep._sweep import POLL_SECONDS, SharedPoints, Sweep, coarse_first
from dysens.sweep._worker import Job

logger = logging.getLogger(__name__)

_COMMAND = "import sys; from dysens.sweep._worker import main; sys.exit(main())"
_SECONDS_TO_END = 5.0
_LINES_TO_SHOW = 30


def run_in_workers(
    sweep: Sweep,
    header: Header,
    journal: Journal | None,
    options: RunOptions,
    show_progress: bool,
    compensating: GroupCriterion | None = None,
) -> list[Point]:
    """Measure every point that the journal lacks, in several processes.

    Args:
        sweep: What is measured; its own model is not touched.
        header: What the journal was, or would be, opened with.
        journal: Where the workers meet; a temporary one if not given.
        options: How many processes, what makes the model and its evaluator in each of them, and how each may use the
            machine; the threads are shared out. The observer gets every point when it is seen in the journal.
        show_progress: Whether to show a bar for all of them.
        compensating: The criterion, if it compensates for what goes: the workers have to do so too.

    Raises:
        WorkerError: A worker failed; the message is the worker's. The others are stopped, and what was measured is kept.
    """
    with TemporaryDirectory(prefix="dysens-") as folder:
        journal = journal or Journal.open(Path(folder, "sweep.jsonl"), header)
        points = SharedPoints(sweep.groups, coarse_first(sweep.ratios), journal, options.observer)
        if not points.missing:
            return points.found
        job = Job(
            sweep.groups,
            {(group.path, ratio): sweep.choose(group, ratio) for group, ratio in points.missing},
            sweep.ratios,
            replace(header, baseline=sweep.baseline),
            journal.path.absolute(),
            Owner.current(),
            replace(options, build=checked_build(options.build), observer=None),
            _checked_criterion(compensating) if compensating is not None else None,
        )
        workers: list[_Worker] = []
        try:
            for number, settings in enumerate(environments(options.workers), start=1):
                workers.append(_Worker(number, job, settings, Path(folder)))
            _watch(workers, points, show_progress)
        finally:
            run_through(lambda: _stop(workers))
        return points.found


def checked_build(build: Build | None) -> Build:
    """What workers can call; said before they are started."""
    if isinstance(build, str):
        module, colon, function = build.partition(":")
        if not (module and colon and function):
            raise InputError(f'build has to be "package.module:function", not "{build}".')
        return build
    if not callable(build):
        raise InputError(
            f'build has to be "package.module:function" or a function without arguments, not {build!r:.80}.'
        )
    why_not = _why_not_picklable(build)
    if why_not is not None:
        raise InputError(
            f'build {why_not}. Put it into a module of its own and give build="module:function".'
        )
    return build


def _checked_criterion(criterion: GroupCriterion) -> GroupCriterion:
    why_not = _why_not_picklable(criterion)
    if why_not is not None:
        raise InputError(
            f"Workers have to compensate as the criterion {criterion.name} does, and it {why_not}. Sweep with it in one process."
        )
    return criterion


def _why_not_picklable(handed: object) -> str | None:
    try:
        pickled = pickle.dumps(handed)
    except Exception as error:  # whatever it holds may refuse in its own way
        return f"cannot be handed to another process: {error}"
    if b"__main__" in pickled:
        return "is defined in the script that is running, which workers do not run"
    return None


def environments(workers: int) -> list[dict[str, str]]:
    """The variables by which each worker gets its share of the machine: some CPU threads, or a GPU."""
    if paddle.get_device().startswith("gpu"):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(
            map(str, range(paddle.device.cuda.device_count()))
        )
        devices = visible.split(",")
        return [{"CUDA_VISIBLE_DEVICES": devices[number % len(devices)]} for number in range(workers)]
    # Not what OMP_NUM_THREADS says here: Paddle itself sets it to 1 when it is imported.
    threads = str(max(1, available_cores() // workers))
    return [dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)] * workers


class _Worker:
    """A process that was started, and what it left behind."""

    def __init__(self, number: int, job: Job, settings: dict[str, str], folder: Path) -> None:
        self.number = number
        self._report = folder / f"worker-{number}.failed"
        self._output = folder / f"worker-{number}.log"
        paths = [path or os.getcwd() for path in sys.path]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, str(self._report)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **settings},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        assert self.process.stdin is not None
        # A worker that is gone before it has read its job is found by whoever watches it.
        with suppress(BrokenPipeError), self.process.stdin as stdin:
            pickle.dump(job, stdin)

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    @property
    def was_killed(self) -> bool:
        """Whether it ended without having a chance to say why."""
        code = self.process.poll()
        return code is not None and code != 0 and not self._report.exists()

    def failure(self) -> str | None:
        """What it raised, if it did."""
        if self.lives or not self._report.exists():
            return None
        return self._report.read_text(encoding="utf-8")

    def last_words(self) -> str:
        """The end of what it printed."""
        lines = self._output.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LINES_TO_SHOW:])


def _watch(workers: Sequence[_Worker], points: SharedPoints, show_progress: bool) -> None:
    """Wait until all points are there; one bar for all."""
    reported: set[int] = set()
    with progress(len(points), "sweep", show_progress, len(points.found)) as display:
        while points.missing:
            for worker in workers:
                _raise_failure(worker)
                if worker.was_killed and worker.number not in reported:
                    reported.add(worker.number)
                    logger.warning("worker %d was %s; the others take over.", worker.number, _how(worker))
            if not any(worker.lives for worker in workers) and not points.refresh():
                raise WorkerError(_all_gone(workers[-1]))
            time.sleep(POLL_SECONDS)
            for point in points.refresh():
                display.at(f"{point.path} at {point.ratio:g}")
                display.last(point.loss)
            display.reach(len(points.found))


def _raise_failure(worker: _Worker) -> None:
    failure = worker.failure()
    if failure is not None:
        logger.error("worker %d failed:\n%s", worker.number, worker.last_words())
        raise WorkerError(f"worker {worker.number} failed: {failure}")


def _how(worker: _Worker) -> str:
    code = worker.process.returncode
    return f"killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _all_gone(worker: _Worker) -> str:
    return (
        f"no worker is left, and the sweep is not done; the last one was {_how(worker)}. What was measured is in the "
        f"journal. The last that it printed:\n{worker.last_words()}"
    )


def _stop(workers: Sequence[_Worker]) -> None:
    """No process outlives the sweep."""
    for worker in workers:
        if worker.lives:
            worker.process.terminate()
    deadline = time.monotonic() + _SECONDS_TO_END
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
