"""What a sweep calls to score the live model, made from what a user hands in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import paddle

from dysens.errors import InputError
from dysens.sweep.evaluators import Evaluator, evaluate
from dysens.sweep.runner import scored_apart


@dataclass(frozen=True)
class Scorer:
    """Scores the live model.

    Attributes:
        name: Goes into the journal's header.
        higher_is_better: False if the score is an error.
        score: Gives what the evaluation returned.
    """

    name: str
    higher_is_better: bool
    score: Callable[[], object]


def scorer_of(
    model: paddle.nn.Layer,
    eval_func: Callable[[], Any] | Evaluator,
    higher_is_better: bool = True,
    optimizer: paddle.optimizer.Optimizer | None = None,
) -> Scorer:
    """The scorer behind a function or an `Evaluator`; the model and its optimizer are left as found by every score."""
    run: Callable[[], object]
    if isinstance(eval_func, Evaluator):
        name, higher_is_better = eval_func.name, eval_func.higher_is_better
        run = partial(evaluate, model, eval_func)
    elif callable(eval_func):
        name, run = getattr(eval_func, "__name__", type(eval_func).__name__), eval_func
    else:
        raise InputError(f"eval_func has to be a function or an Evaluator, not {eval_func!r:.80}.")
    return Scorer(name, higher_is_better, lambda: scored_apart(model, optimizer, run))
