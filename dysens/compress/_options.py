"""What is wanted of compressing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dysens.compress._latency_target import check_runtime
from dysens.compress._subject import Scoring
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.results import Sensitivities
from dysens.sweep import RunOptions


@dataclass(frozen=True)
class CompressOptions:
    """What is wanted, and how to get there; see `DygraphSensitivity.compress`."""

    flops: float | None = None
    params: float | None = None
    latency: float | None = None
    max_loss: float | None = None
    evaluator: Scoring | None = None
    samples: int = 64
    align: int | None = 8
    sens: Sensitivities | None = None
    runtime: Any = "paddle"
    progress: bool = True
    run: RunOptions = field(default_factory=RunOptions)

    def check(self) -> None:
        """Raise InputError for what cannot be meant."""
        check_runtime(self.runtime)
        budgets = {"flops": self.flops, "params": self.params, "latency": self.latency}
        given = [name for name, value in budgets.items() if value is not None]
        if len(given) > 1:
            raise InputError(f"Give one budget, not {' and '.join(given)}.")
        if not given and self.max_loss is None:
            raise InputError(
                "Nothing says how much to remove: give flops=0.5 (a share), params=, latency=, or max_loss= with an evaluator."
            )
        if self.max_loss is not None and self.evaluator is None:
            raise InputError("A max_loss is about a score: give an evaluator too, or an Evaluator as data.")
        for name, value in {**budgets, "max_loss": self.max_loss}.items():
            if value is not None and not (_is_number(value) and 0 < value < 1):
                raise InputError(f"The budget {name} is a share, above 0 and under 1, not {value!r}.")
        if self.align is not None and (
            isinstance(self.align, bool) or not isinstance(self.align, int) or self.align < 1
        ):
            raise InputError(
                f"The alignment (align) has to be a whole number from 1 on, or None, not {self.align!r}."
            )
        if (
            self.evaluator is not None
            and not isinstance(self.evaluator, Evaluator)
            and not callable(self.evaluator)
        ):
            raise InputError(
                f"The evaluator has to be an Evaluator or a function, not {self.evaluator!r:.80}."
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
