"""A compiled copy of a live model, with one mask per consuming layer as an extra input.

The layer is traced and run by one of the runtimes. No shape changes while channels are masked, so one
copy serves every point of a sweep. A copy may also begin in the middle, from given outputs of earlier steps. What Paddle's
export and predictor need to run a network (rewritten operators, silence) comes first.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional
from paddle.tensor.math import _add_with_axis

from dysens.compiled._batches import ThreadPlan
from dysens.compiled._calls import Packed, UnservableError
from dysens.compiled._export import ExportSpec, Traced
from dysens.compiled._runtime import Loaded, Runtime
from dysens.model import give_memory_back, preserved

_OPS = ("linear_interp", "bilinear_interp", "trilinear_interp", "nearest_interp", "bicubic_interp")
# What the predictor says when it meets the op.
SYMPTOM = "ConvertPirAttribute2RuntimeAttribute"


@contextmanager
def interpolation_rewritten() -> Iterator[None]:
    """Replace interpolation by operators that every predictor runs, within this context."""
    # The ops are replaced where all callers look them up, however they imported `interpolate` itself.
    ops = paddle._C_ops
    originals = {name: getattr(ops, name) for name in _OPS}
    try:
        for name, original in originals.items():
            setattr(ops, name, _rewritten(original))
        yield
    finally:
        for name, original in originals.items():
            setattr(ops, name, original)


def _rewritten(original: Callable[..., Any]) -> Callable[..., Any]:
    def interpolate(x: Any, *settings: Any) -> Any:
        if original.__name__ == "nearest_interp":
            factors = _whole_factors(x, *settings)
            if factors is not None:
                return _repeated(x, *factors)
        if x.dtype != paddle.float32:
            return original(x, *settings)
        # oneDNN has no 64-bit kernels, so Paddle's own runs.
        return original(x.astype("float64"), *settings).astype("float32")

    return interpolate


def _whole_factors(
    x: Any,
    out_size: Any,
    size_tensor: Any,
    scale_tensor: Any,
    layout: str,
    depth: int,
    height: int,
    width: int,
    scale: list[float],
    *_: Any,
) -> tuple[int, int] | None:
    """How often each pixel is repeated downwards and sideways, if that is known and whole."""
    if layout != "NCHW" or len(x.shape) != 4 or x.shape[1] <= 0 or scale_tensor is not None:
        return None
    if out_size is not None or size_tensor is not None:
        return None
    factors = list(scale)
    if height > 0 and width > 0:
        if min(x.shape[2:]) <= 0:
            return None
        factors = [height / x.shape[2], width / x.shape[3]]
    if len(factors) != 2 or any(factor < 1 or factor != int(factor) for factor in factors):
        return None
    return int(factors[0]), int(factors[1])


def _repeated(x: Any, down: int, sideways: int) -> Any:
    """Each pixel as a block: a depthwise transposed convolution with ones, which oneDNN runs faster than a tiling."""
    channels = x.shape[1]
    ones = paddle.ones([channels, 1, down, sideways], dtype=x.dtype)
    return paddle.nn.functional.conv2d_transpose(x, ones, stride=[down, sideways], groups=channels)


# Where `data_format` is among the positional arguments after the bias.
_LAYOUT = 6


@contextmanager
def fusable_bias() -> Iterator[None]:
    """Inside, transposed convolutions that are traced add their bias so that it can be fused."""
    original = functional.conv2d_transpose

    def conv2d_transpose(x: Any, weight: Any, bias: Any = None, *settings: Any, **named: Any) -> Any:
        layout = named.get("data_format", settings[_LAYOUT] if len(settings) > _LAYOUT else "NCHW")
        if bias is None or paddle.in_dynamic_mode() or layout != "NCHW":
            return original(x, weight, bias, *settings, **named)
        return _add_with_axis(original(x, weight, None, *settings, **named), bias, axis=1)

    functional.conv2d_transpose = conv2d_transpose
    try:
        yield
    finally:
        functional.conv2d_transpose = original


@contextmanager
def quietly() -> Iterator[None]:
    """Hush Python warnings, the log of Paddle's converter, and what its C++ code prints to standard output."""
    converter = logging.getLogger("dy2static")
    level = converter.level
    converter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), _output_to_errors():
            warnings.simplefilter("ignore")
            yield
    finally:
        converter.setLevel(level)


