"""FLOPs as `paddle.flops` counts them, and what it forgets."""

from __future__ import annotations

import paddle
import pytest
from networks import SHAPE, ConvBN, DictNet, ShuffleNet, SmallNet, TextNet, images, made
from paddle import nn
from states import assert_same, picture

from dysens.costs import cost_of, count_params
from dysens.model import view_of


def paddles_count(model: nn.Layer, shape: list[int], capsys) -> int:
    modes = {path: layer.training for path, layer in model.named_sublayers(include_self=True)}
    count = paddle.flops(model, shape, print_detail=False)
    capsys.readouterr()
    for path, layer in model.named_sublayers(include_self=True):
        layer.training = modes[path]
    return int(count)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "squeezenet1_0", "mobilenet_v1"])
def test_networks_cost_what_paddle_says(name, capsys):
    model = getattr(paddle.vision.models, name)(num_classes=10)
    shape = [1, 3, 64, 64]
    found = cost_of(model, view_of(shape))
    assert found.flops == paddles_count(model, shape, capsys)
    assert found.counted_by_us == ()
    assert found.uncounted == ()
    assert sum(found.by_layer.values()) == found.flops


@pytest.mark.parametrize("network", [SmallNet, ShuffleNet])
def test_small_networks_cost_what_paddle_says(network, capsys):
    model = made(network)
    assert cost_of(model, view_of(SHAPE)).flops == paddles_count(model, SHAPE, capsys)


def test_a_batch_costs_as_many_times(capsys):
    model = made(SmallNet)
    shape = [3, *SHAPE[1:]]
    assert cost_of(model, view_of(shape)).flops == paddles_count(model, shape, capsys)


def test_recurrent_layers_are_counted_by_us_and_named(capsys):
    model = made(TextNet)
    found = cost_of(model, view_of(SHAPE))
    steps, inside, hidden = 8, 12 * 8, 10
    first = 2 * 4 * hidden * (inside + hidden)
    second = 2 * 4 * hidden * (2 * hidden + hidden)
    assert found.by_layer["lstm"] == steps * (first + second)
    assert found.counted_by_us == ("lstm",)
    assert found.flops == paddles_count(model, SHAPE, capsys) + found.by_layer["lstm"]


@pytest.mark.parametrize("kind", ["GRU", "SimpleRNN"])
def test_other_recurrent_layers_are_counted_too(kind):
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2D(3, 4, 1)
            self.rnn = getattr(nn, kind)(4, 5)

        def forward(self, x):
            return self.rnn(self.conv(x).mean(axis=2).transpose([0, 2, 1]))[0]

    gates = {"GRU": 3, "SimpleRNN": 1}[kind]
    found = cost_of(made(Net), view_of([2, 3, 8, 8]))
    assert found.by_layer["rnn"] == 2 * 8 * gates * 5 * (4 + 5)


def test_a_cell_called_step_by_step_counts_every_step():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(3, 5)

        def forward(self, x):
            state = None
            for step in range(x.shape[1]):
                _, state = self.cell(x[:, step], state)
            return state[0]

    found = cost_of(made(Net), view_of([2, 7, 3]))
    assert found.by_layer["cell"] == 2 * 7 * 4 * 5 * (3 + 5)


def test_a_subclass_of_a_known_layer_is_counted_like_it():
    class MyConv(nn.Conv2D):
        pass

    plain, mine = nn.Sequential(nn.Conv2D(3, 4, 3)), nn.Sequential(MyConv(3, 4, 3))
    view = view_of(SHAPE)
    assert cost_of(mine, view).flops == cost_of(plain, view).flops > 0
    assert cost_of(mine, view).counted_by_us == ("0",)


def test_a_layer_called_twice_costs_twice():
    class Twice(nn.Layer):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2D(3, 3, 1)

        def forward(self, x):
            return self.conv(self.conv(x))

    assert cost_of(Twice(), view_of(SHAPE)).by_layer == {"conv": 2 * 3 * (3 + 1) * 16 * 16}


def test_a_weighted_layer_that_nobody_can_count_is_named():
    class Own(nn.Layer):
        def __init__(self):
            super().__init__()
            self.weight = self.create_parameter([3, 3])

        def forward(self, x):
            return paddle.einsum("nchw,cd->ndhw", x, self.weight)

    found = cost_of(nn.Sequential(nn.Conv2D(3, 3, 1), Own()), view_of(SHAPE))
    assert found.uncounted == ("1",)


def test_dicts_and_several_arguments_are_no_trouble():
    view = view_of(({"image": [1, 3, 8, 8], "more": {"mask": [1, 1, 8, 8]}}, paddle.to_tensor(2.0)))
    assert cost_of(made(DictNet), view).flops > 0


def test_the_model_is_left_as_found():
    model = made(SmallNet)
    model.body.train()
    model(images()).sum().backward()
    before = picture(model)
    cost_of(model, view_of(SHAPE))
    assert_same(before, picture(model))


def test_a_forward_that_fails_leaves_the_model_as_found():
    model = made(SmallNet)
    before = picture(model)
    with pytest.raises(Exception, match="channels"):
        cost_of(model, view_of([1, 5, 16, 16]))
    assert_same(before, picture(model))


def test_parameters_include_batch_statistics():
    assert count_params(ConvBN(3, 8)) == 8 * 3 * 9 + 4 * 8
