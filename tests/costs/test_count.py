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


class Attends(nn.Layer):
    def __init__(self, way):
        super().__init__()
        self.project = nn.Linear(6, 8)
        self.way = way

    def forward(self, x):
        x = self.project(x)
        return self.way(x)


WAYS = {
    "operator": lambda x: nn.functional.softmax(x @ x.transpose([0, 2, 1])) @ x,
    "function": lambda x: paddle.matmul(paddle.matmul(x, x, transpose_y=True), x),
    "a module's own name for it": lambda x: paddle.tensor.matmul(paddle.tensor.matmul(x, x, False, True), x),
    "bmm": lambda x: paddle.bmm(x.bmm(x.transpose([0, 2, 1])), x),
    "einsum": lambda x: paddle.einsum("...qk,...kd->...qd", paddle.einsum("bqd,bkd->bqk", x, x), x),
    "paddle's own": lambda x: nn.functional.scaled_dot_product_attention(
        *(x.reshape([2, 5, 2, 4]),) * 3
    ).flatten(2),
}


@pytest.mark.parametrize("way", WAYS)
def test_products_of_attention_are_counted_by_us_and_named(way):
    found = cost_of(Attends(WAYS[way]), view_of([2, 5, 6]))
    linear = 2 * 5 * 6 * 8
    assert found.by_layer == {"project": linear}
    assert found.products == {"": 2 * (2 * 5 * 5 * 8)}
    assert found.flops == linear + 2 * (2 * 5 * 5 * 8)
    assert found.counted_by_us == ("matrix products",)


def test_products_count_for_the_layer_that_makes_them():
    class Net(nn.Sequential):
        pass

    model = Net(nn.Linear(6, 8), nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 2))
    found = cost_of(model, view_of([1, 5, 6]))
    assert found.products == {"1.self_attn": 2 * 5 * 5 * 8}
    assert found.counted_by_us == ("1.self_attn (matrix products)",)


def test_a_product_with_a_weight_of_ones_own_is_no_longer_uncounted():
    class Own(nn.Layer):
        def __init__(self):
            super().__init__()
            self.weight = self.create_parameter([6, 4])

        def forward(self, x):
            return paddle.matmul(x, self.weight)

    found = cost_of(nn.Sequential(nn.Linear(6, 6), Own()), view_of([3, 6]))
    assert found.products == {"1": 3 * 6 * 4}
    assert found.uncounted == ()


def test_paddle_is_left_as_found_by_counting():
    before = paddle._C_ops.matmul, paddle._C_ops.bmm, paddle._C_ops.einsum, paddle.Tensor.__matmul__
    cost_of(Attends(WAYS["operator"]), view_of([2, 5, 6]))
    with pytest.raises(ZeroDivisionError):
        cost_of(Attends(lambda x: 1 / 0), view_of([2, 5, 6]))
    after = paddle._C_ops.matmul, paddle._C_ops.bmm, paddle._C_ops.einsum, paddle.Tensor.__matmul__
    assert before == after
