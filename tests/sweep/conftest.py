"""What the tests of sweeps share."""

from __future__ import annotations

import pytest

from .sweeping import Gate


@pytest.fixture
def gate(tmp_path):
    """Where processes wait until the test lets them through."""
    made = Gate(tmp_path / "gate")
    yield made
    made.close()
