"""What a live model costs: FLOPs and parameters counted, and how fast its export answers on the CPU.

FLOPs are as `paddle.flops` counts them (one multiply-add is one FLOP). `paddle.flops` itself prints, takes one tensor only and
leaves buffers behind in layers that did not run. So its counting functions are called here one by one, on the live layer, which
stays untouched. What they do not know but has weights (recurrent layers, subclasses of known ones) is counted by us and named in
`Cost.counted_by_us`, and so are matrix products inside attention; weighted layers that cannot be counted are named in
`Cost.uncounted`, never added as a silent zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import numpy as np
import numpy.typing as npt
import paddle
from paddle import nn
from paddle.hapi.dynamic_flops import register_hooks as paddle_counters
from paddle.nn.layer.rnn import RNNBase, RNNCellBase

from dysens.costs._products import Products
from dysens.errors import InputError
from dysens.model import View, eagerly, preserved


@dataclass(frozen=True)
class Cost:
    """The cost of one forward pass.

    Attributes:
        flops: All layers together.
        params: Entries of all trainable parameters and of batch statistics, as `paddle.flops` counts them.
        by_layer: FLOPs of each layer that has any, by path.
        products: FLOPs of products of computed tensors, as attention has them, by the path of the layer that makes them; "" is
            the model itself.
        counted_by_us: Layers that `paddle.flops` counts as zero, and dysens does not.
        uncounted: Layers with weights whose FLOPs cannot be counted.
    """

    flops: int
    params: int
    by_layer: dict[str, int] = field(default_factory=dict)
    products: dict[str, int] = field(default_factory=dict)
    counted_by_us: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()


class _Counter:
    """Stands in for a layer in Paddle's counting functions, which add to ``m.total_ops``."""

    def __init__(self, layer: nn.Layer) -> None:
        self._layer = layer
        self.total_ops = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def cost_of(model: nn.Layer, view: View) -> Cost:
    """Run the model once and count."""
    flops: dict[str, int] = {}
    ours: list[str] = []
    unknown: list[tuple[str, nn.Layer]] = []
    products = Products()

    def watch(path: str, layer: nn.Layer, count: Callable[..., None]) -> None:
        def hook(_: nn.Layer, given: Any, returned: Any) -> None:
            counter = _Counter(layer)
            count(counter, given, returned)
            flops[path] = flops.get(path, 0) + int(counter.total_ops)

        layer.register_forward_post_hook(hook)

    with preserved(model), eagerly(model, [view]) as (eager_view,), paddle.no_grad():
        for path, layer in model.named_sublayers(include_self=True):
            layer.training = False
            known = type(layer) in paddle_counters
            counter = paddle_counters[type(layer)] if known else _our_counter(layer)
            products.watch(path, layer, counter is not None)
            if counter is not None:
                watch(path, layer, counter)
                ours += [] if known else [path]
            elif not layer.sublayers() and any(p.ndim > 1 for p in layer.parameters()):
                unknown.append((path, layer))
        with products.counting():
            model(*eager_view.fresh())
    counted = {path: count for path, count in products.flops.items() if count}
    return Cost(
        sum(flops.values()) + sum(counted.values()),
        count_params(model),
        {path: count for path, count in flops.items() if count},
        counted,
        (*(path for path in ours if flops.get(path)), *map(_product_name, counted)),
        tuple(path for path, layer in unknown if not _multiplied(layer, products)),
    )


def _product_name(path: str) -> str:
    return f"{path} (matrix products)" if path else "matrix products"


def _multiplied(layer: nn.Layer, products: Products) -> bool:
    """Whether all that such a layer does with its weights is to multiply by them."""
    return all(id(p) in products.factors for p in layer.parameters() if p.ndim > 1)


def count_params(model: nn.Layer) -> int:
    """Entries of all parameters, batch statistics included."""
    return sum(int(parameter.size) for parameter in model.parameters())


def _our_counter(layer: nn.Layer) -> Callable[..., None] | None:
    if isinstance(layer, RNNBase):
        return _count_recurrent
    if isinstance(layer, RNNCellBase):
        return _count_cell
    known = next((kind for kind in type(layer).__mro__ if kind in paddle_counters), None)
    return paddle_counters[known] if known is not None else None


