"""Latency, measured: the network is exported whole and timed in turns with the original, by whatever will run it."""

from __future__ import annotations

import importlib
import logging
import shlex
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Union

import numpy as np
import paddle
from paddle import nn
from paddle.static import InputSpec

from dysens.compiled import SYMPTOM, interpolation_rewritten, used_inputs
from dysens.costs import Predictor, median_seconds, model_files
from dysens.errors import DysensError, InputError, MissingExtraError, in_a_sentence
from dysens.flags import flag
from dysens.model import View, eagerly, leaves, map_leaves, preserved

logger = logging.getLogger(__name__)

Runtime = Union[str, Sequence[str], Callable[[Path], float]]
"""A name, a command, or a function; the latter two are given the folder of an exported model."""

_Run = Callable[[Mapping[str, np.ndarray]], Any]

NAME = "inference"  # of the files in the folder of an exported model
_ROUNDS = 30
_OWN_ROUNDS = 3  # of a function or command, which takes its own median


def export(model: nn.Layer, view: View, folder: Path, rewrite: bool = False) -> bool:
    """Write the live model as an inference model that Paddle's predictor runs: ``folder/inference.*``.

    Args:
        model: It is left as found.
        view: Gives the shapes of the inputs.
        folder: Has to be empty: a stale program of another Paddle version would be loaded instead.
        rewrite: Write interpolation in other operators at once, as a network needed it before.

    Returns:
        Whether interpolation had to be rewritten.

    Raises:
        InputError: It cannot be exported.
    """
    specs = _specs(view)

    def attempt(surroundings: AbstractContextManager[None]) -> None:
        for stale in model_files(folder / NAME):
            stale.unlink()
        with surroundings, preserved(model), paddle.no_grad():
            model.eval()
            static = paddle.jit.to_static(model, input_spec=specs, full_graph=True)
            used = used_inputs(static)
            taken = [spec for spec in leaves(specs) if isinstance(spec, InputSpec) and spec.name in used]
            paddle.jit.save(static, str(folder / NAME), input_spec=taken)
        Predictor(folder / NAME).answer(_arrays(view))

    folder.mkdir(parents=True, exist_ok=True)
    try:
        try:
            attempt(interpolation_rewritten() if rewrite else nullcontext())
        except Exception as error:
            if SYMPTOM not in str(error) or rewrite:
                raise
            attempt(interpolation_rewritten())
            return True
    except DysensError:
        raise
    except Exception as error:
        raise InputError(
            f"The model cannot be exported, so it cannot be timed: {in_a_sentence(error)}"
        ) from error
    return rewrite


def _specs(view: View) -> list[Any]:
    """The arguments' shapes, named: of inputs that the network does not use, the exported program knows nothing."""
    names = iter(_arrays(view))

    def spec(leaf: Any) -> Any:
        return (
            InputSpec(list(leaf.shape), leaf.dtype, next(names)) if isinstance(leaf, paddle.Tensor) else leaf
        )

    return list(map_leaves(spec, list(view.arguments)))


def _arrays(view: View) -> dict[str, np.ndarray]:
    tensors = [leaf for leaf in leaves(view.arguments) if isinstance(leaf, paddle.Tensor)]
    return {f"input_{place}": tensor.numpy() for place, tensor in enumerate(tensors)}


def milliseconds(folders: Mapping[str, Path], view: View, runtime: Runtime = "paddle") -> dict[str, float]:
    """The median time of each exported model, taken in turns: what else the machine does hits all of them alike.

    Args:
        folders: By name, where `export` wrote them.
        view: What they are run on.
        runtime: "paddle" (oneDNN, one thread), "openvino", "onnxruntime", a function from a folder to milliseconds, or a command
            that is given the folder as its last argument and prints milliseconds.
    """
    if runtime == "paddle":
        predictors = {name: Predictor(folder / NAME) for name, folder in folders.items()}
        seconds = median_seconds(predictors, _arrays(view), _ROUNDS, time.process_time)
        return {name: 1000 * value for name, value in seconds.items()}
    if isinstance(runtime, str) and runtime in _LIBRARIES:
        runners = {name: _LIBRARIES[runtime](folder) for name, folder in folders.items()}
        return _in_turns({n: _timed(run, _arrays(view)) for n, run in runners.items()}, _ROUNDS)
    own = runtime if callable(runtime) else _command(runtime)
    return _in_turns({name: partial(own, folder) for name, folder in folders.items()}, _OWN_ROUNDS)


def check_runtime(runtime: Runtime) -> None:
    """Look for what is to time models, before there is one.

    Raises:
        InputError: There is no such runtime or program.
        MissingExtraError: A package is not installed.
    """
    if isinstance(runtime, str) and runtime in _LIBRARIES:
        _imported(runtime)
        if runtime == "onnxruntime" or not paddle.__version__.startswith("2."):
            _imported("paddle2onnx")
    elif runtime != "paddle" and not callable(runtime):
        _command(runtime)


