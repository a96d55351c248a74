"""What training by a framework's own loop needs besides: draws that repeat, and the optimizer of another process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.errors import InputError
from dysens.pruning import NAME_TABLE, read_state, renamed_state


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