@contextmanager
def _output_to_errors() -> Iterator[None]:
    """What C++ code prints goes to standard error, so that a program's own output stays clean."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        if os.name == "posix":
            ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


Masks = Mapping[str, np.ndarray]  # consumer path: what its input is multiplied by


class CompiledForward:
    """The forward of a model in eval mode, exported for calls of one kind.

    Args:
        export_spec: What was exported.
        traced: The traced model.
        runtime: Who runs it.
        loaded: What the runtime made of it.

    Attributes:
        export_spec: What was exported.
        live: See `Traced`.
        runtime: Who runs it.

    Raises:
        UnservableError: The runtime gives something else than the model returns.
    """

    def __init__(self, export_spec: ExportSpec, traced: Traced, runtime: Runtime, loaded: Loaded) -> None:
        self.export_spec = export_spec
        self.runtime = runtime
        self._loaded = loaded
        self._outputs, self.live = Packed(traced.outputs.tree, ()), traced.live
        self._specs = list(export_spec.specs().values())[: len(export_spec.call.tensors)]
        self._mask_names = {c.path: f"mask_{index}" for index, c in enumerate(export_spec.consumers)}
        if loaded.outputs != len(traced.outputs.tensors):
            raise UnservableError(
                f"the exported copy has {loaded.outputs} outputs instead of {len(traced.outputs.tensors)}"
            )

    def fits(self, call: Packed) -> bool:
        """Whether the shapes of these inputs are among those that it was exported for."""
        return all(
            len(spec.shape) == len(tensor.shape)
            and all(wanted in (-1, side) for wanted, side in zip(spec.shape, tensor.shape))
            for spec, tensor in zip(self._specs, call.tensors)
        )

    def arrays(
        self, call: Packed, masks: Masks, given: Mapping[int, np.ndarray] | None = None
    ) -> list[np.ndarray]:
        """The outputs one by one. May be called from several threads at a time.

        Args:
            call: A call of the kind that was exported.
            masks: By consumer path.
            given: The outputs of earlier steps, where the export begins with them.
        """
        feeds = self._feeds(call, masks)
        feeds.update({f"step_{step}": values for step, values in (given or {}).items()})
        return self._loaded.run(feeds)

    def keep_only(self, calls: Iterable[Packed], masks: Masks) -> None:
        """Let go of what was made ready for calls of other sizes; it is made again if they come.

        Args:
            calls: Those to be ready for.
            masks: By consumer path.
        """
        self._loaded.keep_only([self._feeds(call, masks) for call in calls])

    def _feeds(self, call: Packed, masks: Masks) -> dict[str, Any]:
        feeds: dict[str, Any] = {f"input_{i}": tensor for i, tensor in enumerate(call.tensors)}
        feeds.update(
            {self._mask_names[path]: mask for path, mask in masks.items() if path in self._mask_names}
        )
        return feeds

    @property
    def part_seconds(self) -> float | None:
        """How long a part takes to make at most, for inputs of one size; None where the runtime has no parts."""
        return self._loaded.part_seconds

    def part(
        self, paths: Collection[str], given: Collection[int] = (), wanted: Collection[int] = ()
    ) -> CompiledForward:
        """What it computes from the outputs of earlier steps, or until some steps, without tracing the model again.

        Args:
            paths: The consumers that are masked; the masks of others count as all ones.
            given: Steps to begin with.
            wanted: Steps whose outputs `arrays` is to give, instead of those of the model.

        Raises:
            UnservableError: The runtime has no such part.
        """
        found = copy(self)
        found._loaded = self._loaded.part(given, wanted, {self._mask_names[path] for path in paths})
        return found

    def __call__(self, call: Packed, masks: Masks, given: Mapping[int, np.ndarray] | None = None) -> Any:
        """The outputs as tensors, in the structure that the model returns."""
        return self.returned(self.arrays(call, masks, given))

    def returned(self, arrays: Sequence[np.ndarray]) -> Any:
        """What the model would return, from the outputs one by one."""
        return self._outputs.unpacked([paddle.to_tensor(array) for array in arrays])


def compiled_forwards(
    model: paddle.nn.Layer,
    export_spec: ExportSpec,
    plans: Mapping[Runtime, ThreadPlan],
    given: Mapping[int, np.ndarray] | None = None,
) -> tuple[list[CompiledForward], dict[Runtime, Exception]]:
    """Trace once, then load and try in every runtime; interpolation is rewritten where Paddle's predictor cannot run it.

    Args:
        model: The live layer; it is left as found, and its weights must be unmasked now.
        export_spec: What to export.
        plans: By runtime, how many calls run at the same time, and on how many threads.
        given: The outputs of earlier steps for the example call, where the export begins with them.

    Returns:
        The copies that run, and why others do not.

    Raises:
        UnservableError: The outputs hold something that cannot be compiled.
        Exception: Whatever Paddle raises when it cannot trace the network.
    """
    masks = {consumer.path: np.ones(consumer.shape, "float32") for consumer in export_spec.consumers}
    found: list[CompiledForward] = []
    failed: dict[Runtime, Exception] = {}
    rewritten = interpolation_rewritten() if export_spec.rewrite else nullcontext()
    with quietly():
        with preserved(model), TemporaryDirectory(prefix="dysens-") as folder, rewritten, fusable_bias():
            traced = Traced(model, export_spec)
            traced.trace()
            loaded = {}
            for runtime, plan in plans.items():
                try:
                    loaded[runtime] = runtime.load(traced, Path(folder), plan)
                except Exception as error:  # loading fails in ways that cannot be listed
                    failed[runtime] = error
        for runtime, each in loaded.items():
            try:
                found.append(CompiledForward(export_spec, traced, runtime, each))
                found[-1].arrays(export_spec.call, masks, given)
            except Exception as error:
                failed[runtime] = error
                found = [copy for copy in found if copy.runtime is not runtime]
    give_memory_back()
    again = {r: plans[r] for r, error in failed.items() if SYMPTOM in str(error) and not export_spec.rewrite}
    if again:
        copies, failures = compiled_forwards(model, replace(export_spec, rewrite=True), again, given)
        found += copies
        failed = {r: error for r, error in failed.items() if r not in again} | failures
    return found, failed


def compiled_forward(
    model: paddle.nn.Layer,
    export_spec: ExportSpec,
    runtime: Runtime,
    thread_plan: ThreadPlan,
    given: Mapping[int, np.ndarray] | None = None,
) -> CompiledForward:
    """`compiled_forwards` in one runtime, which has to run it."""
    found, failed = compiled_forwards(model, export_spec, {runtime: thread_plan}, given)
    if not found:
        raise failed[runtime]
    return found[0]
