"""The steps of a forward pass: calls of innermost layers in order, and what a traced program's outputs need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import paddle
from paddle.jit.dy2static.program_translator import ProgramTranslator
from paddle.nn.layer.rnn import RNNBase, RNNCellBase

# What happens after a step: number of the step, layer, outputs; it may return other outputs.
AfterStep = Callable[[int, paddle.nn.Layer, Any], Any]


def step_layers(model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
    """The layers whose calls are steps: those without layers of their own, and recurrent ones as a whole."""
    found: dict[int, paddle.nn.Layer] = {}
    inside: set[int] = set()
    for layer in model.sublayers():
        if id(layer) in inside:
            continue
        if isinstance(layer, (RNNBase, RNNCellBase)):
            inside.update(id(child) for child in layer.sublayers())
            found[id(layer)] = layer
        elif not layer._sub_layers:
            found[id(layer)] = layer
    return list(found.values())


class StepCounter:
    """Numbers the steps of a forward pass. Inside `preserved`: it leaves hooks on the layers.

    Args:
        model: The live layer.
        after: Called after each step.
    """

    def __init__(self, model: paddle.nn.Layer, after: AfterStep) -> None:
        self._after = after
        self._next = 0
        for layer in step_layers(model):
            layer.register_forward_post_hook(self._count)

    def restart(self) -> None:
        """The next step is the first again."""
        self._next = 0

    def _count(self, layer: paddle.nn.Layer, inputs: Any, outputs: Any) -> Any:
        number = self._next
        self._next += 1
        return self._after(number, layer, outputs)


SYMBOLIC = (paddle.static.Variable, paddle.pir.Value)
"""What stands for a tensor while a program is traced."""


def needed(program: Any, outputs: Iterable[Any], given: Iterable[Any]) -> list[Any]:
    """Those of the ``given`` values that the outputs are computed from, if nothing before them counts.

    Args:
        program: What was traced.
        outputs: Values to compute.
        given: Values that are known beforehand.
    """
    outputs = list(outputs)
    key, reads, writes = _reader(outputs)
    known = {key(value): value for value in given}
    wanted = {key(value) for value in outputs}
    for operation in reversed(program.global_block().ops):
        if any(key(value) in wanted and key(value) not in known for value in writes(operation)):
            wanted.update(key(value) for value in reads(operation))
    return [value for name, value in known.items() if name in wanted]


def forget_failed_trace(program: Any) -> None:
    """Let Paddle forget the weights that it noted for a program whose tracing failed.

    It notes them under the program's address and drops them only after success. The next program may get the same address,
    and would be built from values that no longer exist: the process ends there.
    """
    if isinstance(program, paddle.base.framework.Program):
        ProgramTranslator.get_instance()._params_recorder.pop(program)
        return
    from paddle.jit.dy2static.parameter_recorder import _global_inplace_map, _global_parameter_recorder

    _global_parameter_recorder.pop(program)
    _global_inplace_map.pop(program)


def _reader(outputs: Iterable[Any]) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    if any(isinstance(value, paddle.static.Variable) for value in outputs):
        return (
            lambda value: value if isinstance(value, str) else value.name,
            lambda operation: operation.input_arg_names,
            lambda operation: operation.output_arg_names,
        )
    from paddle.autograd.backward_utils import get_real_op_inputs, get_real_op_outputs

    return lambda value: value.hash(), get_real_op_inputs, get_real_op_outputs
