"""What the tests of sweeps share."""

from __future__ import annotations

import os

import pytest

from .sweeping import Gate


@pytest.fixture
def gate(tmp_path):
    """Where processes wait until the test lets them through."""
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


@pytest.fixture(scope="session")
def ray_cluster():
    """A Ray cluster on this machine, for all tests: it takes longer to start than they do. Nothing leaves the machine."""
    from dysens.sweep._ray import start_alone

    ray = pytest.importorskip("ray", reason="Ray needs Python 3.10")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    start_alone(ray, num_cpus=4, log_to_driver=False, logging_level="ERROR", object_store_memory=100 * 2**20)
    yield ray
    ray.shutdown()


@pytest.fixture(params=["processes", "ray"])
def executor(request):
    """Where workers run that are not this process."""
    from dysens.sweep import Processes, Ray

    if request.param == "processes":
        return Processes()
    request.getfixturevalue("ray_cluster")
    return Ray("auto")
