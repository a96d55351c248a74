"""A program as a live layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import paddle
from paddle import nn
from paddle.static import InputSpec

from dysens.errors import ForwardError, InputError, in_a_sentence
from dysens.programs._graph import Feed, Graph, Op, Values
from dysens.programs._layers import Array, LayerMaker, Made, attribute_for
from dysens.programs._pir import as_tensor, in_double


@dataclass(frozen=True, eq=False)
class _Step:
    """What the forward does next: replay an operation, or call a sublayer in its place.

    Attributes:
        op: The operation, or the first of those that the sublayer stands for.
        layer: The sublayer's attribute, by which it is known: a copy of the network has its own.
        inputs: Keys of what the sublayer is called with.
        outputs: Keys of what it gives.
        states: See `Made`.
    """

    __never_changes__: ClassVar[bool] = True

    op: Op
    layer: str
    inputs: list[str]
    outputs: list[str]
    states: list[str]

    def reads(self) -> list[str]:
        return [*self.inputs, *self.states]


class ProgramLayer(nn.Layer):
    """The network that a program describes, as a live layer in eval mode.

    What owns weights (convolutions, norms, linear and recurrent layers, embeddings) are layers of `paddle.nn` under the names
    of the program's parameters; every other operation is called as it stands in the program. It trains, and everything that
    takes a layer takes it.

    Args:
        graph: The program.
        weights: Its parameters, by name.

    Attributes:
        feeds: The program's inputs in order; forward takes tensors in this order.
        fetch_names: What the program calls its outputs.
        example_side: How long `example_inputs` makes a side that may vary; the program is known to run at this size.
    """

    def __init__(self, graph: Graph, weights: Mapping[str, Array]) -> None:
        super().__init__()
        if not graph.fetches:
            raise InputError("The program has no outputs; it is cut off, or no inference model.")
        if not graph.feeds:
            raise InputError(
                "The program's outputs depend on none of its inputs; it is damaged, or no network."
            )
        self.feeds: list[Feed] = list(graph.feeds.values())
        self.fetch_names = list(graph.fetch_names)
        self.example_side = 64
        self._graph = graph
        self._tensors: dict[str, paddle.Tensor] = {}
        self._steps = self._needed(self._planned(weights))
        self._own = self._bare_parameters(weights)
        self._tensors = {}
        self.eval()

    def _planned(self, weights: Mapping[str, Array]) -> list[_Step]:
        maker = LayerMaker(self._graph, weights)
        steps: list[_Step] = []
        covered: set[int] = set()
        for op in self._graph.ops:
            if op.index in covered:
                continue
            try:
                made = maker.make(op)
            except Exception as error:  # Paddle's layers check what they are given in many ways
                raise InputError(
                    f"The program cannot be imported because of {op.place}: {in_a_sentence(error)}."
                ) from error
            if made is None or not self._can_take(made):
                steps.append(_Step(op, "", op.reads(), op.writes(), []))
                continue
            covered |= made.covers
            self._take(made, weights)
            first = next(iter(made.tensors.values()), f"{op.name}_{op.index}")
            name = self._free_name(attribute_for(first))
            self.add_sublayer(name, made.layer)
            steps.append(_Step(op, name, made.inputs, made.outputs, made.states))
        return steps

    def _can_take(self, made: Made) -> bool:
        """A recurrent layer keeps a list of its own weights, and cannot share them."""
        shared = [name for name in made.tensors.values() if name in self._tensors]
        return not (shared and isinstance(made.layer, nn.layer.rnn.RNNBase))

    def _take(self, made: Made, weights: Mapping[str, Array]) -> None:
        for attribute, name in made.tensors.items():
            if name in self._tensors:
                setattr(made.layer, attribute, self._tensors[name])
                continue
            tensor = getattr(made.layer, attribute)
            values = weights[name]
            if tensor.dtype != paddle.to_tensor(values[:0]).dtype:
                made.layer.to(dtype=str(values.dtype))
                tensor = getattr(made.layer, attribute)
            tensor.set_value(values.reshape(tensor.shape))
            tensor.name = name
            self._tensors[name] = tensor

    def _free_name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._sub_layers or hasattr(self, name):
            number += 1
            name = f"{wanted}_{number}"
        return name

    def _needed(self, steps: list[_Step]) -> list[_Step]:
        """Without what no output depends on (the reshaped bias that a layer has taken over)."""
        wanted, kept = set(self._graph.fetches), []
        for step in reversed(steps):
            if wanted & set(step.outputs):
                kept.append(step)
                wanted.update(step.reads())
        return kept[::-1]

    def _bare_parameters(self, weights: Mapping[str, Array]) -> dict[str, str]:
        """Parameters that operations read themselves, as parameters of this layer: by key, the attribute."""
        read = {key for step in self._steps for key in step.reads()} | set(self._graph.fetches)
        own = {}
        for key, name in self._graph.parameters.items():
            if key not in read:
                continue
            if name not in self._tensors:
                self._tensors[name] = self._bare(name, weights[name])
            tensor = self._tensors[name]
            own[key] = self._free_name(f"own_{attribute_for(name)}")
            if isinstance(tensor, paddle.base.framework.EagerParamBase):
                self.add_parameter(own[key], tensor)
            else:
                self.register_buffer(own[key], tensor)
        return own

    def _bare(self, name: str, values: Array) -> paddle.Tensor:
        if values.dtype.kind == "f":
            start = paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))
            tensor = self.create_parameter(list(values.shape), attr=start, dtype=str(values.dtype))
            tensor.set_value(values)
        else:
            tensor = paddle.to_tensor(values)
        tensor.name = name
        return tensor

    def forward(self, x: Any, x1: Any = None, x2: Any = None, x3: Any = None, *more: Any) -> Any:
        """The program's outputs: one tensor, or a list of them.

        Takes the inputs in the program's order, one after the other, in a list, or by name in a dict. (Some have names here
        because Paddle exports no forward that takes any number of arguments.)
        """
        return self.replay(x, x1, x2, x3, *more)

    @paddle.jit.not_to_static
    def replay(self, *inputs: Any) -> Any:
        """What `forward` does; Paddle does not look into its source when it traces."""
        inputs = tuple(each for each in inputs if each is not None)
        if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)):
            inputs = tuple(inputs[0])
        elif len(inputs) == 1 and isinstance(inputs[0], Mapping):
            inputs = tuple(inputs[0][feed.name] for feed in self.feeds if feed.name in inputs[0])
        if len(inputs) != len(self.feeds):
            names = ", ".join(feed.name for feed in self.feeds)
            raise ForwardError(f"The program takes {len(self.feeds)} inputs ({names}), not {len(inputs)}.")
        values: Values = dict(zip(self._graph.feeds, inputs))
        values.update({key: getattr(self, attribute) for key, attribute in self._own.items()})
        # The numbers of a program are in single precision; who runs the network in double precision wants those so, too.
        double = any(
            feed.dtype == "float32" and x.dtype == paddle.float64 for feed, x in zip(self.feeds, inputs)
        )
        for step in self._steps:
            if step.layer:
                self._call(step, getattr(self, step.layer), values)
                continue
            self._graph.replay(step.op, values)
            if double:
                values.update({key: in_double(values[key]) for key in step.op.writes() if key in values})
        outputs = [as_tensor(values[key]) for key in self._graph.fetches]
        return outputs[0] if len(outputs) == 1 else outputs

    @staticmethod
    def _call(step: _Step, layer: Any, values: Values) -> None:
        inputs = [as_tensor(values[key]) for key in step.inputs]
        if not isinstance(layer, nn.layer.rnn.RNNBase):
            values[step.outputs[0]] = layer(*inputs)
            return
        states = [as_tensor(values[key]) for key in step.states] or None
        out, last = layer(inputs[0], states, inputs[1] if len(inputs) > 1 else None)
        values[step.outputs[0]] = out
        parts = list(last) if isinstance(last, (list, tuple)) else [last]
        # In a PIR program the states are one value, a list.
        states_out = step.outputs[1:]
        values.update(zip(states_out, parts if len(states_out) == len(parts) > 1 else [parts]))

    @property
    def input_spec(self) -> list[InputSpec]:
        """The program's own inputs, as `paddle.jit.to_static` takes them."""
        return [
            InputSpec([None if side < 0 else side for side in feed.shape], feed.dtype, feed.name)
            for feed in self.feeds
        ]

    def example_inputs(self, shapes: Sequence[Sequence[int]] = (), seed: int = 0) -> list[Array]:
        """Inputs of the program's shapes, drawn at random; a batch that may vary is one sample.

        Args:
            shapes: Of every input, or of the images alone, instead.
            seed: For the random numbers.

        Raises:
            InputError: There are fewer inputs, or they do not have such shapes.
        """
        sides = self._shapes(shapes)
        rng = np.random.default_rng(seed)
        image = max((shape for shape in sides if len(shape) == 4), default=())
        return [_drawn(rng, feed, shape, image) for feed, shape in zip(self.feeds, sides)]

    def _shapes(self, given: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        own = [self._sides(key, feed) for key, feed in self._graph.feeds.items()]
        images = [number for number, shape in enumerate(own) if len(shape) == 4]
        places = list(range(len(own))) if len(given) == len(own) else images
        if given and len(given) != len(places):
            names = ", ".join(f"{feed.name} {_in_words(feed)}" for feed in self.feeds)
            raise InputError(f"There are {len(given)} shapes for the program's inputs: {names}.")
        for number, shape in zip(places, given):
            feed = self.feeds[number]
            fits = len(shape) == len(feed.shape) and all(w in (-1, n) for w, n in zip(feed.shape, shape))
            if not fits:
                raise InputError(
                    f'The input "{feed.name}" is {_in_words(feed)}, and cannot be {list(shape)}.'
                )
            own[number] = tuple(shape)
        return own

    def _sides(self, key: str, feed: Feed) -> tuple[int, ...]:
        sides = list(feed.shape)
        if sides and sides[0] < 0:
            sides[0] = 1
        if len(sides) == 4 and sides[1] < 0:
            reading = [
                getattr(self, step.layer) for step in self._steps if step.layer and key in step.reads()
            ]
            sides[1] = next(
                (int(layer._in_channels) for layer in reading if hasattr(layer, "_in_channels")), 3
            )
        if len(sides) == 2 and sides[1] < 0:
            sides[1] = 2
        return tuple(self.example_side if side < 0 else side for side in sides)


def _in_words(feed: Feed) -> str:
    return f"[{', '.join('any' if side < 0 else str(side) for side in feed.shape)}]"


def _drawn(rng: np.random.Generator, feed: Feed, shape: Sequence[int], image: Sequence[int]) -> Array:
    """Noise for an image; a detector's other inputs are the image's size and by how much it was scaled."""
    if feed.dtype.startswith(("int", "uint")):
        return np.ones(shape, feed.dtype)
    if feed.dtype == "bool":
        return np.ones(shape, bool)
    if len(shape) == 2 and image and shape[1] == 2:
        value = image[2:] if "shape" in feed.name else (1.0, 1.0)
        return np.tile(np.asarray(value), (shape[0], 1)).astype(feed.dtype)
    return np.asarray(rng.uniform(-1, 1, shape)).astype(feed.dtype)
