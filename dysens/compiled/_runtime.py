"""The contract of what runs an exported forward.

A runtime gets a traced model and gives something that runs it, in float32; whether that gives what the live model gives is for
others to find out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.compiled._batches import ThreadPlan
from dysens.compiled._calls import UnservableError
from dysens.compiled._export import Traced


class Loaded(ABC):
    """An exported forward, ready to run.

    Attributes:
        outputs: How many outputs it has.
        part_seconds: How long a part of it takes to make at most, for inputs of one size; None if it has no parts.
    """

    outputs: int
    part_seconds: float | None = None

    @abstractmethod
    def run(self, feeds: Mapping[str, Any]) -> list[np.ndarray]:
        """The outputs; may be called from several threads at a time.

        Args:
            feeds: Tensors or arrays by the names of inputs; some that it does not need may be among them.
        """

    def keep_only(self, kept: Sequence[Mapping[str, Any]]) -> None:  # noqa: B027  nothing to let go of
        """Let go of what was made ready for inputs of other sizes than these; it is made again if they come."""

    def part(self, given: Collection[int], wanted: Collection[int], masks: Collection[str]) -> Loaded:
        """Some of what it computes, without tracing the model again. It has the same inputs, as far as it needs them.

        Args:
            given: Steps whose outputs are inputs, "step_" and the number.
            wanted: Steps whose outputs are its outputs, in this order; its own outputs if there are none.
            masks: The masks that are not all ones.

        Raises:
            UnservableError: It has no such part.
        """
        raise UnservableError("this runtime cannot run a part of what it loaded")


class Runtime(ABC):
    """Runs exported forwards.

    Attributes:
        name: What users choose it by.
        title: What messages call it.
        side_by_side: Whether calls of several threads run at the same time.
    """

    name: str
    title: str
    side_by_side: bool

    @property
    @abstractmethod
    def installed(self) -> bool:
        """Whether its package is there."""

    @abstractmethod
    def load(self, traced: Traced, folder: Path, plan: ThreadPlan) -> Loaded:
        """Make a traced model run; inside the context that it was traced in.

        Args:
            traced: The traced model.
            folder: For files; it goes away when this returns.
            plan: How many calls run at the same time, and on how many threads each.

        Raises:
            UnservableError: It does not run such a model.
            Exception: Whatever its package raises.
        """


def contiguous(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values.numpy() if isinstance(values, paddle.Tensor) else values)
