"""Engine native against engine paddleslim and PaddleSlim's own pruners, in one process, on the golden networks."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from golden import INPUT_SHAPE, trained

from dysens import DygraphSensitivity
from dysens.errors import InputError
from dysens.model import tensors_by_path

NETWORKS = ("tiny_resnet", "mobilenet_v1", "mobilenet_v3")
CASES = [
    *((name, "fpgm") for name in NETWORKS),
    *(("mobilenet_v1", "l1"), ("tiny_resnet", "l1"), ("tiny_resnet", "l2")),
]  # tests/test_golden.py compares mobilenet_v3 by l1

on_paddle_2 = pytest.mark.skipif(
    not paddle.__version__.startswith("2."), reason="PaddleSlim does not run on Paddle 3"
)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def both(request):
    """A network, and both engines on it."""
    name, criterion = request.param
    model = trained(name)
    native, slim = (
        DygraphSensitivity(model, INPUT_SHAPE, criterion, engine=e) for e in ("native", "paddleslim")
    )
    return name, criterion, model, native, slim


def removed_channels(ds, ratio):
    """The channels that a ratio removes from the weight that names each group."""
    choose = ds._choice()
    return {
        group.name: np.flatnonzero(np.isin(group.units[group.scored[0][0]], choose(group, ratio))).tolist()
        for group in ds.groups
    }


@on_paddle_2
def test_the_same_groups(both):
    _, _, _, native, slim = both
    assert {g.name: set(g.members) for g in native.groups} == {g.name: set(g.members) for g in slim.groups}
    assert [g.path for g in native.groups] == [g.path for g in slim.groups]


@on_paddle_2
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_the_same_masks(both, ratio):
    _, _, _, native, slim = both
    assert removed_channels(native, ratio) == removed_channels(slim, ratio)


@on_paddle_2
def test_the_same_costs(both):
    _, _, _, native, slim = both
    assert native.costs() == slim.costs()


@on_paddle_2
def test_the_same_sensitivities(both):
    _, _, model, native, slim = both
    x = paddle.to_tensor(np.random.default_rng(1).random([8, *INPUT_SHAPE[1:]]).astype("float32"))
    reference = model(x).numpy()

    def closeness() -> float:
        """Finer than an accuracy, which many masks share, and quicker; tests/test_golden.py compares accuracies."""
        with paddle.no_grad():
            return float(1 / (1 + np.square(model(x).numpy() - reference).mean()))

    sample = [native.groups[place].name for place in (0, len(native.groups) // 2, -1)]
    ours, theirs = (
        ds.sensitive(closeness, [0.3, 0.6], target_vars=sample, progress=False, fast="off")
        for ds in (native, slim)
    )
    assert [(p.param, p.ratio) for p in ours.points] == [(p.param, p.ratio) for p in theirs.points]
    assert [p.metric for p in ours.points] == [p.metric for p in theirs.points]
    assert [p.loss for p in ours.points] == [p.loss for p in theirs.points]


@on_paddle_2
def test_the_cut_is_the_one_that_paddleslim_makes(both):
    name, criterion, model, native, slim = both
    import paddleslim.dygraph

    kinds = {"fpgm": "FPGMFilterPruner", "l1": "L1NormFilterPruner", "l2": "L2NormFilterPruner"}
    twin = trained(name)
    pruner = getattr(paddleslim.dygraph, kinds[criterion])(twin, INPUT_SHAPE)
    ratios = {group.name: 0.4 for group in slim.groups}
    pruner.prune_vars(ratios, 0)
    shapes = {n: list(parameter.shape) for n, parameter in twin.named_parameters()}
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal([2, *INPUT_SHAPE[1:]]).astype("float32"))
    twin.eval()
    expected = twin(x).numpy()
    for ds in (native, slim):
        with ds.pruned(ratios):
            tensors = tensors_by_path(model)
            assert {n: list(tensors[n].shape) for n in shapes} == shapes
            np.testing.assert_allclose(model(x).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="PaddleSlim runs on Paddle 2")
def test_paddle_3_is_refused_with_the_way_out():
    with pytest.raises(
        InputError, match=r'needs Paddle 2\.6; .* Use engine="native", which gives the same numbers'
    ):
        DygraphSensitivity(trained("tiny_resnet"), INPUT_SHAPE, engine="paddleslim")
    assert paddle.in_dynamic_mode()
