"""The driver's loop, with workers that are lost, fail, hang or disagree as a script says. They are objects in this process."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from dysens.errors import WorkerError
from dysens.sweep import Executor, Worker, WorkerFailedError, WorkerLostError
from dysens.sweep._pool import ATTEMPTS, Pool, Task, Work

LOST, FAILS, HANGS = "lost", "fails", "hangs"


class Scripted(Worker):
    """Doubles numbers, but for what its script says of it."""

    def __init__(self, slot, trouble, greeting):
        self.slot = slot
        self.ended = False
        self._trouble = trouble
        self._greeting = greeting

    def call(self, method, *arguments):
        answer = Future()
        what = self._trouble(self.slot, *arguments) if method == "double" else self._greeting(self.slot)
        if what == LOST:
            answer.set_exception(WorkerLostError("It was killed by signal 9."))
        elif what == FAILS:
            answer.set_exception(WorkerFailedError("OSError: stale file handle", host="node-c"))
        elif what != HANGS:
            answer.set_result(2 * arguments[0] if method == "double" else what)
        return answer

    def end(self):
        self.ended = True

    def last_words(self):
        return "so dark"


class Script(Executor):
    """Starts workers that behave as told, and remembers them.

    Args:
        trouble: From a slot and a number to what happens.
        greeting: From a slot to what it says first.
    """

    def __init__(self, trouble=lambda slot, number: None, greeting=lambda slot: "agrees"):
        self.trouble, self.greeting = trouble, greeting
        self.started = []

    @contextmanager
    def opened(self, factory, workers):
        def start(slot):
            self.started.append(Scripted(slot, self.trouble, self.greeting))
            return self.started[-1]

        yield start

    def why_waiting(self):
        return "All machines are asleep."


class Doubles(Work):
    """Numbers to double."""

    def __init__(self, numbers):
        self.left = deque(numbers)
        self.under_way = {}
        self.found = {}
        self.by = {}
        self.dropped = []
        self.lost_slots = []

    @property
    def done(self):
        return not self.left and not self.under_way

    def task_for(self, slot):
        if not self.left:
            return None
        number = self.left.popleft()
        task = Task("double", (number,), f"number {number}")
        self.under_way[task] = number
        return task

    def answered(self, task, answer, slot):
        number = self.under_way.pop(task)
        assert number not in self.found
        self.found[number], self.by[number] = answer, slot

    def give_up(self, task):
        self.dropped.append(self.under_way.pop(task))

    def lost(self, slot):
        self.lost_slots.append(slot)

    def refresh(self):
        pass


def check(greeting):
    return "node-b", "" if greeting == "agrees" else f"it says {greeting}."


def run(script, numbers=range(6), workers=2, timeout=None):
    work = Doubles(numbers)
    with script.opened(None, workers) as start:
        try:
            Pool(start, workers, check, timeout, script.why_waiting).run(work)
        except WorkerError as error:
            return work, str(error)
    return work, ""


def test_every_number_once():
    work, error = run(Script())
    assert (work.found, error) == ({number: 2 * number for number in range(6)}, "")
    assert set(work.by.values()) == {1, 2}


def test_a_lost_worker_is_replaced_and_its_task_goes_on(caplog):
    times = iter([LOST])
    script = Script(lambda slot, number: next(times, None) if number == 3 else None)
    work, error = run(script)
    assert (len(work.found), error) == (6, "")
    assert len(script.started) == 3
    (lost,) = work.lost_slots
    assert [worker.slot for worker in script.started].count(lost) == 2
    assert f"worker {lost} on node-b is lost. It was killed by signal 9. The others take over" in caplog.text
    assert "so dark" in caplog.text


def test_a_task_that_ends_three_workers_is_given_up_and_the_rest_is_done():
    script = Script(lambda slot, number: LOST if number == 3 else None)
    work, error = run(script)
    assert work.dropped == [3]
    assert sorted(work.found) == [0, 1, 2, 4, 5]
    assert f"number 3 has ended {ATTEMPTS} workers, and is given up" in error
    assert "killed by signal 9" in error
    assert len(script.started) == 2 + ATTEMPTS


def test_workers_that_die_one_after_the_other_are_not_replaced_for_ever(caplog):
    script = Script(greeting=lambda slot: LOST)
    work, error = run(script)
    assert len(script.started) == 2 * ATTEMPTS
    assert "No worker is left" in error
    assert "was lost 3 times. It was killed by signal 9." in error
    assert "worker 1 printed:\nso dark" in caplog.text
    assert not work.found


def test_one_that_disagrees_is_refused_and_the_others_go_on(caplog):
    script = Script(greeting=lambda slot: "Paddle is 2.4" if slot == 1 else "agrees")
    work, error = run(script)
    assert (len(work.found), error) == (6, "")
    assert set(work.by.values()) == {2}
    assert "worker 1: node-b is refused: it says Paddle is 2.4." in caplog.text
    assert script.started[0].ended
    assert len(script.started) == 2


def test_all_disagree():
    work, error = run(Script(greeting=lambda slot: "Paddle is 2.4"))
    assert not work.found
    assert error.startswith("No worker is left")
    assert "node-b is refused: it says Paddle is 2.4." in error


def test_one_that_fails_is_dismissed_and_its_task_tried_elsewhere(caplog):
    script = Script(lambda slot, number: FAILS if slot == 1 else None)
    work, error = run(script)
    assert (len(work.found), error) == (6, "")
    assert set(work.by.values()) == {2}
    assert "worker 1 on node-b failed: OSError: stale file handle" in caplog.text


def test_what_fails_twice_is_raised():
    work, error = run(Script(lambda slot, number: FAILS if number == 3 else None), workers=3)
    assert "failed: OSError: stale file handle (At number 3, as elsewhere before.)" in error
    assert 3 not in work.found


def test_what_cannot_be_built_is_told_with_its_machine():
    _, error = run(Script(greeting=lambda slot: FAILS), workers=1)
    assert "worker 1 on node-c failed: OSError: stale file handle" in error


def test_one_that_hangs_is_replaced():
    times = iter([HANGS])
    script = Script(lambda slot, number: next(times, None) if number == 3 else None)
    work, error = run(script, timeout=0.01)
    assert (len(work.found), error) == (6, "")
    assert script.started[work.lost_slots[0] - 1].ended


def test_nobody_comes():
    _, error = run(Script(greeting=lambda slot: HANGS), timeout=0.01)
    assert error == "No worker was ready within 0 s. All machines are asleep."


def test_one_that_never_gets_ready_holds_nobody_up():
    work, error = run(Script(greeting=lambda slot: HANGS if slot == 1 else "agrees"))
    assert (len(work.found), error) == (6, "")


def test_a_mistake_of_the_driver_is_not_the_workers():
    class Broken(Doubles):
        def answered(self, task, answer, slot):
            raise KeyError("of the driver")

    with Script().opened(None, 2) as start, pytest.raises(KeyError, match="of the driver"):
        Pool(start, 2, check).run(Broken(range(3)))
