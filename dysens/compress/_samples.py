"""Calibration data: from what a user hands in (arguments, a loader, an `Evaluator`) to calls of the model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from dysens.errors import InputError
from dysens.evaluators import Evaluator
from dysens.model import View, leaves, map_leaves

logger = logging.getLogger(__name__)

Call = tuple[Any, ...]
"""The positional arguments of one forward."""

# One sample in so many is kept from calibration, to compare candidates on.
_HELD_BACK = 4
# And not more than so many numbers of input, five pages or thirty scenes: every candidate is run on them.
_HELD_BACK_NUMBERS = 2**23


@dataclass(frozen=True)
class Samples:
    """Calls of the model, in two parts.

    Attributes:
        calibration: Statistics are taken from these.
        held_back: Candidates are compared on these.
        count: Samples in both parts.
    """

    calibration: tuple[Call, ...]
    held_back: tuple[Call, ...]
    count: int


def read_samples(data: Any, view: View, limit: int, hold_back: bool = True) -> Samples:
    """Take up to ``limit`` samples from the data, and hold a quarter of them back, or fewer where they are large.

    Args:
        data: An iterable of the model's arguments, a loader whose batches begin with them, or an `Evaluator`.
        view: How the model was analysed; the data have to look like it.
        limit: How many samples to take.
        hold_back: False to calibrate on all of them.

    Raises:
        InputError: There are no data, or they do not fit the model.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InputError(f"The number of samples has to be a whole number from 1 on, not {limit!r}.")
    calls: list[Call] = []
    count = 0
    for call in _calls(data, view):
        _check_call(call, view)
        size = size_of(call)
        calls.append(part(call, 0, limit - count) if size > limit - count else call)
        count += min(size, limit - count)
        if count >= limit:
            break
    if not calls:
        raise InputError(
            "The data are empty: compress needs some of the model's inputs, a few dozen images without labels are enough."
        )
    calibration, held_back = _parted(calls, count) if hold_back else (tuple(calls), ())
    return Samples(calibration, held_back, count)


def _calls(data: Any, view: View) -> Iterator[Call]:
    if isinstance(data, Evaluator):
        for batch in data.batches():
            yield _tensors(tuple(data.arguments(batch)))
        return
    takes_dict = len(view.arguments) == 1 and isinstance(view.arguments[0], dict)
    if isinstance(data, (paddle.Tensor, np.ndarray)) or (takes_dict and isinstance(data, dict)):
        data = [data]  # one batch
    if isinstance(data, (str, bytes, dict)) or not isinstance(data, Iterable):
        raise InputError(
            f"Data has to be an iterable of the model's arguments, a loader or an Evaluator, not a {type(data).__name__}."
        )
    for item in data:
        yield _tensors(_arguments(item, view))


def _arguments(item: Any, view: View) -> Call:
    """The arguments at the beginning of an item; behind them, a loader has labels."""
    wanted = len(view.arguments)
    one_list = wanted == 1 and isinstance(view.arguments[0], (list, tuple))
    if isinstance(item, (list, tuple)) and not one_list:
        if len(item) < wanted:
            raise InputError(
                f"An item of the data has {len(item)} entries, and the model's forward takes {wanted} arguments."
            )
        return tuple(item[:wanted])
    if one_list and isinstance(item, tuple) and len(item) == 1:
        return item
    return (item,)


def _tensors(call: Call) -> Call:
    converted = map_leaves(
        lambda leaf: paddle.to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, call
    )
    return tuple(converted)


