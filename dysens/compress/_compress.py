"""From data and a budget to a decision: calibrate, order, allocate, compare, score."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dysens.compress._allocate import BY_BOTH, BY_GRADIENTS, BY_LAYERS, BY_SWEEP, UNIFORM, Allocator
from dysens.compress._by_time import for_latency
from dysens.compress._calibrate import Calibration
from dysens.compress._criterion import Elimination
from dysens.compress._decide import Candidate, Decider
from dysens.compress._elsewhere import SharedOutputError, calibrated, helpers
from dysens.compress._latency_target import Stopwatch
from dysens.compress._layer_times import timed_cost
from dysens.compress._options import CompressOptions
from dysens.compress._outcome import CompressOutcome, Trial
from dysens.compress._output_error import OutputError, last_layers
from dysens.compress._samples import Samples, read_samples
from dysens.compress._sequential import SequentialFolding
from dysens.compress._subject import Judge, Subject
from dysens.costs import Costs, cost_of
from dysens.errors import InputError, ProofError
from dysens.groups import merge_removals
from dysens.model import tensors_by_path
from dysens.progress import progress
from dysens.pruning import TOLERANCE, PruneOutcome, PrunePlan, describe_costs, difference, plan_for
from dysens.ratios import Curve
from dysens.results import curves_of
from dysens.sweep import Pool

logger = logging.getLogger(__name__)

# A cut that is mild enough for every network, to see what its outputs look like.
_MILD = 0.1
# What an error counts in layers that make the outputs. Nothing behind them evens it out, and what outputs vary by is mostly
# background: in a detector, a small error of the heads hits the few places with objects.
_AT_OUTPUTS = 10.0


@dataclass(frozen=True, eq=False)
class Decision:
    """A cut that was measured as a whole, ready to be carried out.

    Attributes:
        ratios: By group name.
        units: What goes, by group name.
        plan: The cut with its folding.
        measured: What `CompressOutcome` tells beyond a `PruneOutcome`.
    """

    ratios: Mapping[str, float]
    units: Mapping[str, np.ndarray]
    plan: PrunePlan
    measured: Mapping[str, Any]

    def outcome(self, pruned: PruneOutcome) -> CompressOutcome:
        """All that is known, once the cut was carried out."""
        return CompressOutcome(**{**vars(pruned), **self.measured})


@dataclass
class _Stages:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def compress(subject: Subject, data: Any, options: CompressOptions) -> Decision:
    """Find the best cut for a budget. The model is left as found.

    Args:
        subject: The network.
        data: See `DygraphSensitivity.compress`.
        options: What is wanted.

    Raises:
        InputError: Data or options cannot be used.
        UnreachableError: The budget is out of reach, or every cut loses too much.
    """
    options.check()
    with ExitStack() as closing:
        return _compressed(subject, data, options, closing)


def _compressed(subject: Subject, data: Any, options: CompressOptions, closing: ExitStack) -> Decision:
    stage = _Stages()
    with stage("read data"):
        samples = read_samples(data, subject.views[0], options.samples)
    judge = None
    if options.evaluator is not None:  # a score that cannot be used is refused before the long part begins
        with stage("score the whole"):
            judge = Judge(subject, options.evaluator)
    steps = len(samples.calibration) + len(subject.groups)
    with progress(steps, "calibrate", options.progress, unit="step") as shown:
        pool = closing.enter_context(helpers(subject, samples.held_back, options.run))
        with stage("compare outputs"):
            error = _output_error(subject, samples, pool)
        with stage("calibrate"):
            calibration = calibrated(subject, samples.calibration, pool, shown.reach, error.watched)
        with stage("order"):
            plain = Elimination(subject.model, subject.roles, calibration)
            weighted = plain.weighted(subject.model) if calibration.answers else plain
            for number, group in enumerate(subject.groups):
                shown.at(group.path)
                plain.order(group)
                weighted.order(group)
                shown.reach(len(samples.calibration) + number + 1)
        with stage("time layers" if options.latency is not None else "count"):
            costs = _costs(subject, weighted, options)
        deciders = _deciders(subject, (plain, weighted), costs, error, samples, options, stage)
    for decider in deciders:
        decider.judge = judge
    decider.notes += _of_short_data(calibration, samples)
    with TemporaryDirectory() as folder:
        stopwatch = _stopwatch(subject, options, Path(folder), decider.notes)
        target = options.flops or options.params
        if options.latency is not None and stopwatch is not None:
            with stage("measure latency"):
                decider, target = for_latency(deciders, options.latency, stopwatch)
        with stage("decide"):
            chosen = decider.decide(target, options.max_loss)
        with stage("check"):
            measured = _checked(subject, decider, chosen, stopwatch)
    return Decision(
        chosen.allocation.ratios, chosen.units, chosen.plan, {**measured, "seconds": dict(stage.seconds)}
    )


def _of_short_data(calibration: Calibration, samples: Samples) -> list[str]:
    if not calibration.short:
        return []
    path, (count, size) = max(calibration.short.items(), key=lambda item: item[1][1] / item[1][0])
    layers = "1 layer reads" if len(calibration.short) == 1 else f"{len(calibration.short)} layers read"
    sentence = (
        f"{layers} fewer vectors from {samples.count} samples than there are channels to fit ('{path}': {count} for {size}). "
        "What is folded there is less exact; more data would help."
    )
    logger.warning("%s", sentence)
    return [sentence]


def _deciders(
    subject: Subject,
    eliminations: tuple[Elimination, Elimination],
    costs: Mapping[str, Costs],
    error: OutputError,
    samples: Samples,
    options: CompressOptions,
    stage: _Stages,
) -> list[Decider]:
    """One for every kind of cost; all tell what they tried in one list."""
    plain, weighted = eliminations
    proposals: dict[str, Mapping[str, Curve]] = {BY_LAYERS: _curves(subject, plain)}
    if weighted is not plain:
        proposals[BY_GRADIENTS] = _curves(subject, weighted)
        proposals[BY_BOTH] = _between(proposals[BY_LAYERS], proposals[BY_GRADIENTS])
    if options.sens is not None:
        proposals[BY_SWEEP] = curves_of(options.sens, {g.name: g.path for g in subject.groups})
    orders = {**dict.fromkeys((*proposals, UNIFORM), weighted), BY_LAYERS: plain}
    with stage("prepare folding in sequence"):
        sequential = SequentialFolding(subject.model, subject.roles, plain.calibration, samples.calibration)
    tried: list[Trial] = []
    notes: list[str] = []
    return [
        Decider(
            subject,
            orders,
            Allocator(of_kind, proposals, kind, options.align),
            error,
            sequential=sequential,
            shown=options.progress,
            by_time=options.latency is not None,
            tried=tried,
            notes=notes,
        )
        for kind, of_kind in costs.items()
    ]


def _curves(subject: Subject, elimination: Elimination) -> dict[str, Curve]:
    """What allocations are made by: the error of every group's consumers; where one of these makes an output, it counts more."""
    outputs = last_layers(subject.roles, subject.groups)
    found: dict[str, Curve] = {}
    for group in subject.groups:
        ends = any(port.side == "in" and port.layer in outputs for port in group.units)
        weight = _AT_OUTPUTS if ends else 1.0
        found[group.name] = {ratio: weight * error for ratio, error in elimination.curve(group).items()}
    return {name: curve for name, curve in found.items() if curve}


