"""A PIR program that is cut in place: the shapes that it states, and how they come back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import paddle
import pytest
from compat.static_nets import PIR, Static, same

from dysens.compat import Pruner
from dysens.errors import InputError
from dysens.programs import _static_pir

CHOSEN, RATIOS = ["conv1_weights", "conv4_weights", "conv5_weights"], [0.25, 0.5, 0.5]


@pytest.fixture(autouse=True)
def static() -> Iterator[None]:
    paddle.enable_static()
    yield
    paddle.disable_static()


@pytest.mark.skipif(not PIR, reason="a program of Paddle 2's kind infers its shapes anew")
@pytest.mark.parametrize("optimizer", ["Momentum", "Adam"])
def test_a_pir_program_states_the_shapes_that_it_has(optimizer: str) -> None:
    """Of everything: parameters, what the forward computes, gradients, and what the optimizer writes."""
    net = Static(optimizer)
    Pruner().prune(net.train, net.scope, CHOSEN, RATIOS, place=net.place)
    found = [
        (op.name(), slot, value)
        for op in net.train.global_block().ops
        if op.name().startswith("pd_op.")
        for slot, value in zip(op.get_output_names(), op.results())
        if value.initialized() and value.is_dense_tensor_type()
    ]
    assert any(name == "pd_op.conv2d_grad" for name, _, _ in found)
    with paddle.static.scope_guard(net.scope):
        arrays = net.exe.run(net.train, feed=net.feed, fetch_list=[value for _, _, value in found])
    for (name, slot, value), array in zip(found, arrays):
        stated = [side if side >= 0 else real for side, real in zip(value.shape, array.shape)]
        assert stated == list(array.shape), (name, slot)
        assert sum(side < 0 for side in value.shape) <= 1, (name, slot, value.shape)  # the batch alone


@pytest.mark.skipif(not PIR, reason="a program of Paddle 2's kind is copied")
def test_a_prune_that_fails_leaves_every_stated_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Static()

    def stated() -> list[list[int]]:
        ops = net.train.global_block().ops
        return [
            list(v.shape) for op in ops for v in op.results() if v.initialized() and v.is_dense_tensor_type()
        ]

    def broken(*arguments: object) -> Iterator[None]:
        yield from original(*arguments)
        raise InputError("a step fails at last")

    original = _static_pir.follow_gradients
    monkeypatch.setattr(_static_pir, "follow_gradients", broken)
    before, values = stated(), net.values()
    with pytest.raises(InputError, match="at last"):
        Pruner().prune(net.train, net.scope, CHOSEN, RATIOS, place=net.place)
    assert stated() == before
    assert same(net.values(), values)
    assert np.isfinite(net.steps(2)).all()
