"""What the checks of the compiled copy cost: the same sweep by two states of the code, in turns.

    .venvs/paddle3/bin/python benchmarks/checks_cost.py --before OTHER_CHECKOUT [--subjects mobilenet ocr] [--rounds 2]

OTHER_CHECKOUT is a work tree of the commit to compare with. Every sweep runs in a process of its own; the figures are ratios of
CPU seconds, the sum over all rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parents[1]


def sweep(name: str, images: int) -> float:
    """CPU seconds of one sweep."""
    sys.path[:0] = [os.environ["CHECKOUT"], str(HERE / "benchmarks" / "speed")]
    import dysens

    assert Path(dysens.__file__).parents[1] == Path(os.environ["CHECKOUT"])
    import numpy as np
    import paddle

    if name == "ocr":
        from subjects import ocr_det

        subject = ocr_det(images)
        model, shape, evaluator = subject.model, subject.shape, subject.evaluator
    else:
        from dysens.evaluators import UpdateEvaluator

        class Confidence:
            """How sure a classifier is: a score for a network without training."""

            def __init__(self) -> None:
                self._values: list[float] = []

            def update(self, outputs: paddle.Tensor, batch: object) -> None:
                self._values.append(float(paddle.nn.functional.softmax(outputs).max(axis=1).mean()))

            def compute(self) -> float:
                return float(np.mean(self._values))

        paddle.seed(1)
        model, shape = paddle.vision.models.mobilenet_v1(), [1, 3, 128, 128]
        data = np.random.default_rng(0).standard_normal((images // 8, 8, *shape[1:])).astype("float32")
        evaluator = UpdateEvaluator([[paddle.to_tensor(batch)] for batch in data], Confidence)
    model.eval()
    ds = dysens.DygraphSensitivity(model, shape)
    start = time.process_time()
    # Both by the predictor of Paddle: the code before knew no other.
    named = hasattr(dysens.DygraphSensitivity, "forecast")
    ds.sensitive(evaluator, progress=False, fast="paddle" if named else "on")
    return time.process_time() - start


def _elsewhere(checkout: Path, name: str, images: int) -> float:
    command = [sys.executable, __file__, "--sweep", name, "--images", str(images)]
    settings = {**os.environ, "CHECKOUT": str(checkout.resolve()), "PYTHONPATH": str(checkout.resolve())}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=settings).stdout
    return float(output.splitlines()[-1])


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path)
    parser.add_argument("--subjects", nargs="+", default=["mobilenet", "ocr"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--images", type=int)
    parser.add_argument("--sweep", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sweep:
        print(sweep(options.sweep, options.images))
        return
    if options.before is None:
        parser.error("--before is missing: a work tree of the commit to compare with")
    for name in options.subjects:
        images = options.images or {"mobilenet": 200, "ocr": 40}[name]
        seconds = dict.fromkeys((options.before, HERE), 0.0)
        for number in range(options.rounds):
            for checkout in list(seconds)[:: 1 if number % 2 == 0 else -1]:
                seconds[checkout] += _elsewhere(checkout, name, images)
        print(
            f"{name}, {images} images: {seconds[HERE] / seconds[options.before]:.3f} of the CPU time before",
            flush=True,
        )


if __name__ == "__main__":
    main()
