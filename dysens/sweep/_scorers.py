"""From what a user hands in (a function or an `Evaluator`) to what a sweep calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle

from dysens.compiled import Consumers, EvaluatorScorer, FastForward, FunctionScorer, Scorer
from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.groups import ChannelGroup, Role
from dysens.pruning import plan_for, random_removal
from dysens.sweep._options import RunOptions

# Random shares of all groups at once, to compare a compiled copy with the live model by.
_CHECK_SEEDS = (1, 2, 3)


def scorer_of(
    model: paddle.nn.Layer,
    roles: Mapping[str, Role],
    groups: Sequence[ChannelGroup],
    eval_func: Callable[[], Any] | Evaluator,
    higher_is_better: bool = True,
    optimizer: paddle.optimizer.Optimizer | None = None,
    options: RunOptions | None = None,
    cores: int | None = None,
) -> Scorer:
    """The scorer behind a function or an `Evaluator`; the model and its optimizer are left as found by every score.

    Args:
        model: The live layer.
        roles: Its layers with weights.
        groups: What may be masked.
        eval_func: A function that scores the live model, or an `Evaluator`.
        higher_is_better: False if the function returns an error; an `Evaluator` says it itself.
        optimizer: Left as found too.
        options: How scoring may use the machine.
        cores: How many cores a compiled copy uses; all if not given.
    """
    options = options or RunOptions()
    if not callable(eval_func) and not isinstance(eval_func, Evaluator):
        raise InputError(f"eval_func has to be a function or an Evaluator, not {eval_func!r:.80}.")
    checks = [plan_for(roles, random_removal(groups, seed), model) for seed in _CHECK_SEEDS] if groups else []
    consumers = Consumers(model, roles, groups)
    fast = FastForward(model, consumers, checks, options.fast, cores)
    if isinstance(eval_func, Evaluator):
        return EvaluatorScorer(model, eval_func, consumers, fast, options.cache_gib)
    return FunctionScorer(model, eval_func, higher_is_better, optimizer, fast)
