"""An inference model as a Program in a scope of its own, for whoever runs programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from dysens.programs._files import InferenceFiles, check_program, parameter_names, read_weights
from dysens.programs._load import _persistable, in_dynamic_mode, uses_pir
from dysens.programs._old import load_old
from dysens.programs._pir import load_pir


@dataclass(frozen=True)
class LoadedProgram:
    """What `paddle.static.load_inference_model` gives, and where the values are.

    Attributes:
        program: The program.
        scope: Holds its parameters, and nothing else.
        feed_names: The names of its inputs.
        fetch_targets: Its outputs, as ``Executor.run`` takes them.
    """

    program: Any
    scope: Any
    feed_names: list[str]
    fetch_targets: list[Any]


def load_program(files: InferenceFiles) -> LoadedProgram:
    """The program of an inference model, with its weights in a new scope; nothing in the global one is touched.

    Args:
        files: Where they are; `load_inference` says in words if something is wrong with them.
    """
    check_program(files)
    with in_dynamic_mode():
        program = load_pir(files.program) if uses_pir() else load_old(files.program)
    loaded = _of_pir(program) if uses_pir() else _of_old(program)
    names = _persistable(program) if files.is_pir else parameter_names(files.program)
    values = read_weights(files.weights, names)
    if uses_pir():
        # Parameters that no output needs are asked for all the same.
        holders = [op for op in program.global_block().ops if op.name() == "builtin.parameter"]
        shapes = {op.attrs()["parameter_name"]: op.result(0).shape for op in holders}
        values = {
            **{n: np.zeros([max(s, 1) for s in shape], "float32") for n, shape in shapes.items()},
            **values,
        }
    scope = paddle.static.Scope()
    for name, array in values.items():
        scope.var(name).get_tensor().set(array, paddle.CPUPlace())
    return LoadedProgram(program, scope, *loaded)


def _of_old(program: Any) -> tuple[list[str], list[Any]]:
    block = program.global_block()
    fed = {op.attr("col"): op.output("Out")[0] for op in block.ops if op.type == "feed"}
    fetched = {op.attr("col"): op.input("X")[0] for op in block.ops if op.type == "fetch"}
    return [name for _, name in sorted(fed.items())], [block.var(name) for _, name in sorted(fetched.items())]


def _of_pir(program: Any) -> tuple[list[str], list[Any]]:
    ops = program.global_block().ops
    fed, fetched = {}, {}
    for place, op in enumerate(ops):
        if op.name() in ("pd_op.feed", "pd_op.data"):
            fed[op.attrs().get("col", place)] = op.attrs()["name"]
        elif op.name() in ("pd_op.fetch", "builtin.shadow_output"):
            fetched[op.attrs().get("col", place)] = op.operand_source(0)
    return [name for _, name in sorted(fed.items())], [value for _, value in sorted(fetched.items())]
