"""From what a user typed to `DygraphSensitivity`, and to what a sweep or a search of it is told."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dysens.cli.naming import ModelName
from dysens.cli.options import model_name
from dysens.cli.output import Output
from dysens.cli.subject import Scoring, Subject, measurable
from dysens.inputs import view_of
from dysens.recipes.steps import deployed_groups
from dysens.sensitivity import DygraphSensitivity


def sensitivity_of(subject: Subject, options: Namespace, out: Output) -> DygraphSensitivity:
    """Find and prove the groups of a subject.

    Args:
        subject: The model with its inputs.
        options: With those of `add_choice_of_filters`.
        out: Is told how long it took.
    """
    start = time.perf_counter()
    ds = DygraphSensitivity(
        subject.model,
        subject.inputs,
        criterion=options.criterion,
        skip_vars=options.skip_vars,
        train_inputs=subject.train_inputs,
    )
    seconds = time.perf_counter() - start
    out.say(f"{type(subject.model).__name__}: {len(ds.groups)} groups found and proven in {seconds:.1f} s")
    return ds


@dataclass(frozen=True)
class Measurement:
    """What a sweep and a search begin with.

    Attributes:
        name: What was typed.
        ds: Knows the groups.
        scoring: Scores the model.
        arguments: What both methods of ``ds`` take.
    """

    name: ModelName
    ds: DygraphSensitivity
    scoring: Scoring
    arguments: dict[str, Any]


def measurement(options: Namespace, out: Output) -> Measurement:
    """Build what the options name.

    Args:
        options: With those of `add_measuring`.
        out: Is told what is going on.
    """
    name = model_name(options)
    subject, scoring = measurable(name)
    ds = sensitivity_of(subject, options, out)
    arguments = {
        "ratios": options.ratios,
        "sen_file": options.sen_file,
        "target_vars": _targets(subject, ds, options.only),
        "progress": not out.quiet,
        "higher_is_better": not options.lower_is_better,
        "force": options.force,
        "fast": options.fast,
    }
    return Measurement(name, ds, scoring, arguments)


def _targets(subject: Subject, ds: DygraphSensitivity, only: Sequence[str]) -> Sequence[str] | None:
    """The groups to measure: those that were named, or all that cost anything when the model is deployed."""
    if only:
        return only
    return (
        None if subject.train_inputs is None else deployed_groups(ds, subject.model, view_of(subject.inputs))
    )
