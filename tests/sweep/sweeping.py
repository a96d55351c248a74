"""A sweep that is cheap to start again and counts its evaluations: for tests that break it off."""

from __future__ import annotations

import hashlib
import os
import select
import time
import zlib  # noqa: F401  before Paddle 2.6, which brings its own
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import paddle
from interrupting import kill_at
from paddle import nn

import dysens

SHAPE = [2, 3, 6, 6]
GROUPS = 4
RATIOS = [round(0.05 * step, 2) for step in range(1, 20)]  # 20 channels: each removes other ones


class Convs(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        widths = [3, *[20] * GROUPS]
        self.convs = nn.Sequential(*(nn.Conv2D(i, o, 1) for i, o in zip(widths, widths[1:])))
        self.head = nn.Linear(20, 4)

    def forward(self, x):
        return self.head(self.convs(x).mean(axis=[2, 3]))


def network(seed: int = 0) -> nn.Layer:
    random = np.random.default_rng(seed)
    with paddle.utils.unique_name.guard():
        model = Convs()
    for tensor in model.state_dict().values():
        tensor.set_value(random.normal(0, 0.4, tensor.shape).astype("float32"))
    model.eval()
    return model


class Gate:
    """Where processes wait, until a test has seen them there and opens it: two named pipes in a folder.

    With it a test kills a process where it wants it to be, however fast or slow the machine is.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._arrivals, self._opening = folder / "arrivals", folder / "opening"
        os.mkfifo(self._arrivals)
        os.mkfifo(self._opening)
        # For reading and writing: nobody has to wait for the other end, and there is no end of file between two arrivals.
        self._descriptors = [os.open(self._arrivals, os.O_RDWR)]
        self._unread = b""

    def arrived(self, count: int) -> list[int]:
        """Wait until so many more processes are at the gate; their ids."""
        while self._unread.count(b"\n") < count:
            assert select.select(self._descriptors[:1], [], [], 120)[0], f"too few came: {self._unread!r}"
            self._unread += os.read(self._descriptors[0], 4096)
        *lines, self._unread = self._unread.split(b"\n", count)
        return [int(line) for line in lines]

    def open(self) -> None:
        """Let everybody through, also who comes later."""
        self._descriptors.append(os.open(self._opening, os.O_RDWR))

    def close(self) -> None:
        """Let go of the pipes, once all processes have ended."""
        for descriptor in self._descriptors:
            os.close(descriptor)

    @staticmethod
    def wait(folder: Path) -> None:
        """Report at the gate and wait until it opens: what a process does."""
        with (folder / "arrivals").open("w") as arrivals:
            arrivals.write(f"{os.getpid()}\n")
        (folder / "opening").open().close()  # blocks until someone has it open for writing


class Closeness:
    """How near the outputs are to those at the start. Notes in a file what weights it was asked to score.

    Given the folder of a `Gate`, the first score of weights that have changed waits there: a sweep has claimed its point then.
    """

    def __init__(
        self, model: nn.Layer, counts: Path | None = None, seconds: float = 0.0, gate: Path | None = None
    ) -> None:
        self._model = model
        self._counts = counts
        self._seconds = seconds
        self._gate = gate
        self._whole = digest(model)
        self._x = paddle.to_tensor(np.random.default_rng(1).standard_normal(SHAPE).astype("float32"))
        self._reference = self._outputs()

    def _outputs(self) -> np.ndarray:
        with paddle.no_grad():
            return self._model(self._x).numpy()

    def __call__(self) -> float:
        if self._counts is not None:
            note(self._counts, digest(self._model))
        if self._gate is not None and digest(self._model) != self._whole:
            Gate.wait(self._gate)
            self._gate = None
        score = float(1 / (1 + np.square(self._outputs() - self._reference).mean()))
        time.sleep(self._seconds)
        return score


def note(path: Path, line: str) -> None:
    """Append a line; several processes may do so."""
    descriptor = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def digest(model: nn.Layer) -> str:
    values = [tensor.numpy().tobytes() for tensor in model.state_dict().values()]
    return hashlib.sha256(b"".join(values)).hexdigest()[:12]


def evaluations(counts: Path, model: nn.Layer) -> Counter[str]:
    """How often each masked model was scored; the whole one is left out."""
    found = Counter(counts.read_text().split()) if counts.exists() else Counter()
    found.pop(digest(model), None)
    return found


def made(counts: Path | None = None, seconds: float = 0.0, seed: int = 0, gate: Path | None = None):
    """A model and what scores it: what a worker needs."""
    model = network(seed)
    return model, Closeness(model, counts, seconds, gate)


def other_weights():
    return made(seed=1)


def other_data():
    model, evaluate = made()
    return model, lambda: evaluate() / 2


def halved_once(marker: Path, gate: Path):
    """For the first process that asks, and only for it, other data. The others wait at the gate first."""
    model, evaluate = made()
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        Gate.wait(gate)
        return model, evaluate
    halved = type("Closeness", (Closeness,), {"__call__": lambda self: Closeness.__call__(self) / 2})
    return model, halved(model)


def failing():
    model, evaluate = made()
    calls = []

    def fails_later() -> float:
        calls.append(1)
        if len(calls) > 3:
            raise ValueError("the data set is gone")
        return evaluate()

    return model, fails_later


def only_a_model():
    return network()


def other_network():
    model = nn.Sequential(nn.Conv2D(3, 4, 1))
    return model, Closeness(model)


def sweep(journal: Path, counts: Path, gate: Path | None = None, killed_at: int = 0) -> dysens.Sensitivities:
    """The sweep that is broken off and taken up again; without a compiled copy, which takes longer than all its points.

    Args:
        journal: What it writes and goes on with.
        counts: Where evaluations are noted.
        gate: The folder of a `Gate` at which the first point waits.
        killed_at: As which line of dysens runs the process dies; 0: it lives.
    """
    model, evaluate = made(counts, gate=gate)
    ds = dysens.DygraphSensitivity(model, SHAPE)
    run = partial(ds.sensitive, evaluate, RATIOS, sen_file=journal, progress=False, fast="off")
    if killed_at:
        kill_at(run, killed_at)
    return run()


def results(sens: dysens.Sensitivities) -> list[tuple[str, float, float, float]]:
    """What has to be the same, however often a sweep was broken off."""
    return [(point.path, point.ratio, point.metric, point.loss) for point in sens.points]
