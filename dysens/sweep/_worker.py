"""One worker of a sweep: builds the model again and measures the points that no other worker has claimed.

`dysens.sweep` starts it and gives it its `Job` on standard input.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.criteria import GroupCriterion
from dysens.errors import DysensError, InputError, nearest
from dysens.evaluators import checked_baseline
from dysens.groups import ChannelGroup, Role, roles_of
from dysens.model import fingerprint, tensors_by_path
from dysens.results import Header, Journal, Owner
from dysens.sweep._options import Build, Built, RunOptions, scorer_of
from dysens.sweep._sweep import Sweep

_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True)
class Job:
    """What every worker is told.

    Attributes:
        groups: What to sweep.
        units: What each ratio removes from each group, by layer path and ratio: the same for all workers.
        ratios: The ratios.
        header: What the journal was opened with.
        journal: Its place.
        parent: Who started the worker; without it, the worker ends.
        options: How it may use the machine, and what makes the model and what scores it.
        compensating: The criterion, if it compensates for what goes; what goes is chosen already.
    """

    groups: Sequence[ChannelGroup]
    units: Mapping[tuple[str, float], np.ndarray]
    ratios: Sequence[float]
    header: Header
    journal: Path
    parent: Owner
    options: RunOptions
    compensating: GroupCriterion | None = None

    def choose(self, group: ChannelGroup, ratio: float) -> np.ndarray:
        """What a ratio removes from a group."""
        return self.units[group.path, ratio]


def work(job: Job) -> None:
    """Measure until all points are there."""
    assert job.options.build is not None
    model, eval_func = _built(job.options.build)
    names = {path: tensor.name for path, tensor in tensors_by_path(model).items()}
    other = next((group for group in job.groups if group.path not in names), None)
    if other is not None:
        raise InputError(
            f'The network that build makes has no weight "{other.path}"; is it the same network?'
        )
    # Automatic names may have shifted; the layer path is what the groups are known by.
    groups = [replace(group, name=names[group.path]) for group in job.groups]
    roles: Mapping[str, Role] = roles_of(model)
    if job.compensating is not None:
        roles = job.compensating.compensate(roles)
    cores = int(os.environ["OMP_NUM_THREADS"])
    better = job.header.higher_is_better
    scorer = scorer_of(model, roles, groups, eval_func, better, options=job.options, cores=cores)
    here = replace(
        job.header,
        weights=fingerprint(model),
        higher_is_better=scorer.higher_is_better,
        baseline=checked_baseline(scorer.score()),
        paths={group.name: group.path for group in groups},
    )
    differences = job.header.differences(here)
    if differences:
        raise InputError(
            f"What build makes is not what is being swept: {'; '.join(differences)}. It has to load the same weights and "
            "score them on the same data."
        )
    journal = Journal.open(job.journal, replace(here, baseline=job.header.baseline))
    sweep = Sweep(roles, groups, job.choose, job.ratios, scorer, job.header.baseline, alone=False)
    sweep.run(journal, show_progress=False)


def _built(build: Build) -> Built:
    function = imported(build) if isinstance(build, str) else build
    made: Any = function()
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], paddle.nn.Layer)):
        raise InputError(
            f"build has to return the model and its evaluator (or eval_func), not {made!r:.80}: return model, evaluator"
        )
    return made[0], made[1]


def imported(name: str, what: str = "build") -> Callable[..., Any]:
    """The function that "package.module:function" names.

    Args:
        name: The name.
        what: What the function is for, for messages.

    Raises:
        InputError: There is no such function.
    """
    module_name, _, function_name = name.partition(":")
    if not (module_name and function_name):
        raise InputError(f'{what} has to be "package.module:function", not "{name}".')
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise InputError(f'{what} "{name}" cannot be imported: {error}.') from error
    if not callable(getattr(module, function_name, None)):
        hint = nearest(function_name, dir(module)) or "."
        raise InputError(
            f'{what} "{name}" does not exist: {module_name} has no function "{function_name}"{hint}'
        )
    function: Callable[..., Any] = getattr(module, function_name)
    return function


def _end_with(parent: Owner) -> None:
    """A worker without its parent is an orphan that nobody would ever stop."""
    while parent.is_alive():
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def main() -> int:
    """Read the job, do it, and write what went wrong, if anything did, to the file that the first argument names."""
    # Ctrl-C reaches the whole terminal; the parent decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        job: Job = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with, args=(job.parent,), daemon=True).start()
        work(job)
    except Exception as error:
        traceback.print_exc()
        said = str(error) if isinstance(error, DysensError) else f"{type(error).__name__}: {error}"
        Path(sys.argv[1]).write_text(said, encoding="utf-8")
        return 1
    return 0