def _check_call(call: Call, view: View) -> None:
    """Pictures may have other sizes than the example, but not other channels, and no other number of axes."""
    given, known = _shapes(call), _shapes(view.arguments)
    for theirs, ours in zip(view.arguments, call):
        if isinstance(theirs, dict) != isinstance(ours, dict):
            raise InputError(
                f"The data have {_in_words(ours)} where the model was analysed with {_in_words(theirs)}: give batches of the "
                'model\'s own arguments, for example [batch["image"] for batch in loader].'
            )
    for ours, theirs in zip(given, known):
        if len(ours) != len(theirs) or (len(ours) == 4 and ours[1] != theirs[1]):
            raise InputError(
                f"The data have an input of shape {ours}, and the model was analysed with {theirs}: give batches of the model's "
                "own inputs."
            )
    for dtype, wanted in zip(_dtypes(call), _dtypes(view.arguments)):
        if dtype != wanted and "float" in dtype + wanted:
            raise InputError(
                f"The data have an input of type {dtype}, and the model was analysed with {wanted}: convert it, for example by "
                f'.astype("{wanted}").'
            )
    if not all(_is_finite(leaf) for leaf in leaves(call) if isinstance(leaf, paddle.Tensor)):
        raise InputError("The data hold NaN or infinite values; give inputs as the model gets them in use.")
    if not given:
        raise InputError("The data have an item without any tensor; give batches of the model's own inputs.")


def _in_words(argument: Any) -> str:
    if isinstance(argument, dict):
        return f"a dict with the keys {', '.join(map(str, argument))}"
    return f"a {type(argument).__name__}"


def _is_finite(tensor: paddle.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(np.isfinite(tensor.astype("float32").numpy()).all())


def _shapes(tree: Any) -> list[list[int]]:
    return [list(leaf.shape) for leaf in leaves(tree) if isinstance(leaf, paddle.Tensor)]


def _dtypes(tree: Any) -> list[str]:
    names = [str(leaf.dtype) for leaf in leaves(tree) if isinstance(leaf, paddle.Tensor)]
    return [name.rpartition(".")[2].lower() for name in names]


def size_of(call: Call) -> int:
    """How many samples a call has: the first axis, where all its tensors share it."""
    firsts = {shape[0] if shape else 0 for shape in _shapes(call)}
    return max(1, firsts.pop()) if len(firsts) == 1 else 1


def few(calls: Sequence[Call], samples: int) -> list[Call]:
    """The first so many samples of calls."""
    found: list[Call] = []
    count = 0
    for call in calls:
        if count >= samples:
            break
        found.append(part(call, 0, samples - count))
        count += size_of(found[-1])
    return found


def part(call: Call, start: int, stop: int) -> Call:
    """Some of the samples of a call; the whole call where its tensors share no axis of samples."""
    if len({shape[0] if shape else 0 for shape in _shapes(call)}) != 1:
        return call

    def taken(leaf: Any) -> Any:
        return leaf[start:stop] if isinstance(leaf, paddle.Tensor) else leaf

    return tuple(map_leaves(taken, call))


def pieces(call: Call, numbers: int) -> Iterator[Call]:
    """A call in parts of whole samples, with at most so many numbers in their tensors where one sample has not more."""
    size = size_of(call)
    each = sum(int(np.prod(shape)) for shape in _shapes(call)) / size
    step = max(1, int(numbers // max(each, 1)))
    for start in range(0, size, step):
        yield call if step >= size else part(call, start, start + step)


def _parted(calls: Sequence[Call], count: int) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """What to calibrate on, and the last quarter to compare on, in samples: a batch that lies in both is divided."""
    if count < 2:
        logger.warning(
            "There is only %d sample: candidates are compared on what they were calibrated with; give more data.",
            count,
        )
        return tuple(calls), tuple(calls)
    numbers = sum(int(np.prod(shape)) for shape in _shapes(calls[-1])) // size_of(calls[-1])
    wanted = max(1, min(count // _HELD_BACK, _HELD_BACK_NUMBERS // max(numbers, 1)))
    calibration, held_back = list(calls), []
    while wanted:
        call = calibration.pop()
        size = size_of(call)
        if size > wanted:
            calibration.append(part(call, 0, size - wanted))
            call = part(call, size - wanted, size)
        held_back.append(call)
        wanted -= min(size, wanted)
    return tuple(calibration), tuple(reversed(held_back))
