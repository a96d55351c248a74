"""Workers as processes of this machine: started anew, never forked, because Paddle's threads do not survive a fork.

Calls go down a worker's standard input, answers come up a pipe that was its standard output; what it prints goes to a file.
A process pool would do as much, but it inherits the terminal, so that nothing could be shown of what a dead worker printed, it
needs a process of its own to clean up, and its workers do not see at once that the driver is gone.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import paddle

from dysens.compiled import available_cores
from dysens.sweep._executors import (
    Executor,
    Factory,
    StartWorker,
    Worker,
    WorkerLostError,
    answer_of,
    made_from,
    pickled,
    settle,
)

_COMMAND = "import sys; from dysens.sweep._processes import serve; serve()"
_SECONDS_TO_END = 5.0
LINES_TO_SHOW = 30


class Processes(Executor):
    """Processes of this machine, each with its share of the CPU threads, or with a GPU."""

    @contextmanager
    def opened(self, factory: Factory, workers: int) -> Iterator[StartWorker]:
        """Write down once what all of them make."""
        settings = environments(workers)
        started: list[_Process] = []
        with TemporaryDirectory(prefix="dysens-") as folder:
            told = Path(folder, "factory.pickle")
            told.write_bytes(pickled(factory))

            def start(slot: int) -> Worker:
                log = Path(folder, f"worker-{len(started) + 1}.log")
                started.append(_Process(slot, told, log, settings[(slot - 1) % len(settings)]))
                return started[-1]

            try:
                yield start
            finally:
                _end_all(started)


def environments(workers: int) -> list[dict[str, str]]:
    """The variables by which each worker gets its share of the machine: some CPU threads, or a GPU."""
    if paddle.get_device().startswith("gpu"):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(
            map(str, range(paddle.device.cuda.device_count()))
        )
        devices = visible.split(",")
        return [{"CUDA_VISIBLE_DEVICES": devices[number % len(devices)]} for number in range(workers)]
    # Not what OMP_NUM_THREADS says here: Paddle itself sets it to 1 when it is imported.
    return [threads(max(1, available_cores() // workers))] * workers


def threads(count: int) -> dict[str, str]:
    """The variables that give a process so many threads, if they are set before Paddle is loaded."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(count))


class _Process(Worker):
    """A process that was started."""

    def __init__(self, slot: int, told: Path, log: Path, settings: dict[str, str]) -> None:
        self.slot = slot
        self._log = log
        paths = [path or os.getcwd() for path in sys.path]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, str(told)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **settings},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        self._asked: deque[Future[Any]] = deque()
        self._gone: WorkerLostError | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Write the call down its standard input."""
        answer: Future[Any] = Future()
        with self._lock:
            if self._gone is not None:
                answer.set_exception(self._gone)
                return answer
            self._asked.append(answer)
        assert self._process.stdin is not None
        # A worker that is gone already is found by the thread that listens to it.
        with suppress(BrokenPipeError, ValueError):
            pickle.dump((method, arguments), self._process.stdin)
            self._process.stdin.flush()
        return answer

    def _listen(self) -> None:
        """Pass answers on until there are no more."""
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            while True:
                try:
                    answer = pickle.load(answers)
                except (EOFError, OSError, pickle.UnpicklingError):
                    break
                settle(self._asked.popleft(), answer)
        code = self._process.wait()
        how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        with self._lock:
            self._gone = WorkerLostError(f"It was {how}.")
        for future in self._asked:
            future.set_exception(self._gone)

    def end(self) -> None:
        """Kill it: all that it holds is a copy."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def ask_to_end(self) -> None:
        """Let it end by itself."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def ended(self, deadline: float) -> bool:
        """Whether it ended by then."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """The end of what it printed."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LINES_TO_SHOW:])


def _end_all(started: list[_Process]) -> None:
    for process in started:
        process.ask_to_end()
    deadline = time.monotonic() + _SECONDS_TO_END
    for process in started:
        if not process.ended(deadline):
            process.end()


def serve() -> None:
    """What a worker runs: build the object that the file in the first argument describes, and answer calls.

    It ends when the driver closes its standard input, also by being killed.
    """
    # Ctrl-C reaches the whole terminal; the driver decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed, by Paddle's C++ too, is no answer
    calls: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, calls), daemon=True).start()
    failed, made = answer_of(lambda: made_from(Path(sys.argv[1]).read_bytes()))
    while True:
        method, arguments = calls.get()
        answer = (True, made) if failed else answer_of(partial(_called, made, method, arguments))
        answers.write(pickle.dumps(answer))
        answers.flush()


def _receive(stream: BinaryIO, calls: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    """Queue what is asked; without a driver, end at once, whatever is being measured."""
    try:
        while True:
            calls.put(pickle.load(stream))
    except Exception:  # the end of the stream, or half a call
        os._exit(1)


def _called(made: Any, method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(made, method)(*arguments)
