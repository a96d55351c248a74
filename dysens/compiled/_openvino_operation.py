"""One operator of a program of Paddle 3, with its inputs translated for OpenVINO already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dysens.compiled._calls import UnservableError

Node = Any  # an output of a node of OpenVINO's graph
Converted = Any  # a Node, or a list of them for a value that is a list

_TYPES = {"float32": np.float32, "int32": np.int64, "int64": np.int64, "bool": np.bool_}


class Operation:
    """One operator of the program, with its inputs translated."""

    def __init__(self, operation: Any, nodes: Mapping[int, Converted], ops: Any) -> None:
        self._operation = operation
        self._nodes = nodes
        self.ops = ops
        self.attributes: dict[str, Any] = operation.attrs()
        self.name = operation.name()

    @property
    def inputs(self) -> list[Converted]:
        """All of them in order, None for those that are left out."""
        return [self._nodes[v.hash()] if v.initialized() else None for v in self._operation.operands_source()]

    def __getitem__(self, slot: str) -> Converted:
        names = list(self._operation.get_input_names())
        return self.inputs[names.index(slot)] if slot in names else None

    @property
    def x(self) -> Node:
        """Its first input, which has to be of floats."""
        self.result_type()
        return self.inputs[0]

    def result_type(self) -> Any:
        """The type of its first output."""
        return element_type(self._operation.result(0), self.name)

    @property
    def floats(self) -> bool:
        """Whether it computes with floats."""
        return self.result_type() is np.float32

    def rank(self) -> int:
        """Of its first input."""
        return int(self.inputs[0].get_partial_shape().rank.get_length())

    def refuse(self, what: str) -> UnservableError:
        return UnservableError(f"OpenVINO does not get {self.name} with {what}")

    def numbers(self, slot: str) -> list[Any] | None:
        """The values of an input that is a constant; None if they are computed."""
        node = self[slot]
        if node is None:
            return []
        constant = node.get_node() if not isinstance(node, list) else None
        if constant is None or constant.get_type_name() != "Constant":
            return None
        return list(np.asarray(constant.data).reshape(-1).tolist())

    def number(self, slot: str) -> Any:
        found = self.numbers(slot)
        if not found:
            raise self.refuse(f"{slot} that is computed")
        return found[0]

    def whole(self, values: Sequence[int]) -> Node:
        return self.ops.constant(np.array(values, np.int64)).output(0)

    def vector(self, slot: str) -> Node:
        """An input of whole numbers, whether a tensor or a list of scalars."""
        node = self[slot]
        if isinstance(node, list):
            node = self.ops.concat([self.ops.reshape(n, self.whole([1]), False).output(0) for n in node], 0)
        return self.ops.convert(node, "i64").output(0)


def element_type(value: Any, where: str) -> Any:
    name = str(value.dtype).rpartition(".")[2]
    if name not in _TYPES:
        raise UnservableError(f"OpenVINO would compute with another precision: {where} is {name}")
    return _TYPES[name]
