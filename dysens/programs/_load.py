"""From an inference model, or a Program in memory, to a live layer."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle

from dysens.compiled import quietly
from dysens.costs import Predictor
from dysens.errors import DysensError, ForwardError, InputError, ProofError, in_a_sentence
from dysens.programs._files import (
    InferenceFiles,
    check_program,
    find_inference,
    parameter_names,
    read_weights,
)
from dysens.programs._graph import Graph
from dysens.programs._layer import ProgramLayer
from dysens.programs._layers import Array
from dysens.programs._old import load_old, read_old
from dysens.programs._pir import load_pir, read_pir

logger = logging.getLogger(__name__)

TOLERANCE = 1e-3
"""Of the largest output: what rounding explains where the predictor fuses operations."""

# How long sides that may vary are made to compare, until the network runs: some want multiples of 32, some a least size.
_SIZES = (64, 96, 224, 320, 640)


def load_inference(
    path: str | os.PathLike[str], model_filename: str | None = None, params_filename: str | None = None
) -> ProgramLayer:
    """An exported inference model as a live layer, compared with Paddle's predictor on the spot.

    Args:
        path: The files' common path without endings, or the folder that they are in.
        model_filename: The program's file in the folder (``.json`` or ``.pdmodel``); by default the one that is there.
        params_filename: The weights' file; by default the one beside the program.

    Returns:
        The network in eval mode: its parameters have the names that they have in the program, gradients flow, and everything
        in dysens takes it. `save_inference` writes it back.

    Raises:
        InputError: Files are missing or damaged, or the program holds something that cannot be replayed; the message names
            the operation.
        ProofError: The layer does not give the predictor's outputs.

    Example:
        >>> model = load_inference("inference")  # doctest: +SKIP
        >>> ds = DygraphSensitivity(model, [1, 3, 640, 640])  # doctest: +SKIP
    """
    files = find_inference(path, model_filename, params_filename, prefer_pir=uses_pir())
    with in_dynamic_mode():
        model = _imported(files)
        _compare(model, files)
    return model


def uses_pir() -> bool:
    """Whether this Paddle makes programs of the new kind."""
    return bool(getattr(paddle.framework, "use_pir_api", lambda: False)())


@contextmanager
def in_dynamic_mode() -> Iterator[None]:
    """Run layers eagerly inside, even after `paddle.enable_static`."""
    static = not paddle.in_dynamic_mode()
    if static:
        paddle.disable_static()
    try:
        yield
    finally:
        if static:
            paddle.enable_static()


def read_program(program: Any, fetched: Sequence[Any] = ()) -> Graph:
    """A Program in memory, of either kind, as plain data.

    Args:
        program: A `paddle.static.Program`.
        fetched: Its outputs (variables, or names in an old program); by default what it fetches itself. Only what they are
            computed from is read, so a training program gives its forward.

    Raises:
        InputError: It holds something that cannot be replayed.
    """
    with in_dynamic_mode():
        return read_old(program, fetched) if hasattr(program, "desc") else read_pir(program, fetched)


def layer_of_program(program: Any, scope: Any, fetched: Sequence[Any] = ()) -> ProgramLayer:
    """A Program in memory as a live layer, with the weights that are in a scope.

    Args:
        program: A `paddle.static.Program` of either kind, for training or for testing; it is left as it is.
        scope: Where its parameters are, such as `paddle.static.global_scope()`.
        fetched: See `read_program`.

    Raises:
        InputError: It holds something that cannot be replayed, or a parameter has no value.
    """
    graph = read_program(program, fetched)
    weights = {name: _in_scope(scope, name) for name in graph.parameters.values()}
    with in_dynamic_mode():
        return ProgramLayer(graph, weights)


def _in_scope(scope: Any, name: str) -> Array:
    found = scope.find_var(name)
    if found is None or not found.get_tensor()._is_initialized():
        raise InputError(
            f'The parameter "{name}" has no value in the scope; run the startup program, or load weights, first.'
        )
    return np.array(found.get_tensor())


def _imported(files: InferenceFiles) -> ProgramLayer:
    if files.is_pir and not uses_pir():
        raise InputError(
            f'"{files.program}" was written by Paddle 3, and this is Paddle {paddle.__version__}, which cannot read it.'
        )
    check_program(files)
    names = None if files.is_pir else parameter_names(files.program)
    weights = read_weights(files.weights, names) if names is not None else {}
    load, read = (load_pir, read_pir) if uses_pir() else (load_old, read_old)
    try:
        with quietly():
            program = load(files.program)
            if names is None:
                weights = read_weights(files.weights, _persistable(program))
            graph = read(program)
    except DysensError:
        raise
    except Exception as error:  # Paddle's own readers fail in many ways
        raise InputError(
            f'"{files.program}" cannot be read by Paddle {paddle.__version__}: {in_a_sentence(error)}.'
        ) from error
    for key, name in graph.parameters.items():  # an LSTM's scratch space is a parameter without values
        weights.setdefault(name, np.zeros([max(side, 0) for side in graph.shapes.get(key, (0,))], "uint8"))
    _check_shapes(files, graph, weights)
    return ProgramLayer(graph, weights)


def _persistable(program: Any) -> list[str]:
    parameters = [op for op in program.global_block().ops if op.name() == "builtin.parameter"]
    return sorted(op.attrs()["parameter_name"] for op in parameters if op.result(0).persistable)


def _check_shapes(files: InferenceFiles, graph: Graph, weights: Mapping[str, Array]) -> None:
    for key, name in graph.parameters.items():
        stated, found = graph.shapes.get(key), weights[name].shape
        if stated is not None and min(stated, default=0) >= 0 and tuple(stated) != tuple(found):
            raise InputError(
                f'"{files.weights}" does not belong to "{files.program.name}": "{name}" has the shape {list(found)} there and '
                f"{list(stated)} in the program."
            )


def _compare(model: ProgramLayer, files: InferenceFiles) -> None:
    """Run layer and predictor on the same noise.

    Raises:
        ForwardError: The layer runs at no size.
        InputError: The predictor does not take the program.
        ProofError: They differ.
    """
    ours, arrays = _run_at_some_size(model, files)
    try:
        with quietly():
            # Fusions round differently, and crash on some programs that the layer has just run.
            predictor = Predictor("", onednn=False, files=(files.program, files.weights), optimised=False)
            theirs = predictor.answer({feed.name: array for feed, array in zip(model.feeds, arrays)})
    except Exception as error:
        raise InputError(
            f'Paddle\'s predictor does not take "{files.program}": {in_a_sentence(error)}.'
        ) from error
    apart = outputs_apart(ours, theirs)
    if not apart <= TOLERANCE:
        raise ProofError(
            f'The import of "{files.program}" does not give the predictor\'s outputs: they differ by {apart:.2g} of the '
            "largest. Please report the model."
        )
    logger.info("%s imported; its outputs differ from the predictor's by %.1e at most", files.program, apart)


def _run_at_some_size(model: ProgramLayer, files: InferenceFiles) -> tuple[list[Array], list[Array]]:
    varies = any(side < 0 for feed in model.feeds for side in feed.shape[1:])
    reason = ""
    for size in _SIZES if varies else _SIZES[:1]:
        model.example_side = size
        arrays = model.example_inputs()
        try:
            return run_eagerly(model, arrays), arrays
        except DysensError:
            raise
        except Exception as error:  # whatever Paddle's operations raise
            reason = in_a_sentence(error)
    raise ForwardError(f'"{files.program}" does not run on generated inputs: {reason}.')


def run_eagerly(model: ProgramLayer, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of the live layer as it is, as arrays."""
    with paddle.no_grad():
        outputs = model(*map(paddle.to_tensor, arrays))
    return [tensor.numpy() for tensor in (outputs if isinstance(outputs, list) else [outputs])]


def outputs_apart(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """The largest difference between lists of outputs, relative to the largest value of each; infinite if shapes differ."""
    if [array.shape for array in ours] != [array.shape for array in theirs]:
        return float("inf")
    gaps = [0.0]
    for mine, other in zip(ours, theirs):
        a, b = mine.astype("float64"), other.astype("float64")
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            gap = np.where(same, 0.0, np.abs(a - b)).max(initial=0.0)
        scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        gaps.append(float(gap / scale) if scale > 0 else float(gap))
    return float(np.max(gaps))
