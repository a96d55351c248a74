"""Blocks that are repeated: what was tried in vain for one is not tried again for the next, and each keeps its own reason."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn

from dysens import DygraphSensitivity
from dysens.groups import Probe

SHAPE = [1, 3, 8, 8]
WIDTH = 12


class Folding(nn.Layer):
    """Folds its inner channels by a number in the code, or by one that it remembers."""

    def __init__(self, remembers: bool) -> None:
        super().__init__()
        self.remembers = remembers
        self.inner = WIDTH
        self.wide = nn.Conv2D(8, WIDTH, 1)
        self.back = nn.Conv2D(WIDTH, 8, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        number = self.inner if self.remembers else 12
        return x + self.back(self.wide(x).reshape([-1, number, 64]).reshape([-1, number, 8, 8]))


class Chain(nn.Layer):
    def __init__(self, blocks: list[nn.Layer]) -> None:
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 1)
        self.blocks = nn.LayerList(blocks)
        self.head = nn.Conv2D(8, 4, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_what_failed_in_a_block_is_not_tried_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(number: int) -> int:
        seen = 0
        mismatch = Probe.mismatch

        def counted(*given: object) -> object:
            nonlocal seen
            seen += 1
            return mismatch(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(Probe, "mismatch", counted)
            ds = DygraphSensitivity(Chain([Folding(False) for _ in range(number)]), SHAPE)
        assert [group.path for group in ds.groups] == ["stem.weight"]
        return seen

    one, two, eight = tried(1), tried(2), tried(8)
    assert two - one < one / 2
    assert eight - two <= 6 * (two - one)


def test_each_keeps_the_reason_of_its_own_trial() -> None:
    model = Chain([Folding(False) for _ in range(3)])
    ds = DygraphSensitivity(model, SHAPE)
    for number, block in enumerate(model.blocks):
        why = ds.unprunable[block.wide.weight.name]
        assert "cutting it does not work" in why
        assert f"layer 'blocks.{number}.wide'" in why


@pytest.mark.parametrize("order", [[False, True, False, True], [True, False, True, False]])
def test_blocks_of_one_class_that_remember_other_numbers_are_not_alike(order: list[bool]) -> None:
    ds = DygraphSensitivity(Chain([Folding(remembers) for remembers in order]), SHAPE)
    cut = {group.path for group in ds.groups} - {"stem.weight"}
    assert cut == {f"blocks.{number}.wide.weight" for number, remembers in enumerate(order) if remembers}
