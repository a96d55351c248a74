"""What must hold for every network: mask equals cut, restore is exact, training goes on, nothing is left unexplained.

The networks are drawn by hypothesis from `random_networks`; a failing one is printed as a `Spec` that rebuilds it.
"""

from __future__ import annotations

import numpy as np
import paddle
from hypothesis import given
from hypothesis import strategies as st
from random_networks import PLAIN, RandomNet, Spec, drawn, specs
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.model import leaves, tensors_by_path

SHAPE = [1, 3, 8, 8]
OPTIMIZERS = ("Momentum", "Adam", "AdamW", "SGD")
# Half of the networks are made of what people really build, so that much of them can be cut and removal meets removal.
COMMON = (*PLAIN, "strided", "split", "shuffle", "upsample", "transposed", "channel_last", "normal")
some_ratios = st.lists(st.floats(0, 0.99), min_size=1, max_size=6)


@drawn(30)
@given(spec=specs(), ratios=some_ratios, kind=st.sampled_from(OPTIMIZERS))
def test_any_network(spec: Spec, ratios: list[float], kind: str) -> None:
    check(spec, ratios, kind)


@drawn(30)
@given(spec=specs(COMMON), ratios=some_ratios, kind=st.sampled_from(OPTIMIZERS))
def test_common_network(spec: Spec, ratios: list[float], kind: str) -> None:
    check(spec, ratios, kind)


def check(spec: Spec, ratios: list[float], kind: str) -> None:
    model = RandomNet(spec)
    optimizer = getattr(paddle.optimizer, kind)(1e-3, parameters=model.parameters())
    step(model, optimizer)
    found = picture(model, optimizer)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1", optimizer=optimizer)
    assert_same(found, picture(model, optimizer))
    everything_is_explained(model, ds)
    # The same few ratios in turn, all groups at once.
    chosen = {group.name: ratios[i % len(ratios)] for i, group in enumerate(ds.groups)}
    masks_equal_cuts(model, ds, chosen)
    assert_same(found, picture(model, optimizer))
    ds.prune_vars(chosen)
    step(model, optimizer)
    ds.restore()
    assert_same(without_random(found), without_random(picture(model, optimizer)))


def everything_is_explained(model, ds) -> None:
    """Every 4-D weight is in a group, or has a reason that says where."""
    tensors = tensors_by_path(model)
    filters = {tensor.name for tensor in tensors.values() if tensor.ndim == 4}
    cut = filters & {tensors[path].name for group in ds.groups for path in group.filters}
    assert filters == cut | set(ds.unprunable)
    assert not cut & set(ds.unprunable)
    places = [path for path, _ in model.named_sublayers()] + list(tensors)
    for name, reason in ds.unprunable.items():
        assert any(f"'{place}'" in reason for place in places), (name, reason)


def masks_equal_cuts(model, ds, ratios: dict[str, float]) -> None:
    """On other images than those that the groups were found with, by zeros that this test writes itself."""
    whole = answers(model)
    with ds.pruned(ratios) as outcome:
        cut = answers(model)
    tensors = tensors_by_path(model)
    kept = {item.tensor: tensors[item.tensor].numpy().copy() for item in outcome.plan.masks}
    for item in outcome.plan.masks:
        tensors[item.tensor].set_value(zeroed(tensors[item.tensor].numpy().copy(), item))
    masked = answers(model)
    for path, values in kept.items():
        tensors[path].set_value(values)
    for one, other in zip(masked, cut):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= 1e-4 * np.abs(one).max() + 1e-6
    assert ds.verify(ratios) <= 1e-4
    for one, other in zip(whole, answers(model)):
        assert np.array_equal(one, other)


def zeroed(values: np.ndarray, item) -> np.ndarray:
    if item.blocks == 1:
        np.moveaxis(values, item.axis, 0)[list(item.removed)] = 0
        return values
    width = item.size // item.blocks
    blocks = values.reshape([item.blocks, -1, *values.shape[1:]])
    for channel in item.removed:
        blocks[channel // width, :, channel % width] = 0
    return blocks.reshape(values.shape)


def answers(model) -> list[np.ndarray]:
    modes = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
    model.eval()
    x = paddle.to_tensor(np.random.default_rng(7).standard_normal([2, *SHAPE[1:]]).astype("float32"))
    with paddle.no_grad():
        returned = [leaf.numpy() for leaf in leaves(model(x)) if isinstance(leaf, paddle.Tensor)]
    for layer, training in modes:
        layer.training = training
    return returned


def step(model, optimizer) -> None:
    """One training step on all outputs."""
    modes = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
    model.train()
    returned = model(paddle.rand([2, *SHAPE[1:]]))
    loss = sum((leaf**2).mean() for leaf in leaves(returned) if isinstance(leaf, paddle.Tensor))
    loss.backward()
    optimizer.step()
    for layer, training in modes:
        layer.training = training


def without_random(seen: dict) -> dict:
    return {key: value for key, value in seen.items() if key != "random"}
