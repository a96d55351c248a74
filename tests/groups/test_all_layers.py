"""`layers="all"`: hidden units of linear layers, convolutions of other ranks; and networks that used to be refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity, DysensError


class Mlp(nn.Layer):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Tokens(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2D(3, 16, 4, 4)
        self.mlp = Mlp(16, 24)
        self.encoder = nn.TransformerEncoderLayer(16, 4, 20)
        self.head = nn.Linear(16, 5)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        tokens = self.patches(x).flatten(2).transpose([0, 2, 1])
        return self.head(self.encoder(self.mlp(tokens)).mean(1))


class WideHeads(nn.Layer):
    """Fused attention with more channels in a head than could be asked for one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim = 3, 40
        self.patches = nn.Conv2D(3, 16, 4, 4)
        self.qkv = nn.Linear(16, 3 * 3 * 40)
        self.proj = nn.Linear(3 * 40, 5)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        tokens = self.patches(x).flatten(2).transpose([0, 2, 1])
        parts = self.qkv(tokens).reshape([0, -1, 3, self.num_heads, self.head_dim]).transpose([2, 0, 3, 1, 4])
        weights = nn.functional.softmax(parts[0].matmul(parts[1].transpose([0, 1, 3, 2])) * 0.2)
        mixed = weights.matmul(parts[2]).transpose([0, 2, 1, 3])
        return self.proj(mixed.reshape([0, -1, self.num_heads * self.head_dim])).mean(1)


def conv1d() -> nn.Layer:
    return nn.Sequential(
        *(nn.Conv1D(3, 12, 3, padding=1), nn.BatchNorm1D(12), nn.ReLU(), nn.Conv1D(12, 8, 3), nn.ReLU()),
        *(nn.AdaptiveAvgPool1D(1), nn.Flatten(), nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 4)),
    )


