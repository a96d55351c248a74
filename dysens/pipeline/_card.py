"""The card of a model as the steps know it: each of them writes one, or adds its state to the one before."""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import paddle

import dysens
from dysens.adapters import Exported, Reading, Task
from dysens.errors import InputError
from dysens.pipeline._compress import Compressed
from dysens.pipeline._produce import Cut, Scored
from dysens.pipeline._states import EXPORTED, ORIGINAL, PRUNED, Row
from dysens.pipeline._subject import Subject
from dysens.pruning import PruneOutcome
from dysens.report import CARD_JSON, Card, CardSample, CardState, read_card, sample

logger = logging.getLogger(__name__)

MASKED_AND_CUT, LIVE_AND_EXPORTED = "masked_and_cut", "live_and_exported"  # the card has words for these


def card_of_compressed(
    subject: Subject,
    compressed: Compressed,
    name: str = "",
    command: str = "",
    runtime: str = "paddle",
    running: bool = False,
) -> Card:
    """The card of a compressed model.

    Args:
        subject: The network.
        compressed: What is known of it so far.
        name: What to call it.
        command: What was typed.
        runtime: What took the times.
        running: Whether more is to come.
    """
    outcome = compressed.outcome
    return Card(
        states=tuple(_state(row) for row in compressed.rows),
        metric=compressed.indicator if compressed.scored_on is not None else None,
        higher_is_better=subject.higher_is_better,
        evaluated_on=compressed.scored_on or "",
        calibrated_on=compressed.data,
        criterion=f"elimination with folding, allocated {outcome.allocation}",
        timed_on=timed_on(runtime),
        output_error=outcome.output_error,
        proofs=_proofs(outcome.proof, compressed.exported),
        widths=_widths(subject, outcome),
        samples=_samples(compressed.before, compressed.after),
        notes=(outcome.reason, *outcome.notes),
        running=running,
        **_origin(subject.task, name, [command]),
    )


def card_of_cut(subject: Subject, cut: Cut, name: str = "", command: str = "") -> Card:
    """The card of a pruned model; nothing was timed."""
    outcome = cut.outcome
    before, after = (each.score for each in cut.scores) if cut.scores else (None, None)
    return Card(
        states=(
            CardState(ORIGINAL, before, flops=outcome.flops_before, params=outcome.params_before),
            CardState(PRUNED, after, flops=outcome.flops_after, params=outcome.params_after),
        ),
        metric=subject.indicator if cut.scores else None,
        higher_is_better=not cut.scores or subject.higher_is_better,
        evaluated_on=getattr(subject.evaluator, "name", subject.indicator) if cut.scores else "",
        criterion=subject.criterion,
        proofs=_proofs(cut.difference),
        widths=_widths(subject, outcome),
        notes=(outcome.untried,) if outcome.untried else (),
        **_origin(subject.task, name, [command]),
    )


def card_with_score(
    before: Card | None, task: Task, scored: Scored, evaluated_on: str, name: str = "", command: str = ""
) -> Card:
    """A card with one more state that was scored, such as a trained one.

    Args:
        before: The card of the model that it was made from, if there is one.
        task: The network.
        scored: The state.
        evaluated_on: What the score is of.
        name: What to call it.
        command: What was typed.
    """
    state = CardState(scored.state, scored.score, None, scored.flops, scored.params)
    card = before if before is not None else Card(states=(), **_origin(task, name, []))
    metric = {"metric": scored.indicator, "evaluated_on": evaluated_on}
    return _with_state(card, task, state, command, **metric)


def card_with_export(
    before: Card | None, task: Task, exported: Exported, name: str = "", command: str = ""
) -> Card:
    """A card with the exported model as one more state, see `card_with_score`."""
    card = before if before is not None else Card(states=(), **_origin(task, name, []))
    last = card.states[-1] if card.states else CardState(EXPORTED)
    state = replace(last, state=EXPORTED, score=None, spread=None, bytes=exported.bytes, milliseconds=None)
    return _with_state(
        card, task, state, command, proofs={**card.proofs, LIVE_AND_EXPORTED: exported.difference}
    )


def card_beside(weights: str | Path | None) -> Card | None:
    """The card in the folder of a checkpoint; None if there is none. One that cannot be read is left out, with a warning."""
    place = Path(weights).parent / CARD_JSON if weights else None
    if place is None or not place.is_file():
        return None
    try:
        return read_card(place)
    except InputError as error:
        logger.warning("A new card is started. %s", error)
        return None


def timed_on(runtime: str) -> str:
    """What took the times: the processor, and the program on it."""
    return f"{_processor()}, {runtime}, one thread, median of calls in turns"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def _with_state(card: Card, task: Task, state: CardState, command: str, **changes: Any) -> Card:
    # Of one network that was trained twice, the last training counts.
    states = (*(each for each in card.states if each.state != state.state), state)
    origin = _origin(task, card.model, [*card.commands, command])
    return replace(card, states=states, running=False, **{**origin, **changes})


def _origin(task: Task, name: str, commands: Sequence[str]) -> dict[str, Any]:
    return {
        "model": name or type(task.model).__name__,
        "framework": task.framework,
        "versions": {
            "dysens": dysens.__version__,
            "Paddle": paddle.__version__,
            "Python": platform.python_version(),
        },
        "seed": task.seed,
        "date": datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        "commands": tuple(command for command in commands if command),
    }


def _widths(subject: Subject, outcome: PruneOutcome) -> tuple[tuple[str, int, int], ...]:
    """Of all groups in the order of the network, also of those that stayed whole."""
    left = {name: after for name, _, _, after in outcome.widths}
    return tuple(
        (group.path, group.channels, left.get(group.name, group.channels)) for group in subject.ds.groups
    )


def _state(row: Row) -> CardState:
    return CardState(row.state, row.score, row.spread, row.flops, row.params, row.bytes, row.milliseconds)


def _proofs(difference: float, exported: Exported | None = None) -> dict[str, float]:
    found = {MASKED_AND_CUT: difference}
    return found if exported is None else {**found, LIVE_AND_EXPORTED: exported.difference}


def _samples(before: Sequence[Reading], after: Sequence[Reading]) -> tuple[CardSample, ...]:
    return tuple(sample(ours.image, ours, theirs) for ours, theirs in zip(before, after))
