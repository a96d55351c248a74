"""A compiled copy of a live model, with one mask per consuming layer as an extra input.

The layer is exported and run by Paddle's inference predictor with oneDNN. No shape changes while channels are masked, so one
copy serves every point of a sweep. A copy may also begin in the middle, from given outputs of earlier steps, and it may have
several predictors, so that calls of several threads run side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import paddle
from paddle import inference

from dysens.compiled._calls import Packed, UnservableError
from dysens.compiled._export import ExportSpec, Traced
from dysens.compiled._lanes import ThreadPlan
from dysens.compiled._paddle_workarounds import SYMPTOM, fusable_bias, interpolation_rewritten, quietly
from dysens.costs import cpu_config
from dysens.model import preserved

Masks = Mapping[str, np.ndarray]  # consumer path: what its input is multiplied by


class CompiledForward:
    """The forward of a model in eval mode, exported for calls of one kind.

    Args:
        model: The live layer; it is left as found, and its weights must be unmasked now.
        export_spec: What to export.
        thread_plan: How many calls run at the same time, and on how many threads.

    Attributes:
        export_spec: What was exported.
        live: See `Traced`.

    Raises:
        UnservableError: The outputs hold something that cannot be compiled.
        Exception: Whatever Paddle raises when it cannot export or load the network.
    """

    def __init__(self, model: paddle.nn.Layer, export_spec: ExportSpec, thread_plan: ThreadPlan) -> None:
        rewritten = interpolation_rewritten() if export_spec.rewrite else nullcontext()
        with preserved(model), TemporaryDirectory(prefix="dysens-") as folder, rewritten, fusable_bias():
            traced = Traced(model, export_spec)
            traced.export(Path(folder, "model"))
            predictors = _predictors(Path(folder, "model"), thread_plan)
        self.export_spec = export_spec
        self._outputs, self.live = Packed(traced.outputs.tree, ()), traced.live
        self._specs = list(export_spec.specs().values())[: len(export_spec.call.tensors)]
        self._mask_names = {c.path: f"mask_{index}" for index, c in enumerate(export_spec.consumers)}
        found = len(predictors[0].get_output_names())
        if found != len(traced.outputs.tensors):
            raise UnservableError(
                f"the exported copy has {found} outputs instead of {len(traced.outputs.tensors)}"
            )
        self._idle: SimpleQueue[_Runner] = SimpleQueue()
        for predictor in predictors:
            self._idle.put(_Runner(predictor))

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
        feeds = {f"input_{i}": tensor for i, tensor in enumerate(call.tensors)}
        feeds.update(
            {self._mask_names[path]: mask for path, mask in masks.items() if path in self._mask_names}
        )
        feeds.update({f"step_{step}": values for step, values in (given or {}).items()})
        runner = self._idle.get()
        try:
            return runner.run(feeds)
        finally:
            self._idle.put(runner)

    def __call__(self, call: Packed, masks: Masks, given: Mapping[int, np.ndarray] | None = None) -> Any:
        """The outputs as tensors, in the structure that the model returns."""
        return self.returned(self.arrays(call, masks, given))

    def returned(self, arrays: Sequence[np.ndarray]) -> Any:
        """What the model would return, from the outputs one by one."""
        return self._outputs.unpacked([paddle.to_tensor(array) for array in arrays])


class _Runner:
    """One predictor, for one call at a time."""

    def __init__(self, predictor: Any) -> None:
        self._predictor = predictor
        self._inputs = {name: predictor.get_input_handle(name) for name in predictor.get_input_names()}
        self._results = [predictor.get_output_handle(name) for name in predictor.get_output_names()]

    def run(self, feeds: Mapping[str, Any]) -> list[np.ndarray]:
        """The outputs; inputs that the program does not need may be among the feeds."""
        for name, handle in self._inputs.items():
            values = feeds[name]
            handle.copy_from_cpu(
                np.ascontiguousarray(values.numpy() if isinstance(values, paddle.Tensor) else values)
            )
        self._predictor.run()
        return [result.copy_to_cpu() for result in self._results]


def _predictors(prefix: Path, thread_plan: ThreadPlan) -> list[Any]:
    """One for each lane; they share the weights."""
    first = inference.create_predictor(cpu_config(prefix, thread_plan.threads))
    return [first, *(first.clone() for _ in range(thread_plan.lanes - 1))]


def compiled_forward(
    model: paddle.nn.Layer,
    export_spec: ExportSpec,
    thread_plan: ThreadPlan,
    given: Mapping[int, np.ndarray] | None = None,
) -> CompiledForward:
    """Export, load and try; interpolation is rewritten where the predictor cannot run it."""
    masks = {consumer.path: np.ones(consumer.shape, "float32") for consumer in export_spec.consumers}
    try:
        with quietly():
            compiled = CompiledForward(model, export_spec, thread_plan)
            compiled.arrays(export_spec.call, masks, given)
    except Exception as error:
        if SYMPTOM not in str(error) or export_spec.rewrite:
            raise
        return compiled_forward(model, replace(export_spec, rewrite=True), thread_plan, given)
    return compiled
