"""What every demo has to end with."""

from __future__ import annotations

import re

import pytest

from dysens.pipeline import EXPORTED, ORIGINAL, PRUNED, TRAINED


def check_table(printed, lowest_score, flops_left):
    """The table that a demo printed: four states, smaller after the cut, the same exported as live."""
    found = {
        state: [float(number.replace(",", "")) for number in numbers.split()]
        for state, numbers in re.findall(
            r"^(\S+)\s+([\d., ]+)$", re.sub(r" ± [\d.]+", "", printed), re.MULTILINE
        )
    }
    assert list(found) == [ORIGINAL, PRUNED, TRAINED, EXPORTED]
    score, flops, params, size, milliseconds = zip(*found.values())
    assert score[0] > lowest_score
    assert score[3] == pytest.approx(score[2], abs=0.02)
    assert flops[1] <= flops_left * flops[0]
    assert flops[1:] == (flops[1],) * 3
    assert params[1] < params[0]
    assert size[1] < size[0]
    assert min(milliseconds) > 0
