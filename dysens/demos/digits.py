"""From a trained network to a smaller one, start to end, in a minute or two: ``python -m dysens.demos.digits``.

Written to be read as well as run: `run` is the whole story, and each step is one short function.
"""

from __future__ import annotations

import argparse
import logging
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import numpy as np
import paddle
from paddle import nn

import dysens
from dysens.compress import CompressOutcome
from dysens.data import Digits, load_digits
from dysens.progress import shown_log
from dysens.pruning import load_pruned, save_pruned
from dysens.report import Card, CardState, heat_map, sensitivity_curves, write_card, write_report
from dysens.results import Sensitivities
from dysens.sensitivity import DygraphSensitivity

SEED = 7
INPUT_SHAPE = [1, 1, 8, 8]
FLOPS_TO_REMOVE = 0.5
SAMPLES = 256


def conv_bn(inputs: int, outputs: int, stride: int = 1, groups: int = 1, kernel: int = 3) -> nn.Sequential:
    """A convolution and its batch norm."""
    padding = kernel // 2
    return nn.Sequential(
        nn.Conv2D(inputs, outputs, kernel, stride, padding, groups=groups, bias_attr=False),
        nn.BatchNorm2D(outputs),
    )


class Residual(nn.Layer):
    """Two convolutions around which the input is added: their widths are tied to the input's."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = conv_bn(channels, channels)
        self.second = conv_bn(channels, channels)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Same shape out as in."""
        return nn.functional.relu(x + self.second(nn.functional.relu(self.first(x))))


class Separable(nn.Layer):
    """A depthwise convolution (one filter a channel) and a pointwise one that changes the width."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.depthwise = conv_bn(inputs, inputs, stride=2, groups=inputs)
        self.pointwise = conv_bn(inputs, outputs, kernel=1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Half the height and width."""
        return nn.functional.relu(self.pointwise(nn.functional.relu(self.depthwise(x))))


class DigitNet(nn.Layer):
    """A small network for 8x8 digits with what makes pruning hard: residual sums and depthwise convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(1, 32)
        self.block1 = Residual(32)
        self.down1 = Separable(32, 64)
        self.block2 = Residual(64)
        self.down2 = Separable(64, 96)
        self.classifier = nn.Sequential(nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(96, 10))

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """Logits of the ten digits."""
        x = self.block1(nn.functional.relu(self.stem(images)))
        return self.classifier(self.down2(self.block2(self.down1(x))))


def train(model: nn.Layer, data: Digits, epochs: int, learning_rate: float) -> None:
    """A plain training loop; the cut model takes it just as the whole one does."""
    batches = len(data) // 60
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(learning_rate, epochs * batches)
    optimizer = paddle.optimizer.AdamW(schedule, parameters=model.parameters(), weight_decay=0.1)
    order = np.random.default_rng(SEED)
    model.train()
    for _ in range(epochs):
        for chosen in np.array_split(order.permutation(len(data)), batches):
            logits = model(paddle.to_tensor(data.images[chosen]))
            loss = nn.functional.cross_entropy(logits, paddle.to_tensor(data.labels[chosen]))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            schedule.step()


def accuracy(model: nn.Layer, data: Digits) -> float:
    """Share of the digits that the model classifies correctly."""
    model.eval()
    with paddle.no_grad():
        guesses = model(paddle.to_tensor(data.images)).numpy().argmax(axis=1)
    return float((guesses == data.labels).mean())


def say(text: str) -> None:
    """A step of the story, with an empty line before it."""
    print(f"\n{text}", flush=True)


def step_train(train_set: Digits, test_set: Digits, epochs: int) -> nn.Layer:
    """A network that is worth pruning."""
    say(f"1. Train a small network on {len(train_set)} digits (epochs: {epochs}).")
    start = time.perf_counter()
    model = DigitNet()
    train(model, train_set, epochs, learning_rate=1e-2)
    score = accuracy(model, test_set)
    print(f"   Accuracy on {len(test_set)} other digits: {score:.4f} ({_since(start)}).")
    return model


def step_groups(model: nn.Layer) -> DygraphSensitivity:
    """Which channels move together."""
    say("2. Find the groups of channels that must be cut together, and prove each by a trial cut.")
    start = time.perf_counter()
    ds = DygraphSensitivity(model, INPUT_SHAPE)
    print(ds.groups)
    print(
        f"   {len(ds.groups)} groups, all proven ({_since(start)}). Not prunable: {ds.unprunable or 'none'}"
    )
    return ds


def step_sweep(
    ds: DygraphSensitivity, eval_func: Callable[[], float], ratios: list[float] | None, folder: Path
) -> Sensitivities:
    """What each group is worth, as a journal and as pictures."""
    say(
        "3. Sweep: how much does each group lose at each ratio? Channels are masked; the weights do not change."
    )
    start = time.perf_counter()
    journal = folder / "sensitivities.jsonl"
    journal.unlink(missing_ok=True)  # of an earlier run, with other weights
    sens = ds.sensitive(eval_func, ratios=ratios, sen_file=journal)
    sensitivity_curves(sens).savefig(folder / "curves.png")
    heat_map(sens).savefig(folder / "heat_map.png")
    print(f"   {len(sens.points)} points ({_since(start)}).")
    return sens


def step_ratios(ds: DygraphSensitivity, sens: Sensitivities, eval_func: Callable[[], float]) -> Stage:
    """What the sweep's ratios cost, group by group added up: tried, and undone."""
    say(f"4. Cut {FLOPS_TO_REMOVE:.0%} of the FLOPs by the sweep's losses, measure, and undo it.")
    with ds.pruned(ds.ratios_by_flops(sens, FLOPS_TO_REMOVE)) as outcome:
        stage = Stage("cut by the sweep", eval_func(), outcome.flops_after, outcome.params_after)
    print(f"   Accuracy: {stage.accuracy:.4f}.")
    return stage


