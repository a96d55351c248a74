"""Searches against the whole grid on other orders of the data: what each order decides, and where all data say otherwise.

    .venvs/paddle3/bin/python benchmarks/search_orders.py ocr "v4 rec" [--orders 5] [--docs docs/search.md]

Every masked network is run once over all data; searches then see what they would have measured. A network's row is kept in
docs/search_orders.json as soon as it is there, and the table has all that are.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent / "speed")]

from grid import TARGET, largest_of_all, last_before_the_first_beyond, steps_between  # noqa: E402
from page_table import table  # noqa: E402
from ratios import IMAGES  # noqa: E402
from subjects import SUBJECTS  # noqa: E402

from dysens import DygraphSensitivity  # noqa: E402
from dysens.compiled import EvaluatorScorer, PartialEvaluation  # noqa: E402
from dysens.evaluators import Evaluator, Measurements, relative_loss  # noqa: E402
from dysens.sweep import Examiner  # noqa: E402

CONFIDENCE = 0.95
GROUPS = 8  # spread over the network
KEPT = Path(__file__).parents[1] / "docs" / "search_orders.json"
Row = dict[str, Any]


class Ordered(Evaluator):
    """An evaluator whose batches come in another order."""

    def __init__(self, evaluator: Evaluator, order: Sequence[int]) -> None:
        self.name = evaluator.name
        self.higher_is_better = evaluator.higher_is_better
        self.order = order
        self._evaluator = evaluator
        self._batches = list(evaluator.batches())

    def batches(self) -> Iterable[Any]:
        return [self._batches[number] for number in self.order]

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        return self._evaluator.arguments(batch)

    def measure(self, outputs: Any, batch: Any) -> Any:
        return self._evaluator.measure(outputs, batch)

    def score(self, measurements: Sequence[Any]) -> float:
        return self._evaluator.score(measurements)


class Replay:
    """What every masked network gave on every batch; each is run once.

    Attributes:
        known: By masks, then by the batch's number in the first order.
        decisions: Masks, share of the data, and whether the loss was found to be within the target, of each point decided.
    """

    def __init__(self) -> None:
        self.known: dict[Any, dict[int, Any]] = {}
        self.decisions: list[tuple[Any, float, bool]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Scorers take what is known; examiners tell what they decide."""
        measure, examine = EvaluatorScorer.measurements, Examiner.examine
        with (
            patch.object(EvaluatorScorer, "measurements", _method(partial(self._measurements, measure))),
            patch.object(Examiner, "examine", _method(partial(self._examine, examine))),
            # Measuring takes no time here; with networks that run, looking costs next to nothing.
            patch.object(Examiner, "_affordable", lambda examiner, passes: True),
        ):
            yield

    def _measurements(
        self, measure: Any, scorer: EvaluatorScorer, look: PartialEvaluation, then: Any = None
    ) -> Measurements:
        order = scorer.evaluator.order
        key = look.plan.masks if look.plan is not None else ()
        if key not in self.known or scorer._chunks is None:
            found = measure(scorer, PartialEvaluation(look.plan))
            self.known.setdefault(key, {int(order[number]): value for number, value in found.items()})
        seen = dict(look.seen)
        wanted = look.share * scorer.sample_count - 1e-6 if look.share < 1 else math.inf
        for chunk in scorer._chunks or ():
            if sum(scorer.samples[number] for number in seen) < wanted and chunk.members[0] not in seen:
                seen |= {number: self.known[key][int(order[number])] for number in chunk.members}
        return seen

    def _examine(self, examine: Any, examiner: Examiner, look: PartialEvaluation, then: Any = None) -> Any:
        found = examine(examiner, look, then)
        if found.decided and look.plan is not None:
            self.decisions.append((look.plan.masks, found.estimate.share, examiner.within(found.estimate)))
        return found

    def loss(self, evaluator: Evaluator, key: Any, without: int = -1) -> float:
        """The loss on all data, or on all but one batch."""
        whole, masked = (
            evaluator.score(
                [value for number, value in sorted(self.known[each].items()) if number != without]
            )
            for each in ((), key)
        )
        return relative_loss(whole, masked, evaluator.higher_is_better)

    def is_clear(self, evaluator: Evaluator, key: Any) -> bool:
        """Whether the loss on all data is further from the target than its standard error (jackknife)."""
        left = np.array([self.loss(evaluator, key, number) for number in self.known[()]])
        error = math.sqrt((len(left) - 1) * left.var())
        return abs(self.loss(evaluator, key) - TARGET) > error


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments)