def _count_recurrent(counter: Any, given: Any, returned: Any) -> None:
    """Every weight of every layer and direction is used once a time step."""
    outputs = returned[0]
    steps = int(outputs.shape[0]) * int(outputs.shape[1])
    weights = [p for name, p in counter._layer._parameters.items() if name.startswith("weight")]
    counter.total_ops += steps * sum(int(weight.size) for weight in weights)


def _count_cell(counter: Any, given: Any, returned: Any) -> None:
    weights = [p for name, p in counter._layer._parameters.items() if name.startswith("weight")]
    counter.total_ops += int(given[0].shape[0]) * sum(int(weight.size) for weight in weights)


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
        files: Program and weights, where they have no common path.
        optimised: Whether operations are fused first, as Paddle does by default.

    Raises:
        InputError: The files are not there.
    """

    def __init__(
        self,
        prefix: str | Path,
        threads: int = 1,
        onednn: bool = True,
        files: tuple[Path, Path] | None = None,
        optimised: bool = True,
    ) -> None:
        from paddle import inference

        config = cpu_config(prefix, threads, onednn, files)
        config.switch_ir_optim(optimised)
        self._predictor = inference.create_predictor(config)
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


def cpu_config(
    prefix: str | Path, threads: int, onednn: bool = True, files: tuple[Path, Path] | None = None
) -> Any:
    """How `paddle.inference` runs an exported model on the CPU, without those fusions that may end the process.

    Args:
        prefix: The path that `paddle.jit.save` was given.
        threads: How many threads one predictor may use.
        onednn: Whether oneDNN's kernels are used, as Paddle does by default.
        files: Program and weights, where they have no common path.

    Raises:
        InputError: The files are not there.
    """
    from paddle import inference

    program, weights = files if files is not None else _files_at(prefix)
    config = inference.Config(str(program), str(weights))
    config.disable_gpu()
    config.disable_glog_info()
    if onednn:
        config.enable_mkldnn()
    else:
        config.disable_mkldnn()
    # Its kernel in Paddle 2.6 is for processors with AVX-512; on any other, networks with attention are an illegal instruction.
    config.delete_pass("self_attention_fuse_pass")
    if program.suffix == ".json" and b"leaky_relu" in program.read_bytes():
        # With it, Paddle 3.3.1 meets a segmentation fault.
        config.delete_pass("conv_activation_onednn_fuse_pass")
    if paddle.__version__.startswith("2."):
        # Otherwise all that lies between layers is kept, a gigabyte for a batch of text lines. Paddle 3 frees it by itself, and
        # refuses this for its own programs.
        config.enable_memory_optim()
    config.set_cpu_math_library_num_threads(threads)
    return config


def _files_at(prefix: str | Path) -> tuple[Path, Path]:
    import paddle

    files = model_files(prefix)
    weights = Path(f"{prefix}.pdiparams")
    if weights not in files or len(files) < 2:
        raise InputError(
            f'There is no exported model at "{prefix}": it needs .pdiparams and one of {", ".join(PROGRAM_SUFFIXES)}.'
        )
    programs = [file for file in files if file.suffix in PROGRAM_SUFFIXES]
    # Paddle 2 crashes on a program of Paddle 3 that lies beside its own.
    return programs[-1] if paddle.__version__.startswith("2.") else programs[0], weights


def model_files(prefix: str | Path) -> list[Path]:
    """The files of an exported model that are there, the program first."""
    return [path for path in (Path(f"{prefix}{suffix}") for suffix in SUFFIXES) if path.is_file()]


def file_size(prefix: str | Path) -> int:
    """Bytes of all files of an exported model."""
    return sum(path.stat().st_size for path in model_files(prefix))


def median_seconds(
    predictors: Mapping[str, Predictor],
    inputs: Inputs,
    rounds: int = 50,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median time of one answer of each, taken in turns: what else the machine does hits all of them alike.

    Args:
        predictors: By name.
        inputs: What each of them is given.
        rounds: How often each is timed, after two answers that are not.
        clock: For one thread, ``time.process_time`` is right on a busy machine too, where turns fall in with its scheduler.
    """
    seconds: dict[str, list[float]] = {name: [] for name in predictors}
    for number in range(rounds + 2):
        for name, predictor in predictors.items():
            start = clock()
            predictor.answer(inputs)
            if number >= 2:
                seconds[name].append(clock() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}
