"""A sweep with folding in several processes."""

from __future__ import annotations

import numpy as np
import paddle

from dysens import DygraphSensitivity, RunOptions
from tests.sweep.sweeping import SHAPE, made


def test_workers_fold_as_the_sweep_does_here():
    model, evaluate = made()
    random = np.random.default_rng(3)
    data = [paddle.to_tensor(random.standard_normal(SHAPE).astype("float32")) for _ in range(3)]
    points = {}
    for fold in (True, False):
        ds = DygraphSensitivity(model, SHAPE, criterion="elimination", data=data, fold=fold)
        alone = ds.sensitive(evaluate, [0.3, 0.6], progress=False, fast="off")
        options = RunOptions(workers=2, build=made, fast="off")
        shared = ds.sensitive(evaluate, [0.3, 0.6], progress=False, options=options)
        points[fold] = [(p.path, p.ratio, p.loss) for p in alone.points]
        assert sorted((p.path, p.ratio, p.loss) for p in shared.points) == sorted(points[fold])
    assert points[True] != points[False]
