"""What the tests of this room share."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dysens
from dysens.results import Header, Point

GOLDEN = Path(__file__).parents[1] / "golden"
PATHS = {"conv2d_0.w_0": "stem.0.weight", "conv2d_1.w_0": "block.conv.weight"}


def header(**changes):
    fields = {
        "model": "TinyNet",
        "weights": "c0ffee",
        "criterion": "fpgm",
        "evaluator": "accuracy",
        "baseline": 0.9,
        "paths": PATHS,
    }
    return Header(**{**fields, **changes})


def point(param="conv2d_0.w_0", ratio=0.3, loss=0.1, **changes):
    fields = {"param": param, "path": PATHS.get(param, ""), "ratio": ratio, "metric": 0.8, "loss": loss}
    return Point(**{**fields, "seconds": 1.5, **changes})


def golden_sensitivities(name, criterion):
    """Sensitivities and ratios at loss 0.05, as PaddleSlim computed them."""
    content = json.loads((GOLDEN / f"{name}.json").read_text())["criteria"][criterion]
    curves = {
        param: {float(ratio): loss for ratio, loss in losses.items()}
        for param, losses in content["sensitivities"].items()
    }
    return curves, content["ratios_at_loss_0.05"]


def start_python(script, *arguments):
    """A process that runs ``script`` with dysens importable."""
    environment = {**os.environ, "PYTHONPATH": str(Path(dysens.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_python(script, *arguments, timeout=120):
    """Its standard output; the process must succeed."""
    process = start_python(script, *arguments)
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out
