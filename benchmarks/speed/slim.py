"""PaddleSlim's own `sensitive`, one point at a time."""

from __future__ import annotations

import logging
import pickle
import tempfile
import time
from pathlib import Path

from paddleslim.dygraph import FPGMFilterPruner
from paddleslim.dygraph.prune.filter_pruner import Status
from points import remembering
from subjects import Subject

RATIOS = [round(0.1 * step, 1) for step in range(1, 10)]


class Slim:
    """PaddleSlim on one subject.

    Attributes:
        groups: The parameters whose sensitivity it would measure.
        analysis_seconds: What finding them took.
    """

    def __init__(self, subject: Subject) -> None:
        logging.disable(logging.INFO)
        start = time.perf_counter()
        self._pruner = FPGMFilterPruner(subject.model, subject.shape)
        self.analysis_seconds = time.perf_counter() - start
        self._eval = subject.eval_func
        self.groups = [
            collection.master_name
            for collection in self._pruner.collections
            if collection.master_name not in self._pruner.skip_vars
        ]

    def point(self, group: str, ratio: float, baseline: float) -> float:
        """The loss of one point.

        Its file of results is filled beforehand with all other ratios of the group, so that it takes them for done, and the
        baseline is answered from memory: what it does is this point alone.
        """
        done = Status()
        done.sensitivies = {group: {other: 0.0 for other in RATIOS if other != ratio}}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "sen.pickle")
            file.write_bytes(pickle.dumps(done))
            found = self._pruner.sensitive(
                remembering(self._eval, baseline), str(file), target_vars=[group], skip_vars=[]
            )
            return float(found[group][ratio])
