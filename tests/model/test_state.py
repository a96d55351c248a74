"""`preserved`: whatever happens to a model inside it is undone on leaving it."""

from __future__ import annotations

import threading

import numpy as np
import paddle
import pytest
from networks import SmallNet, TextNet, images, made, train_step
from states import assert_same, differences, picture

from dysens.model import ModelState, _state, isolate, preserved, swap_storage
from dysens.model._state import storage_of


@pytest.fixture
def model():
    model = made(SmallNet)
    model.body.train()  # one part in another mode than the rest
    model.stem.register_forward_post_hook(lambda layer, given, returned: returned)
    model(images()).sum().backward()
    return model


def upset(model):
    """Everything that dysens, or an eval_func, may do to a model."""
    for layer in model.sublayers(include_self=True):
        layer.training = not layer.training
    model.stem.forward = lambda x: x
    model.stem.register_forward_pre_hook(lambda layer, given: None)
    model.point._out_channels = 5
    model.extra = paddle.nn.Conv2D(3, 3, 1)
    model.point.register_buffer("counter", paddle.zeros([1]))
    del model.squeeze
    swap_storage(model.fc.weight, paddle.zeros([3, 2]))
    swap_storage(model.stem[1]._mean, paddle.ones([8]))
    paddle.rand([3])


def test_everything_comes_back(model):
    before = picture(model)
    with preserved(model):
        upset(model)
        assert len(differences(before, picture(model))) > 10
    assert_same(before, picture(model))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_everything_comes_back_after_an_error(model, error):
    before = picture(model)

    def fail():
        with preserved(model):
            upset(model)
            raise error

    with pytest.raises(error):
        fail()
    assert_same(before, picture(model))


def test_static_mode_is_left(model):
    before = picture(model)
    with preserved(model):
        paddle.enable_static()
    assert paddle.in_dynamic_mode()
    assert_same(before, picture(model))


def test_gradients_come_back_if_asked_for(model):
    before = picture(model)
    with preserved(model, gradients=True):
        isolate(model)
        model(images(seed=1)).sum().backward()
        model.fc.weight.clear_gradient()
    assert_same(before, picture(model))


def test_gradients_that_were_not_there_are_gone_again():
    model = made(SmallNet)
    before = picture(model)
    with preserved(model, gradients=True):
        model(images()).sum().backward()
    assert_same(before, picture(model))


@pytest.mark.parametrize("kind", ["Momentum", "Adam", "AdamW", "SGD"])
def test_isolated_training_leaves_no_trace(model, kind):
    optimizer = getattr(paddle.optimizer, kind)(0.1, parameters=model.parameters())
    labels = paddle.to_tensor([0, 1, 2, 3])
    train_step(model, optimizer, images(), labels)
    before = picture(model, optimizer)
    with preserved(model, optimizer, gradients=True):
        isolate(model, optimizer)
        for seed in range(3):
            train_step(model, optimizer, images(seed=seed), labels)
        assert differences(before, picture(model, optimizer))
    assert_same(before, picture(model, optimizer))


def test_first_optimizer_step_is_undone(model):
    optimizer = paddle.optimizer.Adam(0.1, parameters=model.parameters())
    before = picture(model, optimizer)
    with preserved(model, optimizer, gradients=True):
        isolate(model, optimizer)
        train_step(model, optimizer, images(), paddle.to_tensor([0, 1, 2, 3]))
        names = set(optimizer.state_dict())
    assert_same(before, picture(model, optimizer))
    train_step(model, optimizer, images(), paddle.to_tensor([0, 1, 2, 3]))
    assert set(optimizer.state_dict()) == names


def test_a_recurrent_layer_is_preserved():
    model = made(TextNet)
    before = picture(model)
    with preserved(model):
        isolate(model)
        model.train()
        model(images(1))
    assert_same(before, picture(model))


