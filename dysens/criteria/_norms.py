"""How important each filter is: the lower the score, the sooner it goes.

A criterion is a name, a function that scores the filters of one weight, or a `GroupCriterion`, which scores the units of a
whole group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from dysens.errors import InputError, nearest

if TYPE_CHECKING:
    from paddle import Tensor
    from typing_extensions import TypeGuard

    from dysens.groups import ChannelGroup, Role

Scores = Callable[[np.ndarray], np.ndarray]


class GroupCriterion(ABC):
    """A criterion that scores the units of a whole group, from all weights that make or read their channels.

    Subclass it and write `score`. It is only called in the process that was given the criterion (workers of a sweep are told
    which units to remove), so it may keep what no pickle can hold.

    Example:
        >>> class ReadWeight(GroupCriterion):  # how much weight the layers that read a channel give to it
        ...     def score(self, group, tensors):
        ...         scores = np.zeros(group.size)
        ...         for port, unit in group.units.items():
        ...             for piece in port.slices if port.side == "in" else ():
        ...                 weight = np.moveaxis(tensors[piece.tensor].numpy(), piece.axis, 0)
        ...                 read = np.abs(weight).reshape(port.size, -1).sum(axis=1)
        ...                 scores += np.bincount(unit[unit >= 0], read[unit >= 0], minlength=group.size)
        ...         return scores
    """

    @property
    def name(self) -> str:
        """What journals call it: points of two criteria never mix."""
        return type(self).__name__

    @abstractmethod
    def score(self, group: ChannelGroup, tensors: Mapping[str, Tensor]) -> np.ndarray:
        """The score of every unit of a group; the lowest go first.

        Args:
            group: The group. On a model that is cut already, with the widths that its layers have now.
            tensors: The model's parameters and buffers by path, as they are now.
        """

    def compensate(self, layers: Mapping[str, Role]) -> Mapping[str, Role]:
        """Optional: the layers, with what each of them reads on average, so that biases take over the means of what goes.

        A criterion that overrides this runs the live model: a compiled copy masks channels, and shifts no biases. Workers call
        it on models of their own, so it has to be picklable for them.

        Args:
            layers: The layers with weights, by path.
        """
        return layers


Criterion = Union[str, Scores, GroupCriterion]


def fpgm(weight: np.ndarray) -> np.ndarray:
    """The sum of a filter's Euclidean distances to all others: one near the geometric median can be replaced by them.

    Args:
        weight: The filters along axis 0.

    Example:
        >>> fpgm(np.array([[0.0], [1.0], [5.0]])).tolist()
        [6.0, 5.0, 9.0]
    """
    filters = weight.reshape(len(weight), -1).astype("float64")
    # |a - b|^2 = |a|^2 + |b|^2 - 2ab: one matrix product instead of a loop over pairs. Moving the origin to the mean does
    # not change distances, and keeps the difference of large squares exact.
    filters = filters - filters.mean(axis=0)
    squares = (filters**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2.0 * (filters @ filters.T)
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.sqrt(np.maximum(distances, 0.0)).sum(axis=1))


def l1(weight: np.ndarray) -> np.ndarray:
    """The mean absolute weight of a filter."""
    return np.asarray(np.abs(weight.reshape(len(weight), -1)).mean(axis=1))


def l2(weight: np.ndarray) -> np.ndarray:
    """The Euclidean length of a filter."""
    return np.asarray(np.sqrt((weight.reshape(len(weight), -1).astype("float64") ** 2).sum(axis=1)))


def random(weight: np.ndarray) -> np.ndarray:
    """Chance, the same at every call: what a criterion has to beat."""
    return np.random.default_rng(0).random(len(weight))


CRITERIA: dict[str, Scores] = {"fpgm": fpgm, "l1": l1, "l2": l2, "random": random}


def criterion_name(criterion: Criterion) -> str:
    """What a journal's header calls the criterion."""
    if isinstance(criterion, GroupCriterion):
        return criterion.name
    return criterion if isinstance(criterion, str) else getattr(criterion, "__qualname__", repr(criterion))


def check_criterion(criterion: Criterion) -> None:
    """Raise InputError for an unknown criterion."""
    if not isinstance(criterion, GroupCriterion):
        scores_by(criterion)


def compensates(criterion: Criterion) -> TypeGuard[GroupCriterion]:
    """Whether biases take over the means of what a criterion removes."""
    return (
        isinstance(criterion, GroupCriterion) and type(criterion).compensate is not GroupCriterion.compensate
    )


def scores_by(criterion: Criterion) -> Scores:
    """The scoring function that a name or a function stands for.

    Args:
        criterion: A name, or a function from filters (along axis 0) to one score per filter.

    Raises:
        InputError: There is no such criterion.
    """
    if isinstance(criterion, str):
        if criterion not in CRITERIA:
            hint = nearest(criterion, CRITERIA) or f"; known are {', '.join(CRITERIA)}."
            raise InputError(f'There is no criterion "{criterion}"{hint}')
        return CRITERIA[criterion]
    given: Any = criterion
    if isinstance(given, type) and issubclass(given, GroupCriterion):
        raise InputError(f"The criterion is the class {given.__name__}; give an object of it.")
    if isinstance(criterion, GroupCriterion) or not callable(criterion):
        raise InputError(
            f"The criterion must be one of {', '.join(CRITERIA)}, a function or a dysens.GroupCriterion, not {criterion!r:.80}."
        )
    name = criterion_name(criterion)
    return lambda weight: checked_scores(criterion(weight), len(weight), name, "filters")


def checked_scores(scores: Any, count: int, name: str, what: str) -> np.ndarray:
    """Scores that a user's criterion gave, as an array.

    Args:
        scores: What it gave.
        count: How many there have to be.
        name: The criterion.
        what: What is scored, for the message.

    Raises:
        InputError: There are fewer or more, or some are NaN.
    """
    found = np.asarray(scores, dtype="float64")
    if found.shape != (count,) or np.isnan(found).any():
        raise InputError(
            f"The criterion {name} has to give one number for each of the {count} {what}; "
            f"it gave an array of shape {list(found.shape)}{' with NaN' if np.isnan(found).any() else ''}."
        )
    return found
