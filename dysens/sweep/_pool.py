"""The driver's loop: who measures what, and what becomes of it when a worker is refused, fails, hangs or dies."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any

from dysens.errors import WorkerError
from dysens.sweep._executors import StartWorker, Worker, WorkerFailedError, WorkerLostError

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
"""How often the journal is looked at while other processes have the points that are left."""

ATTEMPTS = 3
"""So many workers may die of one task, or one after the other in one slot without an answer."""

PATIENCE = 3600.0
"""A worker that has not answered for so many seconds hangs, unless answers took long before."""

_TIMES_THE_SLOWEST = 20
_SECONDS_TO_START = 60.0
_SECONDS_TO_TELL = 15.0


@dataclass(eq=False)
class Task:
    """One call of a worker.

    Attributes:
        method: Of the object in the worker.
        arguments: Its arguments.
        where: What it is about, for messages; empty if nothing comes of it.
        losses: How many workers it took with it.
        failed_on: Where it raised something.
    """

    method: str
    arguments: tuple[Any, ...]
    where: str = ""
    losses: int = 0
    failed_on: list[int] = field(default_factory=list)


class Work(ABC):
    """What is to be done, task by task."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether nothing is left, as far as is known."""

    def preparation(self, slot: int) -> Task | None:
        """What a new worker is asked before anything else; nothing comes of the answer."""
        return None

    @abstractmethod
    def task_for(self, slot: int) -> Task | None:
        """What a worker should do now; None if there is nothing for it at the moment."""

    @abstractmethod
    def answered(self, task: Task, answer: Any, slot: int) -> None:
        """A task is done."""

    @abstractmethod
    def give_up(self, task: Task) -> None:
        """A task cannot be done: never hand it out again."""

    @abstractmethod
    def lost(self, slot: int) -> None:
        """Whatever the worker remembered is gone."""

    @abstractmethod
    def refresh(self) -> None:
        """Look what others have done."""


@dataclass
class _Asked:
    worker: Worker
    task: Task | None  # None: its greeting
    since: float