def test_kept_changes_stay_and_can_still_be_undone(model):
    before = picture(model)
    with preserved(model) as state:
        swap_storage(model.fc.weight, paddle.zeros([3, 2]))
        state.keep()
    assert model.fc.weight.shape == [3, 2]
    state.restore()
    assert_same(before, picture(model))


def test_restoring_twice_does_no_harm(model):
    before = picture(model)
    state = ModelState(model)
    upset(model)
    state.restore()
    state.restore()
    changed = [what for what in differences(before, picture(model)) if what != "random"]
    assert changed == []


def test_what_was_kept_is_undone_all_the_same_after_an_error(model):
    before = picture(model)

    def fail():
        with preserved(model) as state:
            upset(model)
            state.keep()
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert_same(before, picture(model))


def test_other_objects_come_back_too(model):
    class Notes:
        def __init__(self):
            self.pages = ("one",)

    notes = Notes()
    with preserved(model, also=[notes]):
        notes.pages = ()
        notes.more = 1
    assert vars(notes) == {"pages": ("one",)}


def test_functions_that_a_probe_replaces_come_back(model):
    dropout = paddle.nn.functional.dropout
    with preserved(model):
        paddle.nn.functional.dropout = None
    assert paddle.nn.functional.dropout is dropout


def test_gradients_are_enabled_again(model):
    with preserved(model):
        paddle.set_grad_enabled(False)
    assert paddle.is_grad_enabled()


def test_nested_states_come_back_one_by_one(model):
    before = picture(model)
    with preserved(model):
        model.fc.training = True
        between = picture(model)
        with preserved(model):
            upset(model)
        assert_same(between, picture(model))
    assert_same(before, picture(model))


def test_a_handle_keeps_what_the_tensor_held():
    tensor = paddle.to_tensor([1.0, 2.0])
    handle = storage_of(tensor)
    swap_storage(tensor, paddle.zeros([3]))
    assert tensor.shape == [3]
    swap_storage(tensor, handle)
    assert tensor.tolist() == [1.0, 2.0]


def test_other_threads_may_preserve_too(model):
    before = picture(model)
    failures = []

    def work():
        try:
            with preserved(model):
                upset(model)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
    assert_same(before, picture(model))


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "bool"])
def test_one_changed_bit_is_seen_in_any_piece(kind, monkeypatch):
    """Weights are compared piece by piece, in place where NumPy has their type."""
    monkeypatch.setattr(_state, "_AT_ONCE", 16)
    values = paddle.arange(21).reshape([3, 7]) % 2
    one, other = values.astype(kind), values.astype(kind)
    assert _state._same_bytes(one, other)
    for index in (0, 10, 20):
        changed = np.arange(21).reshape([3, 7]) % 2
        changed.reshape(-1)[index] = 1 - changed.reshape(-1)[index]
        assert not _state._same_bytes(one, paddle.to_tensor(changed).astype(kind)), index


def test_the_same_bytes_are_told_apart_from_equal_numbers():
    zeros, nans = paddle.zeros([3]), paddle.full([3], float("nan"))
    assert not _state._same_bytes(zeros, paddle.to_tensor(np.full(3, -0.0, "float32")))
    assert _state._same_bytes(nans, nans.clone())
    assert not _state._same_bytes(zeros, zeros.reshape([3, 1]))
    assert not _state._same_bytes(zeros, zeros.astype("int32"))
    assert _state._same_bytes(zeros[:0], zeros[:0].clone())
    assert _state._same_bytes(paddle.to_tensor(2.0), paddle.to_tensor(2.0))


def test_a_view_on_a_tensor_is_read_as_what_it_shows():
    whole = paddle.arange(12, dtype="float32").reshape([3, 4])
    assert _state._same_bytes(whole[:, 1:3], paddle.to_tensor(whole.numpy()[:, 1:3].copy()))
    assert _state._same_bytes(whole.transpose([1, 0]), paddle.to_tensor(whole.numpy().T.copy()))
