"""Who may run an exported forward: Paddle's predictor with oneDNN, and OpenVINO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import paddle
from paddle import inference

from dysens.compiled._batches import ThreadPlan
from dysens.compiled._export import Traced
from dysens.compiled._openvino import OpenVino
from dysens.compiled._runtime import Loaded, Runtime, contiguous
from dysens.costs import cpu_config
from dysens.errors import InputError, MissingExtraError


class PaddlePredictor(Runtime):
    """Paddle's own predictor. Paddle 3's (seen in 3.3.1) keeps Python's lock while it runs; Paddle 2's lets it go."""

    name = "paddle"
    title = "Paddle's predictor"
    side_by_side = paddle.__version__.startswith("2.")
    installed = True

    def load(self, traced: Traced, folder: Path, plan: ThreadPlan) -> Loaded:
        """Export, and make a predictor for each lane; they share the weights."""
        traced.save(folder / "model")
        first = inference.create_predictor(cpu_config(folder / "model", plan.threads))
        return _Predictors([first, *(first.clone() for _ in range(plan.lanes - 1))])


class _Predictors(Loaded):
    def __init__(self, predictors: Sequence[Any]) -> None:
        self._idle: SimpleQueue[_Predictor] = SimpleQueue()
        for predictor in predictors:
            self._idle.put(_Predictor(predictor))
        self.outputs = len(predictors[0].get_output_names())

    def run(self, feeds: Mapping[str, Any]) -> list[np.ndarray]:
        predictor = self._idle.get()
        try:
            return predictor.run(feeds)
        finally:
            self._idle.put(predictor)


class _Predictor:
    """One predictor, for one call at a time."""

    def __init__(self, predictor: Any) -> None:
        self._predictor = predictor
        self._inputs = {name: predictor.get_input_handle(name) for name in predictor.get_input_names()}
        self._results = [predictor.get_output_handle(name) for name in predictor.get_output_names()]

    def run(self, feeds: Mapping[str, Any]) -> list[np.ndarray]:
        for name, handle in self._inputs.items():
            handle.copy_from_cpu(contiguous(feeds[name]))
        self._predictor.run()
        return [result.copy_to_cpu() for result in self._results]


RUNTIMES: tuple[Runtime, ...] = (PaddlePredictor(), OpenVino())
FAST_CHOICES = ("auto", "on", "off", *(runtime.name for runtime in RUNTIMES))


def is_installed(fast: str) -> bool:
    """Whether what a choice asks for is there."""
    return all(runtime.installed for runtime in RUNTIMES if runtime.name == fast)


def runtimes_for(fast: str) -> list[Runtime]:
    """Those that may run a model's forward.

    Args:
        fast: A name, or "auto" or "on" for all that are installed; none for "off".

    Raises:
        InputError: There is no such choice.
        MissingExtraError: It is not installed.
    """
    if fast not in FAST_CHOICES:
        words = ", ".join(f'"{each}"' for each in FAST_CHOICES[:-1])
        raise InputError(f'The argument fast has to be {words} or "{FAST_CHOICES[-1]}", not {fast!r:.80}.')
    if fast in ("auto", "on"):
        return [runtime for runtime in RUNTIMES if runtime.installed]
    found = [runtime for runtime in RUNTIMES if runtime.name == fast]
    if any(not runtime.installed for runtime in found):
        raise MissingExtraError(f"{found[0].title} is not installed: pip install dysens[{fast}]")
    return found
