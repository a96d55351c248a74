"""How important each filter is: the lower the score, the sooner it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Union

import numpy as np

from dysens.errors import InputError, nearest

Scores = Callable[[np.ndarray], np.ndarray]


class UnitCriterion(ABC):
    """A criterion that knows more than a weight: it scores the units of a whole group."""

    @abstractmethod
    def unit_scores(self, group: Any, tensors: Mapping[str, Any]) -> np.ndarray:
        """One score per unit of a `ChannelGroup`, from the model's tensors by path."""

    @abstractmethod
    def informed(self, roles: Mapping[str, Any]) -> dict[str, Any]:
        """The model's roles, with what is known about the data."""


Criterion = Union[str, Scores, UnitCriterion]


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
    return criterion if isinstance(criterion, str) else getattr(criterion, "__qualname__", repr(criterion))


def check_criterion(criterion: Criterion) -> None:
    """Looks for a criterion that there is not.

    Raises:
        InputError: It is none.
    """
    if not isinstance(criterion, UnitCriterion):
        scores_by(criterion)


def scores_by(criterion: Criterion) -> Scores:
    """The scoring function that a user means.

    Args:
        criterion: A name, or a function from filters (along axis 0) to one score per filter.
    """
    if isinstance(criterion, str):
        if criterion not in CRITERIA:
            hint = nearest(criterion, CRITERIA) or f"; known are {', '.join(CRITERIA)}."
            raise InputError(f'there is no criterion "{criterion}"{hint}')
        return CRITERIA[criterion]
    if isinstance(criterion, UnitCriterion) or not callable(criterion):
        raise InputError(f"criterion must be one of {', '.join(CRITERIA)} or a function, not {criterion!r}.")
    return lambda weight: _checked(criterion, weight)


def _checked(criterion: Scores, weight: np.ndarray) -> np.ndarray:
    scores = np.asarray(criterion(weight), dtype="float64")
    if scores.shape != (len(weight),) or np.isnan(scores).any():
        raise InputError(
            f"criterion {criterion_name(criterion)} has to give one number for each of the {len(weight)} filters; "
            f"it gave an array of shape {list(scores.shape)}{' with NaN' if np.isnan(scores).any() else ''}."
        )
    return scores