def measure(name: str, orders: int) -> Row:
    """One network: the grid, then a search for each order."""
    subject = SUBJECTS[name](IMAGES[name])
    ds = DygraphSensitivity(subject.model, subject.shape)
    every = [group.name for group in ds.groups]
    groups = every[:: math.ceil(len(every) / GROUPS)]
    count = len(list(subject.evaluator.batches()))
    replay, start = Replay(), time.process_time()
    searches = []
    with replay.running():
        first = Ordered(subject.evaluator, range(count))
        sens = ds.sensitive(first, target_vars=groups, progress=False, fast="on")
        losses = {group: {str(ratio): loss for ratio, loss in sens[group].items()} for group in groups}
        for seed in range(1, orders + 1):
            ordered = Ordered(subject.evaluator, np.random.default_rng(seed).permutation(count))
            found = ds.search(
                ordered, TARGET, target_vars=groups, confidence=CONFIDENCE, progress=False, fast="on"
            )
            searches.append(found)
            print(name, seed, f"{found.passes:.1f} passes, {time.process_time() - start:.0f} s", flush=True)
    near = {
        choice.__name__: float(
            np.mean(
                [
                    steps_between(group.ratio, choice(losses[group.name])) <= 1
                    for found in searches
                    for group in found.groups
                ]
            )
        )
        for choice in (last_before_the_first_beyond, largest_of_all)
    }
    early = [(key, within) for key, share, within in replay.decisions if share < 1 - 1e-9]
    clear = {key: replay.is_clear(first, key) for key, _ in early}
    wrong = [key for key, within in early if within != (replay.loss(first, key) <= TARGET)]
    return {
        "network": subject.name,
        "samples": subject.samples,
        "batches": count,
        "groups": len(groups),
        "passes": [found.passes for found in searches],
        "near": near,
        "decisions": len(replay.decisions),
        "early": len(early),
        "wrong": len(wrong),
        "clear": sum(clear[key] for key, _ in early),
        "clear_wrong": sum(clear[key] for key in wrong),
    }


HEADER = ["network", "samples", "orders", "passes (of the grid's)", "near the cautious choice"]
HEADER += ["near PaddleSlim's choice", "decided early", "of these wrong", "clear and early", "of these wrong"]


def rendered(rows: dict[str, Row]) -> str:
    """The table."""
    lines = []
    for row in rows.values():
        passes = row["passes"]
        lines.append(
            [
                row["network"],
                str(row["samples"]),
                str(len(passes)),
                f"{min(passes):.1f} to {max(passes):.1f} ({9 * row['groups']})",
                *(
                    f"{row['near'][choice.__name__]:.0%}"
                    for choice in (last_before_the_first_beyond, largest_of_all)
                ),
                f"{row['early']} of {row['decisions']}",
                str(row["wrong"]),
                str(row["clear"]),
                str(row["clear_wrong"]),
            ]
        )
    return table(HEADER, lines)


def write_document(path: Path, text: str) -> None:
    """Put the table between the marks in a document."""
    begin, end = "<!-- search_orders.py writes this -->", "<!-- to here, orders -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no marks {begin} ... {end}")
    path.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "networks", nargs="*", choices=[*IMAGES, []], help="which; none to write the table again"
    )
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--docs", type=Path, help="the document to write the table into")
    options = parser.parse_args()
    rows: dict[str, Row] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in options.networks:
        rows[name] = measure(name, options.orders)
        KEPT.write_text(json.dumps(rows, indent=1) + "\n")
    print(rendered(rows))
    if options.docs:
        write_document(options.docs, rendered(rows))


if __name__ == "__main__":
    main()