def conv3d() -> nn.Layer:
    return nn.Sequential(
        *(nn.Conv3D(2, 6, 3, padding=1), nn.BatchNorm3D(6), nn.ReLU(), nn.Conv3D(6, 4, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool3D(1), nn.Flatten(), nn.Linear(4, 3)),
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Layer], list[int], set[str]]] = {
    "tokens": (Tokens, [2, 3, 16, 16], {"mlp.up.weight", "encoder.linear1.weight"}),
    "wide heads": (WideHeads, [2, 3, 16, 16], {"patches.weight", "qkv.weight"}),
    "conv1d": (conv1d, [2, 3, 12], {"0.weight", "3.weight", "7.weight"}),
    "conv3d": (conv3d, [1, 2, 6, 6, 6], {"0.weight", "3.weight"}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_units_of_all_layers_are_found_cut_and_restored(name: str) -> None:
    make, shape, expected = NETWORKS[name]
    paddle.seed(2)
    model = make()
    model.eval()
    inputs = paddle.randn(shape)
    whole = model(inputs).numpy()
    ds = DygraphSensitivity(model, shape, layers="all")
    assert {group.path for group in ds.groups} >= expected
    ratios = {group.name: 0.4 for group in ds.groups}
    assert ds.verify(ratios) < 1e-5
    outcome = ds.prune_vars(ratios)
    assert outcome.params_after < outcome.params_before
    assert outcome.flops_after < outcome.flops_before
    assert np.isfinite(model(inputs).numpy()).all()
    ds.restore()
    assert (model(inputs).numpy() == whole).all()


def test_every_weight_has_a_group_or_a_reason() -> None:
    ds = DygraphSensitivity(Tokens(), [1, 3, 16, 16], layers="all")
    named = {path for group in ds.groups for path in group.filters}
    wanted = {"patches.weight", "mlp.down.weight", "encoder.self_attn.q_proj.weight", "head.weight"}
    assert all(path in named or ds.explain(path) for path in wanted)


def test_a_width_under_a_layer_norm_is_told_as_such() -> None:
    ds = DygraphSensitivity(Tokens(), [1, 3, 16, 16], layers="all")
    assert "by a layer norm" in ds.explain("patches.weight")


def test_linear_layers_are_left_alone_unless_asked_for() -> None:
    assert not DygraphSensitivity(Tokens(), [1, 3, 16, 16]).groups
    with pytest.raises(DysensError, match='layers="all"'):
        DygraphSensitivity(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), [1, 4])


def test_a_sweep_and_a_skip_know_all_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    inputs = paddle.randn([16, 4])
    ds = DygraphSensitivity(model, [1, 4], layers="all", skip_vars=["2.weight"])
    assert [group.path for group in ds.groups] == ["0.weight"]
    sens = ds.sensitive(lambda: float(model(inputs).square().mean()), ratios=[0.5], progress=False)
    assert list(sens) == [ds.groups[0].name]


@pytest.mark.parametrize("layers", ["everything", None, 3])
def test_there_are_two_kinds_of_layers(layers: object) -> None:
    with pytest.raises(DysensError, match="layers"):
        DygraphSensitivity(Tokens(), [1, 3, 16, 16], layers=layers)  # type: ignore[arg-type]


class Sized(nn.Layer):
    """Hands a shape on as an argument, and returns one: a `paddle.Size` on Paddle 3.3."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2D(3, 8, 3, stride=2, padding=1)
        self.up = nn.Conv2DTranspose(8, 6, 2, 2)
        self.head = nn.Conv2D(6, 2, 1)

    def forward(self, x: paddle.Tensor) -> tuple[paddle.Tensor, list[int]]:
        y = self.head(self.up(self.down(x), output_size=x.shape[2:]))
        return y, y.shape


def test_a_shape_among_arguments_and_outputs_is_taken() -> None:
    ds = DygraphSensitivity(Sized(), [1, 3, 16, 16])
    assert [group.path for group in ds.groups] == ["down.weight", "up.weight"]
    assert ds.verify({group.name: 0.5 for group in ds.groups}) < 1e-5


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_a_weight_that_is_computed_anew_has_a_reason(norm: Callable[[nn.Layer], nn.Layer]) -> None:
    model = nn.Sequential(nn.Conv2D(3, 8, 3), norm(nn.Conv2D(8, 8, 3)), nn.ReLU(), nn.Conv2D(8, 2, 1))
    ds = DygraphSensitivity(model, [1, 3, 8, 8])
    reasons = [reason for reason in ds.unprunable.values() if "computes its weight anew" in reason]
    assert len(reasons) == 1
    assert "layer '1'" in reasons[0]
    assert {group.path for group in ds.groups} | set(ds.unprunable)


class WritesIntoInput(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3)
        self.head = nn.Conv2D(8, 2, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x.add_(paddle.ones_like(x))
        return self.head(self.conv(x))


def test_a_forward_may_write_into_its_input() -> None:
    example = paddle.randn([1, 3, 8, 8])
    before = example.numpy().copy()
    ds = DygraphSensitivity(WritesIntoInput(), example)
    assert [group.path for group in ds.groups] == ["conv.weight"]
    assert ds.verify({"conv.weight": 0.5}) < 1e-5
    assert (example.numpy() == before).all()


class Attention(nn.Layer):
    """Heads as most people write them: one projection for queries, keys and values, and widths kept beside it."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.dim, self.num_heads, self.head_dim = dim, heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        parts = self.qkv(x).reshape((0, -1, 3, self.num_heads, self.head_dim)).transpose((2, 0, 3, 1, 4))
        scores = nn.functional.softmax(parts[0] @ parts[1].transpose((0, 1, 3, 2)) * self.head_dim**-0.5)
        return self.proj((scores @ parts[2]).transpose((0, 2, 1, 3)).reshape((0, -1, self.dim)))


class Attending(nn.Layer):
    def __init__(self, attention: nn.Layer) -> None:
        super().__init__()
        self.patches = nn.Conv2D(3, 24, 4, 4)
        self.norm = nn.LayerNorm(24)
        self.attention = attention
        self.head = nn.Linear(24, 5)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        tokens = self.patches(x).flatten(2).transpose([0, 2, 1])
        return self.head((tokens + self.attention(self.norm(tokens))).mean(1))


@pytest.mark.parametrize("heads", [3, 4])
@pytest.mark.parametrize("kind", [Attention, nn.MultiHeadAttention])
def test_heads_of_attention_are_units(kind: Callable[[int, int], nn.Layer], heads: int) -> None:
    model = Attending(kind(24, heads))
    model.eval()
    inputs = paddle.randn([2, 3, 16, 16])
    whole = model(inputs).numpy()
    ds = DygraphSensitivity(model, [1, 3, 16, 16], layers="all")
    (group,) = (group for group in ds.groups if group.path.startswith("attention."))
    assert group.size == heads
    assert ds.verify({group.name: 0.5}) < 1e-5
    foretold = ds.costs().flops({group.name: 0.5})
    outcome = ds.prune_vars({group.name: 0.5})
    assert outcome.flops_after == pytest.approx(foretold)
    assert outcome.counted_by_us == ("attention (matrix products)",)
    assert model.attention.num_heads == heads - round(heads * 0.5)
    assert model.attention.head_dim == 24 // heads
    ds.restore()
    assert (model(inputs).numpy() == whole).all()


def test_many_heads_are_told_apart_with_few_probes() -> None:
    model = Attending(Attention(24, 3))
    model.patches, model.norm, model.head = nn.Conv2D(3, 96, 4, 4), nn.LayerNorm(96), nn.Linear(96, 5)
    model.attention = Attention(96, 6)
    ds = DygraphSensitivity(model, [1, 3, 8, 8], layers="all")
    assert [(group.path, group.size) for group in ds.groups] == [("attention.qkv.weight", 6)]


def test_group_norm_loses_whole_groups() -> None:
    model = nn.Sequential(nn.Conv2D(3, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2D(16, 2, 1))
    ds = DygraphSensitivity(model, [1, 3, 8, 8])
    assert [(group.path, group.size) for group in ds.groups] == [("0.weight", 4)]
    assert ds.verify({"0.weight": 0.5}) < 1e-5
    ds.prune_vars({"0.weight": 0.5})
    assert model[1]._num_groups == 2