def step_compress(ds: DygraphSensitivity, data: Digits, sens: Sensitivities, quiet: bool) -> CompressOutcome:
    """The same share, decided jointly from unlabelled digits, and what goes folded into what stays."""
    say(f"5. Compress: remove the same share, decided jointly on {SAMPLES} digits without their labels.")
    start = time.perf_counter()
    outcome = ds.compress(
        [paddle.to_tensor(data.images[:SAMPLES])],
        flops=FLOPS_TO_REMOVE,
        samples=SAMPLES,
        sens=sens,
        progress=not quiet,
    )
    print(outcome.to_frame().to_string(index=False))
    print(f"   Masked and cut model differ by {outcome.proof:.0e} at most ({_since(start)}).")
    return outcome


class Stage(NamedTuple):
    """A row of the table."""

    name: str
    accuracy: float
    flops: int
    params: int


def results_table(stages: Iterable[Stage]) -> str:
    """Accuracy, FLOPs and parameters, stage by stage."""
    lines = [f"{'':<22}{'accuracy':>10}{'FLOPs':>14}{'parameters':>14}"]
    lines += [f"{s.name:<22}{s.accuracy:>10.4f}{s.flops:>14,}{s.params:>14,}" for s in stages]
    return "\n".join(lines)


def step_pages(
    folder: Path,
    ds: DygraphSensitivity,
    outcome: CompressOutcome,
    stages: Sequence[Stage],
    sens: Sensitivities,
) -> None:
    """The card of the small network, and the report of the sweep, to open in a browser."""
    left = {name: after for name, _, _, after in outcome.widths}
    card = Card(
        model="DigitNet",
        metric="accuracy",
        states=tuple(CardState(s.name, s.accuracy, None, s.flops, s.params) for s in stages),
        evaluated_on="597 digits that were not trained on",
        calibrated_on=f"{SAMPLES} training digits, without their labels",
        criterion=f"elimination with folding, allocated {outcome.allocation}",
        output_error=outcome.output_error,
        proofs={"masked_and_cut": outcome.proof},
        widths=tuple((g.path, g.channels, left.get(g.name, g.channels)) for g in ds.groups),
        versions={
            "dysens": dysens.__version__,
            "Paddle": paddle.__version__,
            "Python": platform.python_version(),
        },
        seed=SEED,
        date=datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        commands=("dysens demo",),
    )
    write_card(folder, card)
    write_report(sens, folder / "report.html", progress=False)


def run(folder: Path, quick: bool = False) -> dict[str, float]:
    """The whole story; returns the accuracy at every stage.

    Args:
        folder: Where the files go.
        quick: Train less and sweep fewer ratios: for tests, the numbers mean little.
    """
    epochs, tuning_epochs = (1, 1) if quick else (10, 4)
    ratios = [0.25, 0.5, 0.75] if quick else None
    folder.mkdir(parents=True, exist_ok=True)
    paddle.seed(SEED)
    train_set, test_set = load_digits()

    model = step_train(train_set, test_set, epochs)
    ds = step_groups(model)

    def score() -> float:
        return accuracy(model, test_set)

    score.__name__ = "accuracy"  # what the journal and the report call it

    sens = step_sweep(ds, score, ratios, folder)
    trained = score()
    by_sweep = step_ratios(ds, sens, score)
    outcome = step_compress(ds, train_set, sens, quick)
    stages = [Stage("trained", trained, outcome.flops_before, outcome.params_before), by_sweep]

    def reached(name: str, found: float) -> None:
        stages.append(Stage(name, found, outcome.flops_after, outcome.params_after))

    reached("compressed", score())
    say(f"6. Fine-tune the compressed network (epochs: {tuning_epochs}), save it, and read it back.")
    train(model, train_set, tuning_epochs, learning_rate=1e-3)
    reached("after fine-tuning", score())
    save_pruned(model, folder / "pruned")
    reloaded = load_pruned(DigitNet(), folder / "pruned")
    reached("read back from disk", accuracy(reloaded, test_set))
    print(results_table(stages))
    shown = [stage for stage in stages if stage.name in ("trained", "compressed", "after fine-tuning")]
    step_pages(folder, ds, outcome, shown, sens)
    return {stage.name: stage.accuracy for stage in stages}


def _since(start: float) -> str:
    return f"{time.perf_counter() - start:.1f} s"


FILES = {
    "card.html": "original against result, to open in a browser",
    "report.html": "the sweep, with sliders to choose ratios",
    "sensitivities.jsonl": "every measured point; Sensitivities.load reads it",
    "curves.png": "loss against ratio, a panel per group",
    "heat_map.png": "the same as a table of colours",
    "pruned.pdparams": "the weights of the pruned network",
    "pruned.plan.json": "what was cut; load_pruned needs both",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m dysens.demos.digits", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("output/demo"), help="folder for the files (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="train and sweep less, to see that it runs")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    scores = run(options.output, options.quick)
    if scores["read back from disk"] != scores["after fine-tuning"]:
        print("The network that was read back scores differently. This is a bug; please report it.")
        return 1
    say(f"Done in {_since(start)}. The files are in {options.output.resolve()}:")
    for name, content in FILES.items():
        print(f"   {name:<22}{content}")
    return 0


if __name__ == "__main__":
    with shown_log(logging.WARNING):  # Paddle 3 would show what every package logs
        raise SystemExit(main())
