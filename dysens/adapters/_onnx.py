"""ONNX beside an exported model, by paddle2onnx, where that can write it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dysens.atomic import write_file
from dysens.costs import Inputs, Predictor, model_files
from dysens.errors import InputError, MissingExtraError
from dysens.programs import largest_gap

logger = logging.getLogger(__name__)

TOLERANCE = 1e-3  # of the largest output

_CONVERT = "import sys, paddle, paddle2onnx; paddle2onnx.export(*sys.argv[1:4])"


def write_onnx(prefix: Path, inputs: Inputs) -> tuple[Path, float | None]:
    """Write ``prefix.onnx`` beside an inference model, and compare the two.

    Args:
        prefix: The inference model's path without endings.
        inputs: What to compare them on.

    Returns:
        The file, and the largest difference between the outputs; None without ONNX Runtime.

    Raises:
        InputError: paddle2onnx cannot write this model, or what it wrote gives other outputs.
        MissingExtraError: paddle2onnx is not installed.
    """
    if find_spec("paddle2onnx") is None:
        raise MissingExtraError(
            "Writing ONNX needs paddle2onnx, which is not installed: pip install --no-deps paddle2onnx onnx"
        )
    program, weights = _program(prefix)
    target = prefix.with_name(f"{prefix.name}.onnx")
    with TemporaryDirectory() as folder:
        written = Path(folder) / "model.onnx"
        # In a process of its own: what it does not know, it may answer by ending the process.
        run = subprocess.run(
            [sys.executable, "-c", _CONVERT, str(program), str(weights), str(written)],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0 or not written.is_file():
            said = [line.strip() for line in (run.stderr + run.stdout).splitlines() if line.strip()]
            raise InputError(
                f'paddle2onnx cannot write "{prefix}" as ONNX: {said[-1] if said else f"exit code {run.returncode}"}. The Paddle '
                "model is as it was; OpenVINO and Paddle Lite read that."
            )
        difference = _compared(prefix, written, inputs)
        content = written.read_bytes()
        write_file(target, lambda place: place.write_bytes(content))
    return target, difference


def _program(prefix: Path) -> tuple[Path, Path]:
    files = {file.suffix: file for file in model_files(prefix)}
    program = files.get(".json") or files.get(".pdmodel")
    if program is None or ".pdiparams" not in files:
        raise InputError(f'There is no exported model "{prefix}".')
    return program, files[".pdiparams"]


def _compared(prefix: Path, written: Path, inputs: Inputs) -> float | None:
    if find_spec("onnxruntime") is None:
        logger.warning("The ONNX model was not compared with the other: onnxruntime is not installed.")
        return None
    import onnxruntime  # type: ignore[import-untyped]

    expected = Predictor(prefix).answer(inputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every constant that is not used
    session = onnxruntime.InferenceSession(str(written), options, providers=["CPUExecutionProvider"])
    given = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
    got = session.run(None, {each.name: value for each, value in zip(session.get_inputs(), given)})
    difference = largest_gap([np.asarray(each) for each in got], expected)
    scale = max((float(np.abs(each).max(initial=0.0)) for each in expected), default=0.0)
    if not difference <= TOLERANCE * max(scale, 1.0):
        raise InputError(
            f'What paddle2onnx makes of "{prefix}" gives other outputs (they differ by {difference:.2g}); it was not kept.'
        )
    return difference
