"""How often a search errs that stops early: simulated losses, decided as `dysens.sweep` does, against all data.

    .venvs/paddle3/bin/python benchmarks/search_confidence.py [--trials 200] [--docs docs/search.md]

Prints a table, and writes it into a document. An answer is clear if the loss on all data is further from the target than their
own standard error. Fresh: the first point of a search; learnt: one that knows what others lost.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1])]

from dysens.evaluators import relative_loss  # noqa: E402
from dysens.sweep import LOOKS, Comparison  # noqa: E402

CONFIDENCE = 0.95
Random = np.random.Generator
Make = Callable[
    [Random, int], tuple[np.ndarray, np.ndarray]
]  # scores of the whole and the masked model, by sample


@dataclass(frozen=True)
class Case:
    """A kind of losses.

    Attributes:
        name: For the table.
        make: Draws a set of samples.
        samples: How many.
        batch: How many samples a batch has.
        target: The loss in question.
        higher_is_better: False for errors.
    """

    name: str
    make: Make
    samples: int
    batch: int
    target: float
    higher_is_better: bool = True


@dataclass
class Counts:
    """What became of the trials of one case."""

    trials: int = 0
    early: int = 0
    wrong: int = 0
    clear_early: int = 0
    clear_wrong: int = 0
    share: float = 0.0


def accuracy(right: float, lost: float, gained: float = 0.0) -> Make:
    """Answers that are right or wrong, lost and gained one by one."""

    def make(random: Random, count: int) -> tuple[np.ndarray, np.ndarray]:
        whole, turns = random.random(count) < right, random.random(count)
        return whole * 1.0, np.where(whole, turns >= lost, turns < gained) * 1.0

    return make


def rare_errors(share: float, size: float) -> Make:
    """Errors that rise by much in few samples."""

    def make(random: Random, count: int) -> tuple[np.ndarray, np.ndarray]:
        whole = random.exponential(1.0, count)
        return whole, whole + (random.random(count) < share) * size

    return make


def repaired_errors(share: float, size: float) -> Make:
    """Errors that rise a little everywhere; few samples with a large error lose it."""

    def make(random: Random, count: int) -> tuple[np.ndarray, np.ndarray]:
        large = random.random(count) < share
        whole = random.exponential(1.0, count) + large * size
        return whole, np.where(large, 0.0, whole * 1.3)

    return make


def skewed_errors(sigma: float, mean: float) -> Make:
    """Log-normal rises."""

    def make(random: Random, count: int) -> tuple[np.ndarray, np.ndarray]:
        whole, rise = random.lognormal(0, 1, count), random.lognormal(0, sigma, count)
        return whole, whole + rise * mean * whole.mean() / math.exp(sigma**2 / 2)

    return make


def clustered(right: float, size: int, broken: float) -> Make:
    """Samples come in runs (a video, a document), and a cut breaks whole runs."""

    def make(random: Random, count: int) -> tuple[np.ndarray, np.ndarray]:
        whole = random.random(count) < right
        lost = np.repeat(random.random(count // size + 1) < broken, size)[:count]
        return whole * 1.0, (whole & ~lost) * 1.0

    return make


CASES = (
    Case("accuracy 0.9, loss 1.5 x target", accuracy(0.9, 0.03), 1000, 20, 0.02),
    Case("accuracy 0.9, loss 0.6 x target", accuracy(0.9, 0.012), 1000, 20, 0.02),
    Case("accuracy 0.9, no loss", accuracy(0.9, 0.0), 1000, 5, 0.02),
    Case("accuracy 0.7, gains too, loss 1.5 x", accuracy(0.7, 0.08, 0.117), 1000, 10, 0.02),
    Case("accuracy 0.7, gains too, loss 0.5 x", accuracy(0.7, 0.06, 0.117), 1000, 10, 0.02),
    Case("accuracy 0.95, 200 single samples, loss 2 x", accuracy(0.95, 0.1), 200, 1, 0.05),
    Case("accuracy 0.95, 5000 samples, loss 1.3 x", accuracy(0.95, 0.026), 5000, 50, 0.02),
    Case("error, 1 % of 500 samples +10", rare_errors(0.01, 10), 500, 2, 0.05, False),
    Case("error, 1 % of 2000 samples +10", rare_errors(0.01, 10), 2000, 8, 0.05, False),
    Case("error, 0.5 % of 1000 samples +40", rare_errors(0.005, 40), 1000, 4, 0.05, False),
    Case("error, rises by 0.3, 1 % repaired", repaired_errors(0.01, 60), 1000, 8, 0.05, False),
    Case("error, log-normal 1.5, loss 2 x", skewed_errors(1.5, 0.1), 1000, 4, 0.05, False),
    Case("error, log-normal 2, loss 2 x", skewed_errors(2, 0.1), 1000, 4, 0.05, False),
    Case("error, log-normal 2, loss 0.5 x", skewed_errors(2, 0.025), 1000, 4, 0.05, False),
    Case("runs of 20 = batch, 5 % broken", clustered(0.9, 20, 0.05), 1000, 20, 0.02),
    Case("runs of 20, batches of 4, 5 % broken", clustered(0.9, 20, 0.05), 1000, 4, 0.02),
    Case("runs of 50 = batch, 5 % broken", clustered(0.9, 50, 0.05), 2000, 50, 0.02),
    Case("runs of 50 = batch, 15 % broken", clustered(0.9, 50, 0.15), 2000, 50, 0.05),
)


def mean(measurements: Sequence[tuple[float, int]]) -> float:
    """The mean over samples, from sums and counts of batches."""
    total, count = np.sum(measurements, axis=0)
    return float(total / count)


def simulate(case: Case, trials: int, learnt: bool = False, seed: int = 0) -> Counts:
    """Decide many times, each time on data of its own."""
    random = np.random.default_rng(seed)
    counts = Counts(trials)
    memory: list[float] | None = None
    for _ in range(trials):
        whole, masked = case.make(random, case.samples)
        starts = range(0, case.samples, case.batch)
        sums = [
            {
                i: (float(values[s : s + case.batch].sum()), len(values[s : s + case.batch]))
                for i, s in enumerate(starts)
            }
            for values in (whole, masked)
        ]
        comparison = Comparison(mean, sums[0], {i: n for i, (_, n) in sums[0].items()}, case.higher_is_better)
        if learnt and memory is not None:
            comparison._lost_at_once = memory
        memory = comparison._lost_at_once
        _decide(case, comparison, sums[1], whole, masked, random.permutation(len(sums[0])), counts)
    counts.share /= max(counts.early, 1)
    return counts


def _decide(
    case: Case,
    comparison: Comparison,
    measured: dict[int, tuple[float, int]],
    whole: np.ndarray,
    masked: np.ndarray,
    order: np.ndarray,
    counts: Counts,
) -> None:
    loss = relative_loss(float(whole.mean()), float(masked.mean()), case.higher_is_better)
    lost = (whole - masked if case.higher_is_better else masked - whole) / (whole.mean() + 1e-3)
    batches = [lost[start : start + case.batch].mean() for start in range(0, case.samples, case.batch)]
    error = max(lost.std() / math.sqrt(case.samples), np.std(batches, ddof=1) / math.sqrt(len(batches)))
    for look in LOOKS:
        seen = order[: math.ceil(look * len(order) - 1e-9)]
        if look * case.samples < 6 or len(seen) == len(order):
            continue
        estimate = comparison.estimate({int(i): measured[int(i)] for i in seen}, case.target)
        if estimate.decides(case.target, CONFIDENCE):
            bad = (estimate.loss <= case.target) != (loss <= case.target)
            clear = abs(loss - case.target) > error
            counts.early += 1
            counts.wrong += bad
            counts.clear_early += clear
            counts.clear_wrong += bad and clear
            counts.share += estimate.share
            return


HEADINGS = (
    "losses",
    "point",
    "decided early",
    "of these wrong",
    "clear and early",
    "of these wrong",
    "data used",
)


def row(case: Case, trials: int, learnt: bool) -> tuple[str, ...]:
    """One line of the table."""
    counts = simulate(case, trials, learnt)
    pairs = ((counts.wrong, counts.early), (counts.clear_wrong, counts.clear_early))
    wrong = [f"{bad / of:.1%}" if of else "-" for bad, of in pairs]
    share = f"{counts.share:.0%}" if counts.early else "-"
    kind = "learnt" if learnt else "fresh"
    return case.name, kind, str(counts.early), wrong[0], str(counts.clear_early), wrong[1], share


def write_document(path: Path, lines: Sequence[str], trials: int) -> None:
    """Put the table between the marks in a document."""
    begin, end = "<!-- search_confidence.py writes this -->", "<!-- to here -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no marks {begin} ... {end}")
    table = "\n".join(lines)
    text = f"{before}{begin}\n{trials} trials a line, confidence {CONFIDENCE:g}.\n\n{table}\n{end}{after}"
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--docs", type=Path, help="the document to write the table into")
    options = parser.parse_args()
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|---|" + "---:|" * (len(HEADINGS) - 2)]
    print("\n".join(lines))
    for case in CASES:
        for learnt in (False, True):
            lines.append(f"| {' | '.join(row(case, options.trials, learnt))} |")
            print(lines[-1], flush=True)
    if options.docs:
        write_document(options.docs, lines, options.trials)


if __name__ == "__main__":
    main()
