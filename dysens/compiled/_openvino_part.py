"""Parts of a network of OpenVINO: what begins with given values, or ends with some on the way.

To cut a network that has been read takes milliseconds, where to trace the model again takes seconds; so a sweep can have a
part for every few of its groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dysens.compiled._calls import UnservableError
from dysens.compiled._openvino_operation import Node


def name_steps(outputs: Mapping[int, Node]) -> None:
    """Give the outputs of steps names that stay with them when the network is cloned."""
    for step, output in outputs.items():
        output.get_tensor().add_names({_name(step)})


def part_of(network: Any, given: Iterable[int], wanted: Sequence[int], masks: Collection[str]) -> Any:
    """A network that computes some of what another one does; the weights are shared.

    Args:
        network: The whole, with named steps.
        given: Steps whose outputs are fed, as "step_" and the number.
        wanted: Steps whose outputs are its outputs; the network's own if there are none.
        masks: The names of the masks that count; what others multiply stays as it is.

    Raises:
        UnservableError: A step is none of those that were named.
    """
    import openvino

    whole = network.clone()
    steps = {
        name: output
        for node in whole.get_ops()
        for output in node.outputs()
        for name in output.get_names()
        if name.startswith(_name(""))
    }
    missing = next((step for step in (*given, *wanted) if _name(step) not in steps), None)
    if missing is not None:
        raise UnservableError(f"OpenVINO's network does not have the output of step {missing}")
    wanted_now = [steps[_name(step)] for step in wanted]
    for mask in whole.get_parameters():
        name = mask.output(0).get_any_name()
        if name.startswith("mask_") and name not in masks:
            _leave_out(mask)
    fed = []
    for step in given:
        output = steps[_name(step)]
        parameter = openvino.opset13.parameter(output.get_partial_shape(), output.get_element_type())
        parameter.set_friendly_name(_name(step))
        parameter.output(0).get_tensor().set_names({_name(step)})
        _replace(output, parameter.output(0))
        fed.append(parameter)
    results = [openvino.opset13.result(output) for output in wanted_now] or whole.get_results()
    needed = _parameters_of(results)
    parameters = [each for each in (*whole.get_parameters(), *fed) if each.get_name() in needed]
    return openvino.Model(results, parameters, "dysens")


def _name(step: object) -> str:
    return f"step_{step}"


def _replace(output: Node, other: Node) -> None:
    """Let all that reads a value read another one."""
    for target in output.get_target_inputs():
        target.replace_source_output(other)


def _leave_out(mask: Any) -> None:
    """Let what a mask multiplies go on as it is, where that is all that the mask is for."""
    for target in mask.output(0).get_target_inputs():
        product = target.get_node()
        if product.get_type_name() == "Multiply":
            _replace(product.output(0), product.input_value(1 - target.get_index()))


def _parameters_of(results: Iterable[Any]) -> set[str]:
    """The names of the parameters that these are computed from."""
    found: set[str] = set()
    seen: set[str] = set()
    ahead = list(results)
    while ahead:
        node = ahead.pop()
        if node.get_name() in seen:
            continue
        seen.add(node.get_name())
        if node.get_type_name() == "Parameter":
            found.add(node.get_name())
        ahead += [value.get_node() for value in node.input_values()]
    return found
