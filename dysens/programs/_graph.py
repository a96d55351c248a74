"""A program as plain data: operations in order, values by key, whichever generation of Paddle the program is of.

A `Graph` holds no object of Paddle's program: it can be copied, compared and kept when the program is gone. Every key is
written once (a variable of a Paddle 2 program that is written again gets a key of its own), so a graph can be followed
backwards from what it fetches. `Op.index` is the operation's place in the program's global block, and parameters are known by
their names in the program, so what was found on a graph can be taken back to the program that it was read from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dysens.errors import InputError

Values = dict[str, Any]
"""What has been computed so far, by key."""


@dataclass(frozen=True)
class Feed:
    """An input of a program.

    Attributes:
        name: What whoever feeds it calls it.
        shape: With -1 for what may vary.
        dtype: Such as ``float32``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Op:
    """One operation.

    Attributes:
        name: As Paddle 3 spells it: ``conv2d``, ``batch_norm``, ``add``.
        type: As the program spells it: ``elementwise_add``, ``pd_op.add``.
        index: Its place in the program's global block.
        inputs: Keys of what it reads, by slot; a slot that takes a list has several.
        outputs: The same for what it computes.
        attributes: Plain values.
        dtypes: Of its outputs, where the program says so.
        input_shape: Of what it reads first, as the program says; None if that is not known.
    """

    __never_changes__: ClassVar[bool] = True

    name: str
    type: str
    index: int
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attributes: dict[str, Any]
    dtypes: dict[str, Any] = field(default_factory=dict)
    input_shape: tuple[int, ...] | None = None

    def reads(self) -> list[str]:
        """Keys of everything that it reads."""
        return [key for keys in self.inputs.values() for key in keys]

    def writes(self) -> list[str]:
        """Keys of everything that it computes."""
        return [key for keys in self.outputs.values() for key in keys]

    def input(self, *slots: str) -> str | None:
        """The first key in the first of these slots (small letters) that has any."""
        return _first(self.inputs, slots)

    def output(self, *slots: str) -> str | None:
        """The same for what it computes."""
        return _first(self.outputs, slots)

    def with_attributes(self, **changed: Any) -> Op:
        """The same operation with other attributes."""
        return replace(self, attributes={**self.attributes, **changed})

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        around = str(self.attributes.get("struct_name", "")).strip("/")
        writes = self.writes()
        what = f'in "{around}"' if around else f'writes "{writes[0]}"' if writes else "writes nothing"
        return f'"{self.type}" (operation {self.index}, {what})'


def _first(slots: Mapping[str, list[str]], names: Iterable[str]) -> str | None:
    by_name = {slot.lower(): keys for slot, keys in slots.items()}
    return next((by_name[name][0] for name in names if by_name.get(name)), None)


@dataclass(frozen=True, eq=False)
class Graph:
    """A program.

    Attributes:
        ops: In order, without those that only feed, fetch or hold a parameter.
        parameters: The name of every parameter, by key.
        feeds: The inputs, by key, in the program's order.
        fetches: Keys of the outputs.
        fetch_names: What the program calls them.
        shapes: Of every value that has one, with -1 for what may vary.
        replay: Computes the outputs of an operation from values by key, and puts them there: eagerly, or into the program
            that is being traced.
    """

    __never_changes__: ClassVar[bool] = True

    ops: list[Op]
    parameters: dict[str, str]
    feeds: dict[str, Feed]
    fetches: list[str]
    fetch_names: list[str]
    shapes: dict[str, tuple[int, ...]]
    replay: Callable[[Op, Values], None]

    def uses(self) -> Counter[str]:
        """How often every value is read; outputs count too."""
        return Counter([*(key for op in self.ops for key in op.reads()), *self.fetches])

    def readers(self) -> dict[str, list[Op]]:
        """The operations that read each value."""
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            for key in op.reads():
                found.setdefault(key, []).append(op)
        return found

    def writers(self) -> dict[str, Op]:
        """The operation that computes each value."""
        return {key: op for op in self.ops for key in op.writes()}

    def needed(self) -> Graph:
        """Only what the outputs are computed from: of a training program the forward, without backward and optimizer.

        Raises:
            InputError: An output is computed from something that the program neither computes nor is given.
        """
        wanted, kept = set(self.fetches), []
        for op in reversed(self.ops):
            if wanted & set(op.writes()):
                kept.append(op)
                wanted.update(op.reads())
        ops = kept[::-1]
        known = {*self.parameters, *self.feeds, *(key for op in ops for key in op.writes())}
        unknown = sorted(wanted - known)
        if unknown:
            raise InputError(
                f'Nothing in the program computes "{unknown[0]}", which its outputs depend on; it is cut off or damaged.'
            )
        return replace(
            self,
            ops=ops,
            parameters={key: name for key, name in self.parameters.items() if key in wanted},
            feeds={key: feed for key, feed in self.feeds.items() if key in wanted},
        )


_WHOLE = {
    "quant": "it is quantised: import the program from before its quantisation",
    "fus": "it was fused for inference: import the program as it was exported",
    "onednn": "it was rewritten for oneDNN: import the program as it was exported",
    "mkldnn": "it was rewritten for oneDNN: import the program as it was exported",
    "tensorrt": "it was rewritten for TensorRT: import the program as it was exported",
    "lite": "it was rewritten for Paddle Lite: import the program as it was exported",
    "cinn": "it was rewritten by a compiler: import the program as it was exported",
}
_FUSED = (
    "fc",
    "multihead_matmul",
    "skip_layernorm",
    "conv2d_add_act",
    "conv2d_add",
    "squeeze_excitation_block",
)


def rewritten(kind: str) -> str:
    """In words how an operation got into a program that was not exported like that; empty if it may be a network's own.

    Args:
        kind: With its dialect, such as ``onednn_op.conv2d``; an old program has none.
    """
    dialect, _, name = kind.rpartition(".")
    if name.rstrip("_") in _FUSED:
        return _WHOLE["fus"]
    return next((why for word, why in _WHOLE.items() if word in dialect or word in name.lower()), "")


def refuse(op: Op, has_blocks: bool, has_eager_form: bool, version: str) -> None:
    """Say why an operation cannot be replayed, if it cannot.

    Args:
        op: The operation.
        has_blocks: Whether it runs other operations.
        has_eager_form: Whether this version of Paddle can run it eagerly.
        version: Paddle's.

    Raises:
        InputError: It cannot.
    """
    name = op.type.partition(".")[2] or op.type
    reason = ""
    if has_blocks:
        reason = (
            "control flow cannot be replayed operation by operation: export the network without `if` and `while` on "
            "tensors, or analyse the live layer"
        )
    elif "fused_softmax_mask" not in name:
        reason = rewritten(op.type)
    if not reason and not has_eager_form:
        reason = f"Paddle {version} has no eager form of it"
    if reason:
        raise InputError(f"The program cannot be imported because of {op.place}: {reason}.")
