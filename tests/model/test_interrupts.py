"""Ctrl-C waits for clean-ups, and for nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest
from interrupting import interrupts_raise

from dysens.model import run_through
from dysens.model._interrupts import WATCH


def press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _same_handler_afterwards():
    with interrupts_raise():
        yield
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
        assert not WATCH.waiting


def test_an_interrupt_waits_until_the_function_is_through():
    done = []

    def work():
        press()
        done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        run_through(work)
    assert done == ["the rest"]


def test_two_presses_are_one_interrupt():
    with pytest.raises(KeyboardInterrupt):
        run_through(lambda: (press(), press()))


def test_without_an_interrupt_nothing_happens():
    done = []
    run_through(lambda: done.append(1))
    assert done == [1]


def test_an_error_in_the_function_comes_out():
    def fail():
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        run_through(fail)


def test_the_users_own_handler_gets_what_waited():
    seen = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        run_through(lambda: (press(), seen.append("work")))
    finally:
        signal.signal(signal.SIGINT, previous)
    assert seen == ["work", signal.SIGINT]


def test_an_ignored_interrupt_stays_ignored():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run_through(press)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)


def test_outside_a_clean_up_an_interrupt_is_raised_at_once():
    began = WATCH.begin()
    with pytest.raises(KeyboardInterrupt):
        press()
    WATCH.end(began)


def test_only_the_first_of_two_watches_gives_the_handler_back():
    first, second = WATCH.begin(), WATCH.begin()
    assert (first, second) == (True, False)
    WATCH.end(second)
    assert signal.getsignal(signal.SIGINT) != signal.default_int_handler
    WATCH.end(first)


def test_other_threads_just_run():
    done = []
    thread = threading.Thread(target=lambda: run_through(lambda: done.append(1)))
    thread.start()
    thread.join()
    assert done == [1]


TRACED = """
import random, signal
import dysens, paddle
from paddle import nn
from dysens.model import preserved

shape = [paddle.static.InputSpec([1, 3, 8, 8], "float32")]
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was ignored
signal.signal(signal.SIGALRM, lambda *event: signal.raise_signal(signal.SIGINT))
moments = random.Random(0)
interrupted = 0
for _ in range(30):
    model = nn.Sequential(*[nn.Sequential(nn.Conv2D(3, 3, 3, padding=1), nn.ReLU()) for _ in range(10)])
    try:
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.005, 0.1))
        with preserved(model):
            paddle.jit.to_static(model, input_spec=shape, full_graph=True).forward.concrete_program
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
print("interrupted", interrupted)
"""


@pytest.mark.once("paddle3")  # the other does not ask for the stack
def test_an_interrupt_while_paddle_traces_a_program_does_not_end_the_process():
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 0
