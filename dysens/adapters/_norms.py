"""Batch norms while a network that has its weights already trains on.

They take over the statistics of the first few batches within some steps. Where these are of other images than the network was
trained with, or of very few, that alone can cost more than a cut did. So both are measured on training images first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import paddle
from paddle import nn

from dysens.adapters._shared import seeded
from dysens.errors import in_a_sentence
from dysens.flags import setting
from dysens.model import leaves, preserved
from dysens.progress import progress

logger = logging.getLogger(__name__)

FREEZE = "freeze_norm"  # of a config: whether batch norms keep their statistics; by default that is measured
BATCHES, IMAGES = 4, 64  # to compare them on at most
BATCH_NORMS = (nn.BatchNorm, nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D, nn.SyncBatchNorm)


def norms_of(network: nn.Layer, but: Sequence[str] = ()) -> list[nn.Layer]:
    """The batch norms of a network, but for those in some branches."""
    left_out = tuple(f"{path}." for path in but)
    return [
        layer
        for path, layer in network.named_sublayers()
        if isinstance(layer, BATCH_NORMS) and not path.startswith(left_out)
    ]


@contextmanager
def frozen_norms(norms: Sequence[nn.Layer]) -> Iterator[None]:
    """Batch norms use the statistics that they have in training too, and leave them alone; scales and shifts still learn."""
    before = [layer._use_global_stats for layer in norms]
    try:
        for layer in norms:
            layer._use_global_stats = True
        yield
    finally:
        for layer, value in zip(norms, before):
            layer._use_global_stats = value


def statistics_fit(
    network: nn.Layer,
    norms: Sequence[nn.Layer],
    loader: Iterable[Any],
    loss: Callable[[Any], Any],
    seed: int,
    key: str = FREEZE,
) -> bool:
    """Whether the loss on training images is lower with the statistics that batch norms have than with the batches' own.

    Args:
        network: It is left as found.
        norms: Its batch norms.
        loader: Batches to train with; a few are taken.
        loss: From a batch to its training loss.
        seed: For all that is drawn.
        key: What decides it in a config, for the log.
    """
    if not norms:
        return False
    try:
        kept, of_batches = losses_by_statistics(network, norms, loader, loss, seed)
    except Exception as error:  # whatever a network raises that its framework's loop calls in another way
        logger.warning(
            "Batch norms follow the batches; whether they should was not measured: %s", in_a_sentence(error)
        )
        return False
    fit = kept < of_batches
    logger.info(
        "Batch norms %s: the loss on training images is %.3f with the statistics that they have, and %.3f with those of the "
        "batches (%s decides otherwise).",
        "keep their statistics" if fit else "follow the batches",
        kept,
        of_batches,
        setting(f"{key}={str(not fit).lower()}"),
    )
    return fit


def losses_by_statistics(
    network: nn.Layer,
    norms: Sequence[nn.Layer],
    loader: Iterable[Any],
    loss: Callable[[Any], Any],
    seed: int,
) -> tuple[float, float]:
    """The mean loss on a few training batches with the statistics that batch norms have, and with the batches' own."""
    with seeded(seed):
        batches = _few(loader)

    with progress(2 * len(batches), "compare batch norms", unit="forward") as shown:

        def measured(before: int) -> float:
            total = 0.0
            with preserved(network), seeded(seed), paddle.no_grad():
                network.train()
                for number, batch in enumerate(batches):
                    total += float(loss(batch))
                    shown.reach(before + number + 1)
            return total / len(batches)

        with frozen_norms(norms):
            kept = measured(0)
        return kept, measured(len(batches))


def _few(loader: Iterable[Any]) -> list[Any]:
    """The first batches, as many as are needed."""
    found: list[Any] = []
    images = 0
    for batch in islice(loader, BATCHES):
        found.append(batch)
        images += max((leaf.shape[0] for leaf in leaves(batch) if getattr(leaf, "ndim", 0) == 4), default=0)
        if images >= IMAGES:
            break
    return found