class Stopwatch:
    """Times variants of a model against the model itself.

    Args:
        model: The whole live layer.
        view: What it is run on.
        runtime: See `milliseconds`.
        folder: Where to export to.

    Attributes:
        difference: Between the model that was timed last and its exported form, of the largest value of its outputs; None before.
    """

    def __init__(self, model: nn.Layer, view: View, runtime: Runtime, folder: Path) -> None:
        self._model = model
        self._view = view
        self._runtime = runtime
        self._folder = folder
        self.difference: float | None = None
        self._rewrite = export(model, view, folder / "whole")

    def times(self) -> tuple[float, float]:
        """Milliseconds of the whole model, and of the model as it is now."""
        with TemporaryDirectory(dir=self._folder) as folder:
            export(self._model, self._view, Path(folder), self._rewrite)
            self.difference = self._apart(Path(folder))
            found = milliseconds(
                {"whole": self._folder / "whole", "now": Path(folder)}, self._view, self._runtime
            )
        return found["whole"], found["now"]

    def _apart(self, folder: Path) -> float:
        with preserved(self._model), eagerly(self._model, [self._view]) as (view,), paddle.no_grad():
            self._model.eval()
            made = [
                leaf.numpy() for leaf in leaves(self._model(*view.fresh())) if isinstance(leaf, paddle.Tensor)
            ]
        exported = Predictor(folder / NAME).answer(_arrays(self._view))
        if [each.shape for each in made] != [each.shape for each in exported]:
            return float("inf")
        return max(
            (
                float(np.abs(ours - theirs).max(initial=0.0) / max(np.abs(ours).max(initial=0.0), 1e-30))
                for ours, theirs in zip(made, exported)
                if np.issubdtype(ours.dtype, np.floating)
            ),
            default=0.0,
        )


def _in_turns(measure: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in measure}
    for _ in range(rounds):
        for name, once in measure.items():
            found[name].append(_checked(once()))
    return {name: float(statistics.median(values)) for name, values in found.items()}


def _checked(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.number))
        or not 0 < value < float("inf")
    ):
        raise InputError(f"The runtime has to tell how many milliseconds the model takes, not {value!r:.80}.")
    return float(value)


def _timed(run: _Run, arrays: Mapping[str, np.ndarray]) -> Callable[[], float]:
    run(arrays)  # the first answer takes longer

    def once() -> float:
        start = time.perf_counter()
        run(arrays)
        return 1000 * (time.perf_counter() - start)

    return once


def _command(command: str | Sequence[str]) -> Callable[[Path], float]:
    parts = shlex.split(command) if isinstance(command, str) else [str(part) for part in command]
    if not parts or shutil.which(parts[0]) is None:
        raise InputError(
            f'There is no program "{parts[0] if parts else ""}" to time models with; runtime is "paddle", "openvino", '
            '"onnxruntime", a function, or a command that prints milliseconds.'
        )

    def run(folder: Path) -> float:
        done = subprocess.run([*parts, str(folder)], capture_output=True, text=True, check=False)
        words = done.stdout.split()
        if done.returncode or not words:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise InputError(
                f'The program "{parts[0]}" did not time the model (exit code {done.returncode}): {last[:200]}'
            )
        try:
            return float(words[-1])
        except ValueError:
            raise InputError(
                f'The program "{parts[0]}" printed "{words[-1][:80]}" where milliseconds belong.'
            ) from None

    return run


_INSTALL = {
    "openvino": 'pip install "dysens[openvino]"',
    "onnxruntime": 'pip install "dysens[onnxruntime]"',
    "paddle2onnx": "pip install --no-deps paddle2onnx onnx",
}


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"Timing with this runtime needs {package}, which is not installed: {_INSTALL[package]} (or choose another "
            f"{flag('runtime')})."
        ) from error
    except Exception as error:  # paddle2onnx refuses versions of Paddle in its own way
        raise MissingExtraError(
            f"Timing with this runtime needs {package}, and the one that is installed does not load: {in_a_sentence(error)}"
        ) from error


def _openvino(folder: Path) -> _Run:
    openvino = _imported("openvino")

    program = folder / f"{NAME}.pdmodel"
    source = program if program.is_file() else _onnx(folder)  # it reads no program of Paddle 3
    compiled = openvino.Core().compile_model(str(source), "CPU", {"INFERENCE_NUM_THREADS": 1})
    names = [each.any_name for each in compiled.inputs]
    return lambda arrays: compiled({name: arrays[name] for name in names})


def _onnxruntime(folder: Path) -> _Run:
    onnxruntime = _imported("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(_onnx(folder)), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda arrays: session.run(None, {name: arrays[name] for name in names})


def _onnx(folder: Path) -> Path:
    paddle2onnx = _imported("paddle2onnx")

    target = folder / f"{NAME}.onnx"
    program, weights = model_files(folder / NAME)[:2]
    paddle2onnx.export(str(program), str(weights), str(target))
    return target


_LIBRARIES: dict[str, Callable[[Path], _Run]] = {
    "openvino": _openvino,
    "onnxruntime": _onnxruntime,
}
