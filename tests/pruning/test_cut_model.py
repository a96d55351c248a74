"""A model after `prune_vars`: all that hangs on its weights is consistent, and training goes on."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from networks import (
    SHAPE,
    ResNeXtBlock,
    ShuffleNet,
    SmallNet,
    TextNet,
    Unequal,
    images,
    made,
    outputs,
    train_step,
)
from paddle import nn
from paddle.nn.layer.rnn import RNNBase, RNNCellBase
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.model import tensors_by_path
from dysens.pruning import TensorCut, _cutting, history

NETWORKS = [SmallNet, TextNet, ResNeXtBlock, ShuffleNet, Unequal]
OPTIMIZERS = ["Momentum", "Adam", "AdamW"]
LABELS = paddle.to_tensor([0, 1, 2, 3])


def halved(model: nn.Layer, **options):
    ds = DygraphSensitivity(model, SHAPE, criterion="l1", **options)
    return ds, {group.name: 0.5 for group in ds.groups}


def without(values: np.ndarray, plan, path: str) -> np.ndarray:
    """What the plan leaves of an array that belongs to a tensor."""
    for item in plan.cuts:
        if item.tensor == path and item.blocks == 1:
            values = np.delete(values, item.removed, axis=item.axis)
    return values


@pytest.mark.parametrize("network", NETWORKS)
def test_attributes_fit_the_weights(network):
    model = made(network)
    ds, ratios = halved(model)
    ds.prune_vars(ratios)
    for layer in model.sublayers():
        if isinstance(layer, nn.Conv2D):
            out, inside = layer.weight.shape[:2]
            assert (layer._in_channels, layer._out_channels) == (inside * layer._groups, out)
            assert f"{layer._in_channels}, {layer._out_channels}" in str(layer)
        elif isinstance(layer, nn.BatchNorm2D):
            assert layer._num_features == layer.weight.shape[0] == layer._mean.shape[0]
            assert f"num_features={layer._num_features}" in str(layer)
        elif isinstance(layer, (RNNBase, RNNCellBase)):
            first = next(p for name, p in layer.named_parameters() if "weight_ih" in name)
            assert layer.input_size == first.shape[1]
            assert str(layer.input_size) in str(layer)
        elif isinstance(layer, nn.Linear):
            assert f"in_features={layer.weight.shape[0]}" in str(layer)
    outputs(model)


@pytest.mark.parametrize("network", NETWORKS)
def test_weights_are_the_old_ones_without_what_was_removed(network):
    model = made(network)
    state = dict(model.state_dict())
    old = {path: tensor.numpy() for path, tensor in once(model).items()}
    ds, ratios = halved(model)
    outcome = ds.prune_vars(ratios)
    assert set(model.state_dict()) == set(state)
    new = once(model)
    blocked = {item.tensor for item in outcome.plan.cuts if item.blocks > 1}
    for path in set(new) - blocked:
        assert np.array_equal(new[path].numpy(), without(old[path], outcome.plan, path)), path
    shrunk = [path for path in new if list(new[path].shape) != list(old[path].shape)]
    assert set(shrunk) == {item.tensor for item in outcome.plan.cuts}


def once(model: nn.Layer) -> dict[str, paddle.Tensor]:
    """What a state dict holds, without the second names that the cells of an LSTM have for its weights."""
    kept = {id(tensor) for tensor in model.state_dict().values()}
    found = {
        id(tensor): path for path, tensor in reversed(tensors_by_path(model).items()) if id(tensor) in kept
    }
    return {path: tensor for path, tensor in tensors_by_path(model).items() if found.get(id(tensor)) == path}


@pytest.mark.parametrize("network", NETWORKS)
def test_names_and_objects_stay(network):
    model = made(network)
    before = {path: (id(t), t.name, t.stop_gradient) for path, t in once(model).items()}
    ds, ratios = halved(model)
    ds.prune_vars(ratios)
    assert {path: (id(t), t.name, t.stop_gradient) for path, t in once(model).items()} == before


@pytest.mark.parametrize("network", NETWORKS)
def test_the_outcome_tells_the_widths_that_there_are(network):
    model = made(network)
    ds, ratios = halved(model)
    outcome = ds.prune_vars(ratios)
    tensors = {tensor.name: tensor for tensor in tensors_by_path(model).values()}
    table = outcome.to_frame().set_index("param")
    assert len(table) == len(ds.groups)
    for group in ds.groups:
        assert table.loc[group.name, "channels before"] == group.channels
        assert table.loc[group.name, "channels after"] == tensors[group.name].shape[0]
    assert outcome.flops_after < outcome.flops_before
    assert (
        outcome.params_after < outcome.params_before == sum(np.prod(shape) for shape in sizes_before(network))
    )
    assert outcome.params_after == sum(p.size for p in model.parameters())
    assert f"{outcome.flops_after:,}" in str(outcome)
    assert all(group.name in str(outcome) for group in ds.groups)


def sizes_before(network) -> list[list[int]]:
    return [parameter.shape for parameter in made(network).parameters()]


def test_gradients_lose_the_same_entries():
    model = made(SmallNet)
    nn.functional.cross_entropy(model(images()), LABELS).backward()
    old = {
        path: parameter.grad.numpy()
        for path, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    ds, ratios = halved(model)
    outcome = ds.prune_vars(ratios)
    for path, parameter in model.named_parameters():
        if path in old:
            assert np.array_equal(parameter.grad.numpy(), without(old[path], outcome.plan, path)), path
        else:
            assert parameter.grad is None, path


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_accumulators_lose_the_same_entries(kind):
    model = made(SmallNet)
    optimizer = getattr(paddle.optimizer, kind)(0.01, parameters=model.parameters())
    for seed in range(2):
        train_step(model, optimizer, images(seed=seed), LABELS)
    old = {
        name: tensor.numpy() for name, tensor in optimizer.state_dict().items() if hasattr(tensor, "numpy")
    }
    ds, ratios = halved(model, optimizer=optimizer)
    outcome = ds.prune_vars(ratios)
    paths = {parameter.name: path for path, parameter in model.named_parameters()}
    compared = 0
    for accumulator, slots in optimizer._accumulators.items():
        for parameter, tensor in slots.items():
            before = old[tensor.name]
            expected = without(before, outcome.plan, paths[parameter]) if before.size > 1 else before
            assert np.array_equal(tensor.numpy(), expected), (accumulator, parameter)
            compared += 1
    assert compared >= sum(not parameter.stop_gradient for parameter in model.parameters())


def test_master_weights_lose_the_same_entries():
    model = made(SmallNet)
    optimizer = paddle.optimizer.Momentum(0.1, parameters=model.parameters(), multi_precision=True)
    # Low precision trains on GPU only, so the copies that it would make are put in place by hand.
    optimizer._master_weights.update({p.name: p.detach().clone() * 2 for p in model.parameters()})
    ds, ratios = halved(model, optimizer=optimizer)
    before = picture(model, optimizer)
    ds.prune_vars(ratios)
    for parameter in model.parameters():
        assert np.array_equal(optimizer._master_weights[parameter.name].numpy(), 2 * parameter.numpy())
    ds.restore()
    assert_same(before, picture(model, optimizer))


def test_loaded_state_that_the_optimizer_has_not_claimed_is_cut_too():
    with paddle.utils.unique_name.guard():
        state = trained_state()
    with paddle.utils.unique_name.guard():  # as in a new process
        model = SmallNet()
        optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
        optimizer.set_state_dict(state)
        ds, ratios = halved(model, optimizer=optimizer)
        ds.prune_vars(ratios)
        train_step(model, optimizer, images(), LABELS)
        ds.restore()
        train_step(model, optimizer, images(), LABELS)


def trained_state():
    model = SmallNet()
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    train_step(model, optimizer, images(), LABELS)
    return optimizer.state_dict()


@pytest.mark.parametrize("kind", [*OPTIMIZERS, "SGD", "RMSProp", "Lamb"])
def test_training_goes_on_with_the_same_optimizer(kind):
    model = made(SmallNet)
    rate = 0.05 if kind in ("SGD", "Momentum") else 0.01
    optimizer = getattr(paddle.optimizer, kind)(rate, parameters=model.parameters())
    model.dropout.p = 0.0
    train_step(model, optimizer, images(), LABELS)
    ds, ratios = halved(model, optimizer=optimizer)
    ds.prune_vars(ratios)
    losses = [train_step(model, optimizer, images(), LABELS) for _ in range(12)]
    assert losses[-1] < 0.7 * losses[0], losses


def test_training_goes_on_without_telling_dysens_of_the_optimizer():
    model = made(SmallNet)
    model.dropout.p = 0.0  # what it drops differs from process to process
    ds, ratios = halved(model)
    ds.prune_vars(ratios)
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    losses = [train_step(model, optimizer, images(), LABELS) for _ in range(12)]
    assert losses[-1] < 0.7 * losses[0], losses


def test_a_cut_recurrent_network_trains():
    model = made(TextNet)
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    ds, ratios = halved(model, optimizer=optimizer)
    ds.prune_vars(ratios)
    model.train()
    losses = []
    for _ in range(6):
        loss = (model(images()) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("network", [SmallNet, TextNet, ResNeXtBlock])
def test_an_export_gives_the_same_outputs(network, tmp_path):
    model = made(network)
    ds, ratios = halved(model)
    ds.prune_vars(ratios)
    expected = outputs(model)
    paddle.jit.save(
        model, str(tmp_path / "cut"), [paddle.static.InputSpec([None, *SHAPE[1:]], "float32", "x")]
    )
    loaded = paddle.jit.load(str(tmp_path / "cut"))
    assert np.allclose(outputs(loaded), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_restore_is_exact_after_training(network):
    model = made(network)
    model.train()  # Paddle trains recurrent layers in no other mode
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    (model(images()) ** 2).mean().backward()
    optimizer.step()
    before = picture(model, optimizer)
    ds, ratios = halved(model, optimizer=optimizer)
    ds.prune_vars(ratios)
    for _ in range(2):
        (model(images()) ** 2).mean().backward()
        optimizer.step()
    ds.restore()
    after = picture(model, optimizer)
    assert_same(
        {**before, "random": None}, {**after, "random": None}
    )  # the dropout of the training drew numbers


def test_two_cuts_in_a_row_equal_one():
    one, two = made(SmallNet), made(SmallNet)
    first, second = (DygraphSensitivity(model, SHAPE, criterion="random") for model in (one, two))
    ratios = {group.name: ratio for group, ratio in zip(first.groups, (0.5, 0.25, 0.4, 0.3))}
    first.prune_vars(ratios)
    for name, ratio in ratios.items():
        second.prune_vars({name: ratio})
    assert len(history(two)) == len(ratios)
    for path, tensor in one.state_dict().items():
        assert np.array_equal(tensor.numpy(), two.state_dict()[path].numpy()), path
    assert np.array_equal(outputs(one), outputs(two))
    original = made(SmallNet)
    second.restore()
    assert history(two) == ()
    for path, tensor in original.state_dict().items():
        assert np.array_equal(tensor.numpy(), two.state_dict()[path].numpy()), path


@pytest.mark.parametrize("network", [ShuffleNet, Unequal, ResNeXtBlock, TextNet])
def test_cuts_in_a_row_agree_with_masks(network):
    model = made(network)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    for group in ds.groups:
        assert ds.verify({group.name: 0.5}) < 1e-4
        ds.prune_vars({group.name: 0.5})
    outputs(model)


def test_a_group_can_be_cut_only_once():
    model = made(SmallNet)
    ds, ratios = halved(model)
    ds.prune_vars(ratios)
    before = picture(model)
    with pytest.raises(ValueError, match="has been cut already; call restore"):
        ds.prune_vars({ds.groups[0].name: 0.1})
    assert_same(before, picture(model))


def test_no_layer_is_cut_to_nothing():
    model = made(Unequal)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    # The narrow source would go first and whole.
    model.narrow.weight.set_value(model.narrow.weight * 1e-3)
    ds.prune_vars({ds.groups[0].name: 0.9})
    assert model.narrow.weight.shape[0] == 1
    assert model.wide.weight.shape[0] == 1
    assert model.head.weight.shape[1] == 2
    outputs(model)


@pytest.mark.parametrize(
    ("axis", "removed", "blocks"), [(0, (1, 4), 1), (1, (0, 3), 1), (2, (2,), 1), (1, (0, 5, 7), 2)]
)
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_large_weights_are_masked_row_by_row(axis, removed, blocks, kind, monkeypatch):
    """As at once: also with blocks of a grouped weight, and without a NaN where an infinity goes."""
    size = (6, 4, 3)[axis] * blocks
    weight = paddle.randn([6, 4, 3])
    weight[:, :2] = float("inf")
    weight = weight.astype(kind)
    item = TensorCut("weight", axis, size, removed, blocks)
    masked = []
    for at_once in (4_000_000, 25, 1):
        monkeypatch.setattr(_cutting, "_AT_ONCE", at_once)
        masked.append(_cutting._zeroed(weight, item).astype("float32").numpy())
    gone = np.zeros([6, 4, 3], bool)
    for entry in removed:
        rows = slice(None) if blocks == 1 else slice(3 * (entry // 4), 3 * (entry // 4) + 3)
        gone[(rows, entry % 4) if blocks > 1 else (*[slice(None)] * axis, entry)] = True
    wanted = np.where(gone, 0, weight.astype("float32").numpy())
    for values in masked:
        np.testing.assert_array_equal(values, wanted)