class Pool:
    """Hands work out to workers, one task at a time each, and to others again if a worker is lost.

    Args:
        start: Starts a worker.
        workers: How many.
        check: From a greeting, where the worker is, and why it must not take part, if so. Without it nobody has to greet.
        timeout: Seconds that an answer may take; None for an hour, or longer if the answers so far took long.
        why_waiting: Tells why no worker starts.
    """

    def __init__(
        self,
        start: StartWorker,
        workers: int = 1,
        check: Callable[[Any], tuple[str, str]] | None = None,
        timeout: float | None = None,
        why_waiting: Callable[[], str] = lambda: "",
    ) -> None:
        self._start_worker = start
        self._count = workers
        self._check = check
        self._timeout = timeout
        self._why_waiting = why_waiting
        self._asked: dict[Future[Any], _Asked] = {}
        self._idle: deque[Worker] = deque()
        self._where: dict[Worker, str] = {}
        self._again: deque[Task] = deque()
        self._lost_in_a_row: Counter[int] = Counter()
        self._reasons: list[str] = []
        self._given_up: list[str] = []
        self._tellers: list[threading.Thread] = []
        self._slowest = 0.0
        self._nobody_since = time.monotonic()
        self._warned = False

    def run(self, work: Work) -> None:
        """Do it all.

        Raises:
            WorkerError: Nobody is left who could; or a task failed, or ended one worker after the other. Everything else is
                done then.
        """
        if not self._where:
            for slot in range(1, self._count + 1):
                self._start(work, slot)
        try:
            self._run(work)
        finally:
            for teller in self._tellers:
                teller.join(_SECONDS_TO_TELL)
        if self._given_up:
            raise WorkerError(" ".join([*self._given_up, "Everything else was measured."]))

    def _run(self, work: Work) -> None:
        while not work.done:
            self._hand_out(work)
            if work.done:
                break
            if not self._asked and not self._idle:
                raise WorkerError(self._nobody_left())
            if self._asked:
                done = wait(self._asked, POLL_SECONDS, FIRST_COMPLETED).done
                for future in done:
                    self._settle(work, future, self._asked.pop(future))
            else:
                time.sleep(POLL_SECONDS)
            self._look_for_the_hung(work)
            work.refresh()

    def _start(self, work: Work, slot: int) -> None:
        worker = self._start_worker(slot)
        self._where[worker] = f"worker {slot}"
        if self._check is None:
            self._prepare(work, worker)
        else:
            self._ask(worker, None)

    def _prepare(self, work: Work, worker: Worker) -> None:
        preparation = work.preparation(worker.slot)
        if preparation is not None:
            self._ask(worker, preparation)
        else:
            self._idle.append(worker)

    def _ask(self, worker: Worker, task: Task | None) -> None:
        since = time.monotonic()
        call = worker.call("greet") if task is None else worker.call(task.method, *task.arguments)
        self._asked[call] = _Asked(worker, task, since)

    def _hand_out(self, work: Work) -> None:
        for worker in list(self._idle):
            again = next((task for task in self._again if worker.slot not in task.failed_on), None)
            if again is not None:
                self._again.remove(again)
            task = again or work.task_for(worker.slot)
            if task is not None:
                self._idle.remove(worker)
                self._ask(worker, task)

    def _settle(self, work: Work, call: Future[Any], asked: _Asked) -> None:
        worker, task = asked.worker, asked.task
        try:
            answer = call.result()
        except WorkerLostError as loss:
            self._replace(work, worker, task, str(loss))
        except WorkerFailedError as error:
            self._dismiss(worker, task, error)
        else:
            if task is None:
                self._welcome(work, worker, answer)
                return
            self._slowest = max(self._slowest, time.monotonic() - asked.since)
            self._lost_in_a_row[worker.slot] = 0
            self._idle.append(worker)
            if task.where:
                work.answered(task, answer, worker.slot)

    def _welcome(self, work: Work, worker: Worker, greeting: Any) -> None:
        assert self._check is not None
        where, objection = self._check(greeting)
        if objection:
            self._reasons.append(f"{where} is refused: {objection}")
            logger.error("worker %d: %s", worker.slot, self._reasons[-1])
            worker.end()
            return
        self._where[worker] = f"worker {worker.slot} on {where}"
        logger.info("%s is ready.", self._where[worker])
        self._prepare(work, worker)

    def _replace(self, work: Work, worker: Worker, task: Task | None, how: str) -> None:
        """A worker is gone: what it was at goes elsewhere, and another takes its place."""
        slot, where = worker.slot, self._where[worker]
        worker.end()
        work.lost(slot)
        self._lost_in_a_row[slot] += 1
        replaced = self._lost_in_a_row[slot] < ATTEMPTS
        others = "The others take over, and a new one is started." if replaced else "It is not replaced."
        logger.warning("%s is lost. %s %s", where, how, others)
        # Another machine may take its time to show a log, and nobody has to wait for it.
        told = threading.Thread(target=self._tell, args=(worker, where), daemon=True)
        told.start()
        self._tellers.append(told)
        if not replaced:
            self._reasons.append(f"{where} was lost {ATTEMPTS} times. {how}")
        if task is not None and task.where:
            task.losses += 1
            if task.losses < ATTEMPTS:
                self._again.append(task)
            else:
                work.give_up(task)
                self._given_up.append(
                    f"{task.where} has ended {ATTEMPTS} workers, and is given up; is there memory enough? The last one: {how}"
                )
        if replaced:
            self._start(work, slot)

    @staticmethod
    def _tell(worker: Worker, where: str) -> None:
        words = worker.last_words()
        if words:
            logger.warning("The last that %s printed:\n%s", where, words)

    def _dismiss(self, worker: Worker, task: Task | None, error: WorkerFailedError) -> None:
        """A worker raised something: it may be its machine's fault, or everybody's."""
        where = self._where[worker]
        if task is None and error.host:
            where = f"{where} on {error.host}"
        worker.end()
        said = f"{where} failed: {error}"
        logger.error("%s\n%s", said, error.trace or worker.last_words())
        self._reasons.append(said)
        if task is not None and task.where:
            task.failed_on.append(worker.slot)
            if len(task.failed_on) > 1:
                raise WorkerError(f"{said} (At {task.where}, as elsewhere before.)")
            self._again.append(task)

    def _look_for_the_hung(self, work: Work) -> None:
        limit = self._timeout or max(PATIENCE, _TIMES_THE_SLOWEST * self._slowest)
        now = time.monotonic()
        for call, asked in list(self._asked.items()):
            # Building may have to wait for a machine; and it holds nothing up, as long as others are at work.
            if asked.task is not None and now - asked.since > limit and not call.done():
                del self._asked[call]
                how = f"It has not answered for {limit:.0f} s: it hangs, or needs a longer timeout."
                self._replace(work, asked.worker, asked.task, how)
        if self._idle or any(asked.task is not None for asked in self._asked.values()):
            self._nobody_since = now
            return
        waited = now - self._nobody_since
        if waited > limit:
            raise WorkerError(f"No worker was ready within {limit:.0f} s. {self._why_waiting()}".rstrip())
        if waited > _SECONDS_TO_START and not self._warned:
            self._warned = True
            logger.warning("No worker is ready after %.0f s. %s", waited, self._why_waiting())

    def _nobody_left(self) -> str:
        return "No worker is left, and there is more to measure. " + " ".join(dict.fromkeys(self._reasons))
