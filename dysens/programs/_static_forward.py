"""The forward of a static Program, for training or not, as a live layer: to find groups on, and to score with."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle
from paddle.base import framework

from dysens.errors import InputError
from dysens.programs._graph import Graph
from dysens.programs._layer import ProgramLayer
from dysens.programs._load import in_dynamic_mode, read_program
from dysens.programs._pir import dtype_name

Array = np.ndarray

_FORWARD = (0, 256)  # an operation's role: forward, and forward that gives the loss
_MAIN = ("Out", "Output", "Y", "Loss")


@contextmanager
def in_static_mode() -> Iterator[None]:
    """Run programs, whatever the mode around is; that one comes back."""
    dynamic = paddle.in_dynamic_mode()
    if dynamic:
        paddle.enable_static()
    try:
        yield
    finally:
        if dynamic:
            paddle.disable_static()


def is_old(program: Any) -> bool:
    """Whether a program is of Paddle 2's kind; False for one of Paddle 3's (PIR).

    Raises:
        InputError: It is no program.
    """
    if isinstance(program, framework.Program):
        return True
    if type(program).__name__ == "Program" and hasattr(program, "global_block"):
        return False
    raise InputError(f"The program has to be a paddle.static.Program, not a {type(program).__name__}.")


def scope_array(scope: Any, name: str) -> Array | None:
    """A copy of what a scope holds under a name; None if there is nothing."""
    found = scope.find_var(name)
    if found is None:
        return None
    tensor = found.get_tensor()
    return np.array(tensor) if tensor._is_initialized() else None


def fetch_key(fetched: Any) -> Any:
    """What tells one output of a program from another."""
    if isinstance(fetched, str):
        return fetched
    return fetched.name if isinstance(fetched, framework.Variable) else fetched.hash()


def forward_layer(program: Any, scope: Any, fetched: Sequence[Any] = ()) -> ProgramLayer:
    """The forward of a program as a live layer in eval mode, with the weights of a scope.

    Args:
        program: For training, testing or inference; backward and optimizer are left out.
        scope: Where the weights are.
        fetched: Further outputs that are wanted, before the program's own: names, variables or values.

    Raises:
        InputError: The program cannot be imported, or the scope lacks its weights.
    """
    taken = {fetch_key(each) for each in fetched}
    wanted = [*fetched, *(each for each in forward_outputs(program) if fetch_key(each) not in taken)]
    graph = read_program(program, wanted)
    weights = {}
    for name in graph.parameters.values():
        values = scope_array(scope, name)
        if values is None:
            raise InputError(
                f'The scope holds no values of "{name}": run the startup program or load the weights first.'
            )
        weights[name] = values
    _check_shapes(graph, weights)
    with in_dynamic_mode(), paddle.utils.unique_name.guard():
        return ProgramLayer(_for_test(graph), weights)


def _check_shapes(graph: Graph, weights: Mapping[str, Array]) -> None:
    for key, name in graph.parameters.items():
        stated = graph.shapes.get(key)
        if stated is not None and min(stated, default=1) >= 0 and stated != weights[name].shape:
            raise InputError(
                f'The program says that "{name}" has the shape {list(stated)}, and the scope holds {list(weights[name].shape)}. '
                "If the scope was pruned with another program, prune this one with only_graph=True, with the same params and "
                "ratios."
            )


def _for_test(graph: Graph) -> Graph:
    """With dropout and the like as they are when a network is used."""
    return replace(
        graph,
        ops=[op.with_attributes(is_test=True) if "is_test" in op.attributes else op for op in graph.ops],
    )


@dataclass(frozen=True)
class _Node:
    """An operation: what it reads, and what it computes; first what is meant to be read."""

    reads: frozenset[Hashable]
    writes: tuple[Hashable, ...]


def forward_outputs(program: Any) -> list[Any]:
    """What a program is for: what it fetches, or what its forward computes and does not read again, before labels come in.

    Returns:
        Names of variables, or values of a PIR program.
    """
    if is_old(program):
        return _old_outputs(program.global_block())
    return _pir_outputs(program.global_block().ops)


def _old_outputs(block: Any) -> list[str]:
    fetched = {op.attr("col"): op.input("X")[0] for op in block.ops if op.type == "fetch"}
    if fetched:
        return [name for _, name in sorted(fetched.items())]
    nodes, feeds = [], {}
    for op in block.ops:
        if op.attr("op_role") not in _FORWARD or op.type == "feed":
            continue
        first = [name for slot in _MAIN if slot in op.output_names for name in op.output(slot)]
        writes = dict.fromkeys([*first, *op.output_arg_names])
        own = [name for name in writes if not (block.has_var(name) and block.var(name).persistable)]
        nodes.append(_Node(frozenset(op.input_arg_names), tuple(own)))
    for name, variable in block.vars.items():
        if getattr(variable, "is_data", False) or (
            not variable.persistable and variable.desc.need_check_feed()
        ):
            feeds[name] = not dtype_name(variable.dtype).startswith(("float", "bfloat"))
    found = [str(name) for name in _outputs(nodes, feeds)]
    return _measured(found, [dtype_name(block.var(name).dtype) for name in found])


def _pir_outputs(ops: Iterable[Any]) -> list[Any]:
    ops = list(ops)
    fetched = [op.operand_source(0) for op in ops if op.name() in ("pd_op.fetch", "builtin.shadow_output")]
    if fetched:
        return fetched
    nodes, feeds, values = [], {}, {}
    for op in ops:
        name = op.name()
        if name.endswith(("_grad", "_grad_")):
            break
        results = [value for value in op.results() if value.initialized()]
        values.update({value.hash(): value for value in results})
        if name in ("pd_op.data", "pd_op.feed"):
            if not results[0].persistable:
                feeds[results[0].hash()] = not dtype_name(results[0].dtype).startswith(("float", "bfloat"))
        elif name != "builtin.parameter":
            reads = frozenset(value.hash() for value in op.operands_source() if value.initialized())
            shown = (
                [
                    value
                    for value, hidden in zip(op.results(), op.get_output_intermediate_status())
                    if not hidden
                ]
                if name.startswith("pd_op.")
                else results
            )
            nodes.append(_Node(reads, tuple(value.hash() for value in shown if value.initialized())))
    found = [values[key] for key in _outputs(nodes, feeds)]
    return _measured(found, [dtype_name(value.dtype) for value in found])


def _measured(outputs: list[Any], dtypes: Sequence[str]) -> list[Any]:
    """Without indices and counts, which say nothing about small differences, where there is anything else."""
    return [each for each, dtype in zip(outputs, dtypes) if dtype.startswith(("float", "bfloat"))] or outputs


def _outputs(nodes: Sequence[_Node], feeds: Mapping[Hashable, bool]) -> list[Hashable]:
    """What the operations compute from the inputs, up to where labels come in.

    Args:
        nodes: The operations, in order.
        feeds: The inputs, and whether they hold whole numbers: beside others, those are labels.
    """
    labels = {key for key, whole in feeds.items() if whole} if not all(feeds.values()) else set()
    fed, told = set(feeds) - labels, set(labels)
    before, behind = [], []
    for node in nodes:
        if node.reads & told:
            told.update(node.writes)
            behind.append(node)
        elif node.reads & fed:
            fed.update(node.writes)
            before.append(node)
    read = {key for node in before for key in node.reads}
    compared = {key for node in behind for key in node.reads} & fed - set(feeds)
    found = []
    for node in before:
        last = not read & set(node.writes)
        found += [key for number, key in enumerate(node.writes) if key in compared or (last and number == 0)]
    if not found:
        raise InputError("The program computes nothing from its inputs; it has no forward to analyse.")
    return list(dict.fromkeys(found))
