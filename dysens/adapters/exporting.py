"""Writing a live network as an inference model that Paddle's predictor really runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paddle

from dysens.latency import Array, Inputs, Predictor, model_files
from dysens.live import preserved
from dysens.sweep.interpolation import SYMPTOM, interpolation_rewritten

logger = logging.getLogger("dysens.adapters")


@dataclass(frozen=True)
class Exported:
    """An inference model on disk.

    Attributes:
        prefix: The files' common path without endings.
        difference: The largest difference between its outputs and the network's, on the images that they were compared on.
        bytes: All files together.
    """

    prefix: Path
    difference: float
    bytes: int


def saved_and_run(
    model: paddle.nn.Layer, prefix: Path, input_spec: Sequence[Any], inputs: Inputs
) -> list[Array]:
    """Saves a network so that Paddle's default predictor runs it; the predictor's outputs for some inputs.

    Args:
        model: In eval mode.
        prefix: The files' common path without endings; what is there of an earlier export is replaced.
        input_spec: As `paddle.jit.to_static` takes it.
        inputs: As `dysens.latency.Predictor` takes them.
    """

    def attempt(surroundings: AbstractContextManager[None]) -> list[Array]:
        for stale in model_files(prefix):  # a program of another Paddle version would be loaded instead
            stale.unlink()
        with surroundings, preserved(model):  # to_static stays on a layer, with what it has traced
            paddle.jit.save(
                paddle.jit.to_static(model, input_spec=list(input_spec), full_graph=True), str(prefix)
            )
        return Predictor(prefix).answer(inputs)

    prefix.parent.mkdir(parents=True, exist_ok=True)
    try:
        return attempt(nullcontext())
    except Exception as error:
        if SYMPTOM not in str(error):
            raise
        logger.info("upsampling is written in a way that oneDNN of this Paddle version can run")
        return attempt(interpolation_rewritten())
