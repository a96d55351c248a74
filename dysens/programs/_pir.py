"""Programs of Paddle 3 (PIR): ``.json``, a static Program, and ``.pdmodel`` after Paddle's own translation.

An operation is replayed by the eager function of its name, with arguments in the order of the header that Paddle ships.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.errors import InputError
from dysens.model import has_storage
from dysens.programs import _widths as widths
from dysens.programs._graph import Feed, Graph, Op, Values, refuse

_COMBINE, _SPLIT, _SLICE = "builtin.combine", "builtin.split", "builtin.slice"
_CONSTANTS = ("full", "full_int_array")
_NUMBERS = ("assign_value", "assign_value_")  # a tensor that the network's code wrote down
_BOOKKEEPING = ("stop_gradient", "persistable", "op_callstack", "place")


def read_pir(program: Any, fetched: Sequence[Any] = ()) -> Graph:
    """A PIR program as plain data.

    Args:
        program: A `paddle.static.Program`, or what `load_pir` gave.
        fetched: The values that are its outputs; by default what it fetches itself. Only what these are computed from is read.

    Raises:
        InputError: It cannot be replayed.
    """
    reader = _Reader(list(program.global_block().ops))
    graph = reader.graph(fetched)
    for op in graph.ops:
        known = (
            op.type.startswith("builtin.")
            or op.name in _NUMBERS
            or (op.name in signatures() and hasattr(paddle._C_ops, op.name))
        )
        refuse(op, op.index in reader.with_blocks, known, paddle.__version__)
    return graph


class _Reader:
    """Gives values of a program their keys: Paddle knows them by address, as long as the program lives."""

    def __init__(self, ops: list[Any]) -> None:
        self._ops = ops
        self._keys: dict[int, str] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.with_blocks: set[int] = set()

    def key(self, value: Any) -> str:
        return self._keys.setdefault(value.hash(), f"value_{len(self._keys)}")

    def graph(self, fetched: Sequence[Any]) -> Graph:
        ops: list[Op] = []
        parameters: dict[str, str] = {}
        feeds: dict[int, tuple[str, Feed]] = {}  # operations that feed stand in any order
        fetches = {number - len(fetched): (self.key(value), "") for number, value in enumerate(fetched)}
        for index, op in enumerate(self._ops):
            self._note_shapes(op)
            attributes = op.attrs()
            if op.name() == "builtin.parameter":
                parameters[self.key(op.result(0))] = attributes["parameter_name"]
            elif op.name() in ("pd_op.feed", "pd_op.data"):
                value = op.result(0)
                feed = Feed(attributes["name"], tuple(value.shape), dtype_name(value.dtype))
                feeds[attributes.get("col", index)] = (self.key(value), feed)
            elif op.name() in ("pd_op.fetch", "builtin.shadow_output"):
                if not fetched:
                    name = str(attributes.get("name", attributes.get("output_name", "")))
                    fetches[attributes.get("col", index)] = (self.key(op.operand_source(0)), name)
            else:
                ops.append(self._op(index, op, attributes))
        found = [each for _, each in sorted(fetches.items())]
        graph = Graph(
            ops,
            parameters,
            dict(each for _, each in sorted(feeds.items())),
            [key for key, _ in found],
            [name or f"fetch_{number}" for number, (_, name) in enumerate(found)],
            self._shapes,
            replay_pir,
        )
        return graph.needed()

    def _note_shapes(self, op: Any) -> None:
        for value in op.results():
            if value.initialized() and value.is_dense_tensor_type():
                self._shapes[self.key(value)] = tuple(value.shape)

    def _op(self, index: int, op: Any, attributes: dict[str, Any]) -> Op:
        dialect, _, name = op.name().partition(".")
        own = dialect == "pd_op"
        if list(op.blocks()):
            self.with_blocks.add(index)
            own = False  # its slots have no names
        sources = [value if value.initialized() else None for value in op.operands_source()]
        inputs: dict[str, list[str]] = {}
        for slot, value in zip(op.get_input_names() if own else ["x"] * len(sources), sources):
            inputs.setdefault(slot, []).extend([self.key(value)] if value is not None else [])
        if own:
            shown = zip(op.get_output_names(), op.results(), op.get_output_intermediate_status())
            outputs = {slot: [self.key(value)] for slot, value, hidden in shown if not hidden}
        else:
            outputs = {"out": [self.key(value) for value in op.results()]}
        if own and name.endswith("_") and hasattr(paddle._C_ops, name[:-1]):
            name = name[:-1]  # writes in place, which a replay must not
        first = next((keys[0] for keys in inputs.values() if keys), "")
        return Op(
            name if own else op.name(),
            op.name(),
            index,
            inputs,
            outputs,
            {key: value for key, value in attributes.items() if key not in _BOOKKEEPING},
            input_shape=self._shapes.get(first),
        )


def dtype_name(dtype: Any) -> str:
    """A data type of either kind of program in the word that everything takes."""
    word = str(dtype).rpartition(".")[2].lower()
    return {"fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16"}.get(word, word)


@lru_cache(None)
def signatures() -> dict[str, list[tuple[str, str]]]:
    """The arguments (type, name) of every eager operation in order, from the header that Paddle ships."""
    header = Path(paddle.sysconfig.get_include(), "paddle/phi/api/include/api.h")
    try:
        text = header.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f'Programs cannot be imported: this Paddle came without "{header.name}" ({error.strerror}); install the '
            "paddlepaddle package."
        ) from error
    found: dict[str, list[tuple[str, str]]] = {}
    for match in re.finditer(r"^PADDLE_API .*?\s(\w+)\((.*)\);", text, re.MULTILINE):
        declared = (piece.split(" = ")[0].strip().rpartition(" ") for piece in _arguments(match[2]))
        found[match[1]] = [(kind, name) for kind, _, name in declared if name != "predefined_out"]
    return found


def _arguments(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<({") - (letter in ">)}")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if text[start:].strip():
        yield text[start:]


class _Constant:
    """What ``full`` or ``full_int_array`` gives: a number or numbers that an argument takes as they are, or a tensor."""

    def __init__(self, op: Op) -> None:
        value = op.attributes["value"]
        whole = op.name == "full" and op.attributes["dtype"] in (paddle.int32, paddle.int64)
        self.value: Any = int(value) if whole else value
        self._op = op

    def tensor(self) -> Any:
        """It in a tensor of its own."""
        values: Values = {}
        _call(self._op, values)
        return values[self._op.writes()[0]]

    def in_double(self) -> _Constant:
        """The same in double precision, where it is in single precision."""
        single = self._op.attributes.get("dtype") == paddle.float32
        return _Constant(self._op.with_attributes(dtype=paddle.float64)) if single else self

    def number(self) -> Any:
        """It, or the only one of several."""
        return self.value[0] if isinstance(self.value, (list, tuple)) else self.value


def replay_pir(op: Op, values: Values) -> None:
    """Compute what an operation gives, eagerly or into the PIR program that is being traced."""
    if op.name == _COMBINE:
        values[op.writes()[0]] = [values[key] for key in op.reads()]
    elif op.name == _SPLIT:
        values.update(zip(op.writes(), values[op.reads()[0]]))
    elif op.name == _SLICE:
        values[op.writes()[0]] = values[op.reads()[0]][op.attributes["index"]]
    elif op.name in _CONSTANTS:
        values[op.writes()[0]] = _Constant(op)
    elif op.name in _NUMBERS:
        a = op.attributes
        array = np.array(a["values"], dtype_name(a["dtype"])).reshape(a["shape"])
        values[op.writes()[0]] = paddle.assign(array)
    else:
        _call(op, values)


def as_tensor(value: Any) -> Any:
    """What a layer or the caller gets: constants become tensors."""
    if isinstance(value, (list, tuple)):
        return [as_tensor(part) for part in value]
    return value.tensor() if isinstance(value, _Constant) else value


def in_double(value: Any) -> Any:
    """What was computed in double precision, if it is in single precision; anything else as it is."""
    if isinstance(value, (list, tuple)):
        return [in_double(part) for part in value]
    if isinstance(value, _Constant):
        return value.in_double()
    single = isinstance(value, paddle.Tensor) and value.dtype == paddle.float32
    # Some outputs hold nothing: they only tell gradients a shape.
    return value.astype("float64") if single and has_storage(value) else value


def _call(op: Op, values: Values) -> None:
    arguments = []
    for kind, name in signatures()[op.name]:
        if name in op.inputs:
            keys = op.inputs[name]
            value = values[keys[0]] if keys else None
            if "IntArray" in kind and value is not None:
                value = _followed(op, name, value, values)
            elif "Tensor" not in kind and isinstance(value, _Constant):
                value = value.value
            arguments.append(as_tensor(value) if "Tensor" in kind else value)
        elif kind.endswith("Place&"):
            arguments.append(paddle.framework._current_expected_place())
        elif name in op.attributes:
            arguments.append(op.attributes[name])
        else:
            raise InputError(
                f'{op.place} lacks "{name}", which Paddle {paddle.__version__} asks for: it was exported by another version. '
                "Export it with the version that is installed."
            )
    returned = _FORMS.get(op.name, getattr(paddle._C_ops, op.name))(*arguments)
    outputs = op.writes()
    values.update(zip(outputs, returned if len(outputs) > 1 else [returned]))


def _place_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """``argmax`` or ``argmin`` as the header has it, by the function that all versions of Paddle have."""

    def called(x: Any, axis: Any, keepdims: bool, flatten: bool, dtype: Any) -> Any:
        return function(x, None if flatten else int(axis), keepdims, dtype_name(dtype))

    return called


# Eager operations that since Paddle 3.3 take arguments as users give them, not as the header says, and end the process otherwise.
_FORMS = {"argmax": _place_of(paddle.argmax), "argmin": _place_of(paddle.argmin)}


def _followed(op: Op, name: str, value: Any, values: Values) -> Any:
    """The numbers of an IntArray, where they are known as they have to be at the widths that are there now."""
    parts = list(value.value) if isinstance(value, _Constant) else value
    if not isinstance(parts, list):
        return value
    numbers = [_number(part) for part in parts]
    known = [-1 if number is None else int(number) for number in numbers]
    x = values[op.reads()[0]]
    whole = op.input_shape
    if whole is not None and hasattr(x, "shape") and widths.changed(whole, x.shape):
        known = _at_these_widths(op, name, known, whole, list(x.shape), values)
    if all(number is not None for number in numbers):
        return known
    # Numbers and computed values together: scalars, or Paddle cannot stack them.
    return [
        paddle.full([], n, "int64")
        if number is not None
        else (paddle.reshape(part, []) if part.shape else part).astype("int64")
        for part, number, n in zip(parts, numbers, known)
    ]


def _at_these_widths(
    op: Op, name: str, known: list[int], whole: Sequence[int], now: Sequence[int], values: Values
) -> list[int]:
    if op.name == "reshape":
        return widths.reshaped(known, whole, now)
    if op.name == "expand":
        return widths.expanded(known, whole, now)
    if op.name == "slice" and name in ("starts", "ends"):
        return [widths.scaled(n, whole[a], now[a]) for n, a in zip(known, op.attributes["axes"])]
    if op.name == "split" and name == "sections":
        axis = int(values[op.inputs["axis"][0]].number())
        return [widths.scaled(n, whole[axis], now[axis]) for n in known]
    return known


def _number(part: Any) -> Any:
    if isinstance(part, _Constant):
        return part.number()
    return part if isinstance(part, int) else None


def load_pir(path: Path) -> Any:
    """The program of an inference model, ``.json`` or ``.pdmodel``.

    Raises:
        InputError: The file is not a program that can be read.
    """
    from paddle.base import core

    if path.suffix == ".json":
        program = paddle.static.Program()
        core.deserialize_pir_program(str(path), program)
        # Paddle gives an operation that it does not know no name.
        for index, op in enumerate(program.global_block().ops):
            if not op.name():
                (block,) = json.loads(path.read_bytes())["program"]["regions"][0]["blocks"]
                name = block["ops"][index]["#"].rpartition(".")[2]
                raise InputError(
                    f'"{path}" cannot be imported because of "{name}" (operation {index}): Paddle {paddle.__version__} does not '
                    "know it; a later version may have written the program."
                )
        return program
    with paddle.pir_utils.OldIrGuard():
        old = paddle.base.framework.Program.parse_from_string(path.read_bytes())
    for index, op in enumerate(old.global_block().ops):
        if op.has_attr("sub_block"):
            refuse(Op(op.type, op.type, index, {}, {"out": list(op.output_arg_names)}, {}), True, True, "")
    return paddle.pir.translate_to_pir(old.desc)
