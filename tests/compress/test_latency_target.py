"""Latency as a target: whole models are exported and timed by whoever will run them."""

from __future__ import annotations

import sys

import pytest

from dysens import DygraphSensitivity
from dysens.errors import InputError, MissingExtraError, UnreachableError
from tests import networks
from tests.compress.test_compress import SHAPE, images
from tests.networks import made


@pytest.fixture
def ds():
    return DygraphSensitivity(made(networks.SmallNet, width=32), SHAPE)


def size_in_kb(folder) -> float:
    """Stands for a device on which time is the size of the weights; a program's size also depends on automatic names."""
    return (folder / "inference.pdiparams").stat().st_size / 1000


def test_a_function_times_the_exported_folder(ds):
    outcome = ds.compress(images(), latency=0.25, align=None, runtime=size_in_kb, progress=False)
    assert outcome.ms_after <= 0.75 * outcome.ms_before
    assert outcome.flops_after < outcome.flops_before
    timed = [trial for trial in outcome.tried if trial.milliseconds is not None]
    assert len(timed) > 2
    missed = [trial for trial in timed if trial.milliseconds > 0.75 * outcome.ms_before]
    # What was chosen is the smallest cut that was seen to reach the target.
    assert all(trial.budget < 1 - outcome.flops_after / outcome.flops_before for trial in missed)


def test_a_command_prints_milliseconds(ds, tmp_path):
    script = tmp_path / "timer.py"
    script.write_text(
        "import pathlib, sys\n"
        "print('took', sum(f.stat().st_size for f in pathlib.Path(sys.argv[1]).glob('*.pdiparams')) / 1000)\n"
    )
    outcome = ds.compress(
        images(), latency=0.2, align=None, runtime=[sys.executable, str(script)], progress=False
    )
    assert outcome.ms_after <= 0.8 * outcome.ms_before


def test_what_cannot_be_reached_says_what_can(ds):
    with pytest.raises(UnreachableError, match=r"takes \d+% less"):
        ds.compress(images(), latency=0.5, runtime=lambda folder: 7.0, progress=False)


@pytest.mark.parametrize(
    ("runtime", "error", "says"),
    [
        ("no-such-program --fast", InputError, "no program"),
        ([sys.executable, "-c", "raise SystemExit(3)"], InputError, "exit code 3"),
        ([sys.executable, "-c", "print('fast')"], InputError, "where milliseconds belong"),
        (lambda folder: None, InputError, "how many milliseconds"),
    ],
)
def test_a_runtime_that_does_not_work_is_a_sentence(ds, runtime, error, says):
    with pytest.raises(error, match=says):
        ds.compress(images(), latency=0.2, runtime=runtime, progress=False)


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_a_runtime_that_is_not_installed_says_how_to_install_it(ds, runtime):
    try:
        __import__(runtime)
    except ImportError:
        with pytest.raises(MissingExtraError, match=r"pip install .*"):
            ds.compress(images(), latency=0.2, runtime=runtime, progress=False)
    else:
        pytest.skip(f"{runtime} is installed")
