"""How an exported model answers, and how fast: Paddle's inference predictor on the CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from dysens.errors import InputError

Array = npt.NDArray[Any]
# In the program's order, or by the names that the program has for them.
Inputs = Union[Sequence[Array], Mapping[str, Array]]
PROGRAM_SUFFIXES = (".json", ".pdmodel")  # as Paddle 3 writes it, and as Paddle 2 does
SUFFIXES = (*PROGRAM_SUFFIXES, ".pdiparams", ".pdiparams.info")


class Predictor:
    """An exported model, ready to run.

    Args:
        prefix: The path that `paddle.jit.save` was given.
        threads: How many threads it may use.
        onednn: Whether oneDNN's kernels are used, as Paddle does by default.

    Raises:
        InputError: The files are not there.
    """

    def __init__(self, prefix: str | Path, threads: int = 1, onednn: bool = True) -> None:
        from paddle import inference

        self._predictor = inference.create_predictor(cpu_config(prefix, threads, onednn))
        names = self._predictor.get_input_names()
        self._inputs = {name: self._predictor.get_input_handle(name) for name in names}
        self._names = self._predictor.get_output_names()

    def __call__(self, *arrays: Array) -> list[Array]:
        """All outputs, in the order of the exported program."""
        return self.answer(arrays)

    def answer(self, inputs: Inputs) -> list[Array]:
        """The same for inputs in the program's order, or by name. Of the latter, those that it does not need are left out."""
        named = inputs if isinstance(inputs, Mapping) else dict(zip(self._inputs, inputs))
        for name, handle in self._inputs.items():
            handle.copy_from_cpu(np.ascontiguousarray(named[name]))
        self._predictor.run()
        return [self._predictor.get_output_handle(name).copy_to_cpu() for name in self._names]


def cpu_config(prefix: str | Path, threads: int, onednn: bool = True) -> Any:
    """How `paddle.inference` runs an exported model on the CPU, without those fusions that may end the process.

    Args:
        prefix: The path that `paddle.jit.save` was given.
        threads: How many threads one predictor may use.
        onednn: Whether oneDNN's kernels are used, as Paddle does by default.

    Raises:
        InputError: The files are not there.
    """
    from paddle import inference

    files = model_files(prefix)
    weights = Path(f"{prefix}.pdiparams")
    if weights not in files or len(files) < 2:
        raise InputError(
            f'There is no exported model at "{prefix}": it needs .pdiparams and one of {", ".join(PROGRAM_SUFFIXES)}.'
        )
    config = inference.Config(str(files[0]), str(weights))
    config.disable_gpu()
    config.disable_glog_info()
    if onednn:
        config.enable_mkldnn()
    else:
        config.disable_mkldnn()
    # Its kernel in Paddle 2.6 is for processors with AVX-512; on any other, networks with attention are an illegal instruction.
    config.delete_pass("self_attention_fuse_pass")
    if files[0].suffix == ".json" and b"leaky_relu" in files[0].read_bytes():
        # With it, Paddle 3.3.1 meets a segmentation fault.
        config.delete_pass("conv_activation_onednn_fuse_pass")
    config.set_cpu_math_library_num_threads(threads)
    return config


def model_files(prefix: str | Path) -> list[Path]:
    """The files of an exported model that are there, the program first."""
    return [path for path in (Path(f"{prefix}{suffix}") for suffix in SUFFIXES) if path.is_file()]


def file_size(prefix: str | Path) -> int:
    """Bytes of all files of an exported model."""
    return sum(path.stat().st_size for path in model_files(prefix))


def median_seconds(predictors: Mapping[str, Predictor], inputs: Inputs, rounds: int = 50) -> dict[str, float]:
    """The median time of one answer of each, taken in turns: what else the machine does hits all of them alike.

    Args:
        predictors: By name.
        inputs: What each of them is given.
        rounds: How often each is timed, after two answers that are not.
    """
    seconds: dict[str, list[float]] = {name: [] for name in predictors}
    for number in range(rounds + 2):
        for name, predictor in predictors.items():
            start = time.perf_counter()
            predictor.answer(inputs)
            if number >= 2:
                seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}
