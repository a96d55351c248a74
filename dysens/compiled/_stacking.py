"""Whether single samples may run together: only if each of them gives together what it gives alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dysens.compiled._batches import Chunk
from dysens.compiled._calls import Packed, UnservableError, largest_difference
from dysens.compiled._copies import Accepted
from dysens.compiled._copy import Masks
from dysens.compiled._forward import FastForward
from dysens.pruning import TOLERANCE


def can_be_stacked(
    calls: Mapping[int, Packed], chunks: Sequence[Chunk], fast: FastForward, masks: Masks
) -> bool:
    """Whether samples are independent, as far as all of them show: statistics of a batch, or its maximum, may matter to one only.

    Args:
        calls: The model's arguments for each batch.
        chunks: Which of them would run together.
        fast: Gives the copies.
        masks: Of the whole model.
    """
    for chunk in chunks:
        if len(chunk.members) == 1 or chunk.call is None:
            continue
        # Each by the copy for its own size: a batch of one may take another way through the network than a batch of two.
        alone = [fast.accepted(calls[number]) for number in chunk.members]
        # What cannot run together is no reason to let the live model run all of it.
        several = fast.copies.accepted_or_none(chunk.call, fast.state) if None not in alone else None
        if several is None or not _same(chunk, calls, alone, several, masks):
            return False
    return True


def _same(
    chunk: Chunk,
    calls: Mapping[int, Packed],
    alone: Sequence[Accepted | None],
    several: Accepted,
    masks: Masks,
) -> bool:
    try:
        together = chunk.split(several.copy(chunk.call, masks)) if chunk.call is not None else []
    except UnservableError:
        return False
    one_by_one = (one.copy(calls[number], masks) for number, one in zip(chunk.members, alone) if one)
    return all(largest_difference(*pair) <= TOLERANCE for pair in zip(together, one_by_one))
