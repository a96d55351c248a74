"""Kill a process with SIGKILL while it saves over an existing checkpoint: always the old or the new one loads.

    python -m benchmarks.kills --kills 200

Prints how often the old and the new checkpoint were there afterwards; exits with 1 if once neither was.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import paddle
from paddle import nn

import dysens  # before Paddle: see dysens/__init__.py
from dysens.errors import DysensError

SHAPE = [1, 3, 8, 8]


def network(width: int) -> nn.Layer:
    """A plain network whose checkpoint has some megabytes."""
    return nn.Sequential(
        nn.Conv2D(3, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2D(width, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2D(width, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2D(width, 4, 1),
    )


def cut_network(width: int, ratio: float) -> nn.Layer:
    """The same, cut by a ratio, with a bias that tells which one it is."""
    model = network(width)
    ds = dysens.DygraphSensitivity(model, SHAPE)
    ds.prune_vars({group.name: ratio for group in ds.groups})
    with paddle.no_grad():
        model[6].bias.set_value(paddle.full([4], ratio))
    return model


def killed(job: Callable[[], object], after: float) -> None:
    """Run a job in a forked process, and kill that after so many seconds."""
    child = os.fork()
    if child == 0:
        try:
            job()
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def found(path: Path, width: int) -> float | str:
    """The ratio of the checkpoint that loads, or why none does."""
    fresh = network(width)
    try:
        dysens.load_pruned(fresh, path)
    except DysensError as error:
        return str(error)
    ratio = round(float(fresh[6].bias.numpy()[0]), 6)
    left = width - round(width * ratio)
    widths = {layer.weight.shape[0] for layer in (fresh[0], fresh[2], fresh[4])}
    return ratio if widths == {left} else f"weights of {ratio} in widths {widths}"


def kill_while_saving(kills: int, folder: Path, width: int = 256, seed: int = 7) -> Counter[str]:
    """Save two checkpoints in turn over each other, killed at a random moment each time.

    Args:
        kills: How often.
        folder: Where to.
        width: Of the network: the wider, the longer a save takes.
        seed: For the moments.
    """
    path = folder / "net"
    models = {ratio: cut_network(width, ratio) for ratio in (0.25, 0.5)}
    old, new = models
    dysens.save_pruned(models[old], path)
    start = time.perf_counter()
    dysens.save_pruned(models[old], path)
    seconds = time.perf_counter() - start
    moments = random.Random(seed)
    counts: Counter[str] = Counter()
    for _ in range(kills):
        killed(partial(dysens.save_pruned, models[new], path), moments.uniform(0, 2.5 * seconds + 0.02))
        after = found(path, width)
        counts["old" if after == old else "new" if after == new else f"LOST: {after}"] += 1
        if after == new:
            old, new = new, old
        elif after != old:
            dysens.save_pruned(models[old], path)
    return counts


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--width", type=int, default=256, help="channels of the network")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dysens-") as folder:
        counts = kill_while_saving(options.kills, Path(folder), options.width)
        left = sorted(file.name for file in Path(folder).iterdir())
    print(", ".join(f"{what} {number}" for what, number in counts.items()))
    print(f"files left: {', '.join(left)}")
    return 1 if any(what.startswith("LOST") for what in counts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
