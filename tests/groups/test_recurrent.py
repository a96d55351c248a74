"""Hidden units of recurrent layers with `layers="all"`: found, masked, cut, saved; and where their states keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity, DysensError, load_pruned, save_pruned
from dysens.groups import FILTERS, filters_by_path, roles_of
from dysens.pruning import masked

SHAPE = [2, 3, 8, 12]


class Reader(nn.Layer):
    """Columns of a map, read by a recurrent layer; ``take`` turns what that gives into what the head reads."""

    def __init__(self, kind: str = "LSTM", width: int | None = None, **options: Any) -> None:
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, stride=2, padding=1)
        self.rnn = getattr(nn, kind)(8, 6, **options)
        self.head = nn.Linear(width or 6 * self.rnn.num_directions, 4)

    def columns(self, x: paddle.Tensor) -> paddle.Tensor:
        return nn.functional.relu(self.stem(x)).mean(2).transpose([0, 2, 1])

    def take(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.rnn(x)[0]

    def forward(self, x: paddle.Tensor) -> Any:
        return self.head(self.take(self.columns(x)))


KINDS = [
    ("LSTM", {}),
    ("LSTM", {"num_layers": 2, "direction": "bidirect", "dropout": 0.3}),
    ("GRU", {"direction": "bidirect"}),
    ("GRU", {"num_layers": 2}),
    ("SimpleRNN", {"num_layers": 2, "activation": "relu"}),
]


def silenced(model: Reader, gone: dict[str, np.ndarray]) -> None:
    """Zero all that makes hidden units, by hand: gates and biases of 0 keep a unit at 0 for ever."""
    gates = {"LSTM": 4, "GRU": 3}.get(type(model.rnn).__name__, 1)
    for name, units in gone.items():
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            tensor = getattr(model.rnn, f"{kind}_{name}", None)
            if tensor is not None:
                values = tensor.numpy().copy()
                for gate in range(gates):
                    values[gate * 6 + units] = 0
                tensor.set_value(values)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_hidden_units_are_cut_as_if_they_never_were(kind: str, options: dict[str, Any]) -> None:
    paddle.seed(3)
    model = Reader(kind, **options)
    model.eval()
    inputs = paddle.randn(SHAPE)
    whole = model(inputs).numpy()
    ds = DygraphSensitivity(model, SHAPE, layers="all")
    (group,) = (group for group in ds.groups if group.path == "rnn.weight_ih_l0")
    blocks = model.rnn.num_layers * model.rnn.num_directions
    assert (group.channels, group.size, len(group.blocks)) == (6, 6 * blocks, blocks)
    outcome = ds.prune_vars({group.name: 0.5})
    cut = model(inputs).numpy()
    assert model.rnn.hidden_size == 3
    cells = [cell for cell in model.rnn.sublayers() if isinstance(cell, nn.layer.rnn.RNNCellBase)]
    assert [cell.hidden_size for cell in cells] == [3] * blocks
    for cell in cells:
        assert cell.weight_ih.shape[1] == cell.input_size
    ds.restore()
    assert (model(inputs).numpy() == whole).all()
    with masked(model, outcome.plan):
        assert np.allclose(model(inputs).numpy(), cut, atol=1e-5)
    gone = {}
    for port in (port for port in group.units if port.makes):
        rows = next(c.removed for c in outcome.plan.cuts if (c.tensor, c.axis) == (port.slices[0].tensor, 0))
        units = np.array([row for row in rows if row < 6])
        assert len(units) == 3
        gone[port.side.partition("_")[2]] = units
    silenced(model, gone)
    assert np.allclose(model(inputs).numpy(), cut, atol=1e-5)


def test_what_a_cut_removes_is_counted_and_foretold() -> None:
    model = Reader(num_layers=2, direction="bidirect")
    ds = DygraphSensitivity(model, SHAPE, layers="all")
    ratios = {group.name: 0.5 for group in ds.groups}
    costs = ds.costs()
    foretold = costs.flops(ratios), costs.params(ratios)
    outcome = ds.prune_vars(ratios)
    assert (outcome.flops_after, outcome.params_after) == foretold
    assert outcome.params_after == sum(int(p.size) for p in model.parameters())
    assert outcome.flops_after < 0.5 * outcome.flops_before


def test_a_cut_recurrent_layer_trains_and_comes_back_from_disk(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_layers": 2, "direction": "bidirect"}
    model = Reader("GRU", **options)
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    model(paddle.randn(SHAPE)).square().mean().backward()
    optimizer.step()
    ds = DygraphSensitivity(model, SHAPE, layers="all", optimizer=optimizer)
    ds.prune_vars({group.name: 0.3 for group in ds.groups})
    model(paddle.randn(SHAPE)).square().mean().backward()
    optimizer.step()
    save_pruned(model, str(tmp_path / "cut"))
    other = load_pruned(Reader("GRU", **options), str(tmp_path / "cut"))
    model.eval()
    other.eval()
    inputs = paddle.randn(SHAPE)
    assert (other(inputs).numpy() == model(inputs).numpy()).all()
    assert other.rnn.hidden_size == 4


def test_a_plan_with_another_hidden_size_than_its_cuts_is_refused(tmp_path: Path) -> None:
    model = Reader()
    ds = DygraphSensitivity(model, SHAPE, layers="all")
    ds.prune_vars({group.name: 0.5 for group in ds.groups})
    save_pruned(model, str(tmp_path / "cut"))
    file = tmp_path / "cut.plan.json"
    text = file.read_text()
    assert '"hidden_size": 3' in text or '"hidden_size":3' in text
    plan = json.loads(
        text.replace('"hidden_size": 3', '"hidden_size": 2').replace('"hidden_size":3', '"hidden_size":2')
    )
    file.write_text(json.dumps(plan))
    other = Reader()
    with pytest.raises(DysensError, match="do not fit each other"):
        load_pruned(other, str(tmp_path / "cut"))
    assert other.rnn.hidden_size == 6


def test_a_cut_network_is_cut_again() -> None:
    model = Reader(direction="bidirect")
    ds = DygraphSensitivity(model, SHAPE, layers="all")
    name = next(group.name for group in ds.groups if group.path.startswith("rnn"))
    ds.prune_vars({name: 0.34})
    again = DygraphSensitivity(model, SHAPE, layers="all")
    assert again.verify({group.name: 0.5 for group in again.groups}) < 1e-5
    again.prune_vars({name: 0.5})
    assert (model.rnn.hidden_size, model.head.weight.shape[0]) == (2, 4)


class Residual(Reader):
    """The outputs of two layers are added: their hidden units go together, and those inside go in the same number."""

    def __init__(self) -> None:
        super().__init__(num_layers=2)
        self.second = nn.GRU(8, 6)

    def take(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.rnn(x)[0] + self.second(x)[0]


class Summed(Reader):
    """Both directions are added up."""

    def __init__(self) -> None:
        super().__init__(width=6, num_layers=2, direction="bidirect")

    def take(self, x: paddle.Tensor) -> paddle.Tensor:
        forward, backward = self.rnn(x)[0].chunk(2, axis=-1)
        return forward + backward


class WithLengths(Reader):
    def take(self, x: paddle.Tensor) -> paddle.Tensor:
        lengths = paddle.full([x.shape[0]], 4, "int64")
        return self.rnn(x, sequence_length=lengths)[0]


@pytest.mark.parametrize(
    ("make", "blocks", "layers"), [(Residual, 2, 2), (Summed, 3, 1), (WithLengths, 1, 1)]
)
def test_hidden_units_meet_others(make: type[Reader], blocks: int, layers: int) -> None:
    ds = DygraphSensitivity(make(), SHAPE, layers="all")
    (group,) = (group for group in ds.groups if group.path.startswith("rnn"))
    makers = {port.layer for port in group.units if port.side == "out"}
    assert (len(group.blocks), len(makers)) == (blocks, layers)
    assert ds.verify({each.name: 0.5 for each in ds.groups}) < 1e-5


class ReadsStates(Reader):
    def take(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.rnn(x)[1][0][-1]


class GivesStates(Reader):
    def forward(self, x: paddle.Tensor) -> Any:
        outputs, states = self.rnn(self.columns(x))
        return self.head(outputs), states


class GetsStates(Reader):
    def take(self, x: paddle.Tensor) -> paddle.Tensor:
        zeros = paddle.zeros([1, x.shape[0], 6])
        return self.rnn(x, (zeros, zeros))[0]


class Cell(Reader):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(nn.LSTMCell(8, 6))


class Returned(Reader):
    def forward(self, x: paddle.Tensor) -> Any:
        return self.rnn(self.columns(x))[0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (ReadsStates, "the final states of layer 'rnn' reach layer 'head'"),
        (GivesStates, "the final states of layer 'rnn' reach the model's output"),
        (GetsStates, "layer 'rnn' is given initial states"),
        (Cell, "the state of recurrent layer 'rnn.cell' is carried on"),
        (Returned, "the channels of layer 'rnn' reach the model's output"),
    ],
)
def test_states_keep_hidden_units(make: type[Reader], reason: str) -> None:
    model = make()
    ds = DygraphSensitivity(model, SHAPE, layers="all")
    assert [group.path for group in ds.groups] == ["stem.weight"]
    weights = [path for path in filters_by_path(model, "all") if path.startswith("rnn")]
    assert weights
    assert all(reason in ds.explain(path) for path in weights)
    assert ds.verify({"stem.weight": 0.5}) < 1e-5


def test_recurrent_layers_are_left_alone_unless_asked_for() -> None:
    model = Reader(num_layers=2)
    ds = DygraphSensitivity(model, SHAPE)
    assert [group.path for group in ds.groups] == ["stem.weight"]
    assert not any(role.unit_weights(FILTERS) for path, role in roles_of(model).items() if path == "rnn")


def test_a_sweep_runs_the_live_model_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = Reader(direction="bidirect")
    model.eval()
    data = paddle.randn(SHAPE)
    whole = model(data)
    ds = DygraphSensitivity(model, SHAPE, layers="all")
    sens = ds.sensitive(
        lambda: -float((model(data) - whole).square().mean()) + 1.0, ratios=[0.5], progress=False
    )
    assert set(sens) == {group.name for group in ds.groups}
    assert "recurrent layer 'rnn' reads its hidden units itself" in caplog.text
    for group in ds.groups:
        with ds.pruned({group.name: 0.5}):
            cut = -float((model(data) - whole).square().mean()) + 1.0
        assert sens[group.name][0.5] == pytest.approx((1.0 - cut) / 1.001, abs=1e-5)


def test_compress_takes_hidden_units_along() -> None:
    paddle.seed(5)
    model = Reader(num_layers=2)
    model.eval()
    ds = DygraphSensitivity(model, SHAPE, layers="all")
    data = [paddle.randn(SHAPE) for _ in range(4)]
    outcome = ds.compress(data, flops=0.6, align=1)
    assert outcome.flops_after <= 0.62 * outcome.flops_before
    assert model.rnn.hidden_size < 6
    ds.restore()
    assert model.rnn.hidden_size == 6