def _costs(subject: Subject, elimination: Elimination, options: CompressOptions) -> dict[str, Costs]:
    """By kind of budget, what the network costs at any ratios; where time is the target, by time and by FLOPs."""
    cost = cost_of(subject.model, subject.views[0])
    found = {"params" if options.params is not None else "flops": cost}
    if options.latency is not None:
        with TemporaryDirectory() as folder:
            found["time"] = timed_cost(subject.model, subject.views[0], cost, Path(folder))
    tensors = tensors_by_path(subject.model)
    return {
        kind: describe_costs(each, subject.roles, subject.groups, elimination.units, tensors)
        for kind, each in found.items()
    }


def _output_error(subject: Subject, samples: Samples, pool: Pool | None) -> SharedOutputError:
    """What compares cuts, here or in workers."""
    trial = _mild_cut(subject)
    error = SharedOutputError(subject.model, subject.roles, subject.groups, samples.held_back, trial)
    error.pool = pool
    return error


def _mild_cut(subject: Subject) -> PrunePlan:
    """A few units of every group, whichever."""
    removals = [group.removal(group.weakest(np.arange(group.size), _MILD)) for group in subject.groups]
    return plan_for(subject.roles, merge_removals(removals), subject.model)


def _between(first: Mapping[str, Curve], second: Mapping[str, Curve]) -> dict[str, Curve]:
    """The geometric means of curves. Gradients see small errors only, and so cut some groups too boldly; errors of layers do not
    know how much a layer matters."""
    return {
        name: {ratio: math.sqrt(error * second[name][ratio]) for ratio, error in curve.items()}
        for name, curve in first.items()
        if name in second
    }


def _stopwatch(
    subject: Subject, options: CompressOptions, folder: Path, notes: list[str]
) -> Stopwatch | None:
    """What times exported models. Where time is no target, a network that cannot be exported is only not timed."""
    try:
        return Stopwatch(subject.model, subject.views[0], options.runtime, folder)
    except InputError as error:
        if options.latency is not None:
            raise
        logger.info("no times: %s", error)
        notes.append(str(error))
        return None


def _checked(
    subject: Subject, decider: Decider, chosen: Candidate, stopwatch: Stopwatch | None
) -> dict[str, Any]:
    """What is told of the final cut, measured on the really cut model."""
    proof = difference(subject.model, subject.views, chosen.plan)
    if proof.amount > TOLERANCE:
        raise ProofError(
            f"In the cut and the masked model, {proof.where} differ by {proof.amount:.2g} of the largest value; nothing was cut."
        )
    if not math.isfinite(chosen.trial.output_error):
        sentence = (
            "The model's outputs on the held-out data are all alike, or not a number once it is cut, so cuts could not be "
            "compared by them; give data like those in use."
        )
        logger.warning("%s", sentence)
        decider.notes.append(sentence)
    with subject.cut(chosen.plan):
        error = decider.error.of_live()
        before, after = stopwatch.times() if stopwatch is not None else (None, None)
    tried: list[Trial] = decider.tried
    return {
        "allocation": chosen.allocation.name,
        "reason": decider.reason(chosen),
        "ratios": dict(chosen.allocation.ratios),
        "output_error": error,
        "score_before": decider.judge.baseline if decider.judge is not None else None,
        "score_after": chosen.trial.score,
        "ms_before": before,
        "ms_after": after,
        "proof": proof.amount,
        "tried": tuple(tried),
        "notes": tuple(decider.notes),
    }
