"""From a subject to `DygraphSensitivity`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dysens.cli.output import Output
from dysens.cli.subject import Subject
from dysens.inputs import view_of
from dysens.recipes.steps import deployed_groups
from dysens.sensitivity import DygraphSensitivity


def sensitivity_of(subject: Subject, criterion: str, skip: Sequence[str], out: Output) -> DygraphSensitivity:
    """Find and prove the groups of a subject.

    Args:
        subject: The model with its inputs.
        criterion: Which filters go first.
        skip: Weights that stay whole.
        out: Is told how long it took.
    """
    start = time.perf_counter()
    ds = DygraphSensitivity(
        subject.model,
        subject.inputs,
        criterion=criterion,
        skip_vars=skip,
        train_inputs=subject.train_inputs,
    )
    seconds = time.perf_counter() - start
    out.say(f"{type(subject.model).__name__}: {len(ds.groups)} groups found and proven in {seconds:.1f} s")
    return ds


def targets_of(subject: Subject, ds: DygraphSensitivity, only: Sequence[str]) -> Sequence[str] | None:
    """The groups to measure: those that were named, or all that cost anything when the model is deployed."""
    if only:
        return only
    return (
        None if subject.train_inputs is None else deployed_groups(ds, subject.model, view_of(subject.inputs))
    )
