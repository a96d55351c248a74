"""The states that a network goes through, in one table: score, FLOPs, parameters, file size, milliseconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dysens.adapters import Exported, Task
from dysens.costs import Predictor, cost_of, median_seconds
from dysens.errors import in_a_sentence
from dysens.model import view_of

logger = logging.getLogger(__name__)

ORIGINAL, PRUNED, TRAINED, EXPORTED = "original", "pruned", "trained", "exported"
UNKNOWN, NOT_SCORED = "unknown", "not scored"
HEADINGS = ("FLOPs", "parameters", "file, KiB", "ms")


@dataclass(frozen=True)
class Row:
    """One state of the network; None for what is not known.

    Attributes:
        state: What was done to it.
        score: What it is worth.
        flops: Of one forward.
        params: How many parameters it has.
        bytes: Of the exported model.
        milliseconds: Of one call of the exported model.
        spread: The standard error of the score over the data.
    """

    state: str
    score: float | None
    flops: int
    params: int
    bytes: int | None = None
    milliseconds: float | None = None
    spread: float | None = None


def states_table(rows: Iterable[Row], indicator: str) -> str:
    """The rows in print.

    Args:
        rows: In their order.
        indicator: What the score is called.
    """
    shown = list(rows)
    lines = [["", indicator, *HEADINGS], *(_cells(row) for row in shown)]
    if all(row.score is None for row in shown):  # there is nothing that scores it
        lines = [[first, *rest] for first, _, *rest in lines]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> list[str]:
    return [
        row.state,
        _score(row),
        f"{row.flops:,}",
        f"{row.params:,}",
        UNKNOWN if row.bytes is None else f"{row.bytes / 1024:,.0f}",
        UNKNOWN if row.milliseconds is None else f"{row.milliseconds:.2f}",
    ]


def _score(row: Row) -> str:
    if row.score is None:
        return NOT_SCORED
    return f"{row.score:.4f}" if row.spread is None else f"{row.score:.4f} ± {row.spread:.4f}"


class States:
    """Writes down every state of a task's network: counted, exported, and at the end timed in turns.

    Args:
        task: The network.
        folder: Where exported models go, each in a folder that is called as its state.

    Attributes:
        task: The network.
        rows: So far.
        exported: Of the states that could be exported.
    """

    def __init__(self, task: Task, folder: Path) -> None:
        self.rows: list[Row] = []
        self.exported: dict[str, Exported] = {}
        self.task = task
        self._folder = folder

    def add(
        self,
        state: str,
        score: float | None,
        spread: float | None = None,
        exported: Exported | None = None,
    ) -> Row:
        """Write down what the network is now.

        Args:
            state: What to call it.
            score: What it is worth.
            spread: The standard error of that.
            exported: Where it was exported to already; it is exported into the folder if not given.
        """
        cost = cost_of(self.task.model, view_of(self.task.example_inputs))
        found = exported if exported is not None else self._export(state)
        if found is not None:
            self.exported[state] = found
        size = None if found is None else found.bytes
        self.rows.append(Row(state, score, cost.flops, cost.params, size, None, spread))
        return self.rows[-1]

    def _export(self, state: str) -> Exported | None:
        """Export only to know size and time: a network that cannot be exported is just not timed, which is said."""
        try:
            return self.task.export(self._folder / state)
        except Exception as error:
            logger.warning(
                "The %s network cannot be exported, so its file size and time are not known: %s",
                state,
                in_a_sentence(error),
            )
            return None

    def time(self, rounds: int) -> Sequence[Row]:
        """Time all exported states in turns by Paddle's predictor, one thread; the rows with their times."""
        if not self.exported:
            return self.rows
        predictors = {state: Predictor(found.prefix) for state, found in self.exported.items()}
        seconds = median_seconds(predictors, self.task.timing_inputs(), rounds, time.process_time)
        return self.set_times({state: 1e3 * value for state, value in seconds.items()})

    def set_times(self, milliseconds: Mapping[str, float | None]) -> Sequence[Row]:
        """Write down times that somebody else took, by state."""
        self.rows = [replace(row, milliseconds=milliseconds.get(row.state)) for row in self.rows]
        return self.rows
