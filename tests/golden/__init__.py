"""What PaddleSlim 2.6.0 on Paddle 2.6.2 says about three small networks; see README.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from .nets import INPUT_SHAPE, build

HERE = Path(__file__).parent

__all__ = ["INPUT_SHAPE", "accuracy_of", "golden_results", "trained"]


def golden_results(name: str) -> dict[str, Any]:
    """PaddleSlim's results."""
    results: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return results


def trained(name: str) -> paddle.nn.Layer:
    """The network with its trained weights, in eval mode."""
    model = build(name)
    with np.load(HERE / f"{name}.npz") as weights:
        model.set_state_dict({key: paddle.to_tensor(weights[key]) for key in weights.files})
    model.eval()
    return model


def accuracy_of(model: paddle.nn.Layer, batch: int = 199) -> Callable[[], float]:
    """Scores the model on the 597 held-out digits."""
    with np.load(HERE / "digits_eval.npz") as data:
        pictures, labels = data["x"].astype("float32") / 16, data["y"]
    pictures = pictures.repeat(4, axis=2).repeat(4, axis=3).repeat(3, axis=1)
    batches = [paddle.to_tensor(pictures[i : i + batch]) for i in range(0, len(pictures), batch)]

    def accuracy() -> float:
        model.eval()
        with paddle.no_grad():
            guesses = np.concatenate([model(x).numpy().argmax(axis=1) for x in batches])
        return float((guesses == labels).mean())

    return accuracy
