"""Back to an inference model: it is run and compared, keeps its names, and replaces what was there only as a whole."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import nn
from states import assert_same, picture

from dysens import DygraphSensitivity
from dysens.costs import Predictor
from dysens.errors import InputError, ProofError
from dysens.model import fingerprint
from dysens.programs import load_inference, save_inference
from programs.nets import PROGRAM, ConvNet, Reader, exported


class TwoInputs(nn.Layer):
    """Two inputs and three outputs, behind an upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2D(3, 6, 3, padding=1)
        self.second = nn.Conv2D(6, 4, 1)
        self.third = nn.Conv2D(6, 4, 1)

    def forward(self, x: paddle.Tensor, scale: paddle.Tensor) -> tuple[paddle.Tensor, ...]:
        y = nn.functional.interpolate(self.first(x), scale_factor=2, mode="nearest")
        return self.second(y) * scale.mean(), nn.functional.sigmoid(self.third(y)), scale.mean(1)


def pruned(folder: Path, net: nn.Layer, *shapes: list[int | None]) -> nn.Layer:
    model = load_inference(exported(net, folder, *shapes))
    given = [[1, *(side or 8 for side in shape[1:])] for shape in shapes]
    ds = DygraphSensitivity(model, given if len(given) > 1 else given[0])
    ds.prune_vars({group.name: 0.5 for group in ds.groups})
    return model


@pytest.mark.parametrize(
    ("net", "shapes"),
    [(ConvNet, ([None, 3, 8, 8],)), (Reader, ([None, 3, 8, 8],)), (TwoInputs, ([None, 3, 8, 8], [None, 2]))],
)
def test_a_pruned_network_goes_back_under_its_names(net: type, shapes: tuple, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    model = pruned(tmp_path / "in", net(), *shapes)
    before = picture(model)
    result = save_inference(model, tmp_path / "out" / "small")
    assert_same(before, picture(model))
    assert result.difference < 1e-5
    assert result.prefix == tmp_path / "out" / "small"
    old, new = (
        Predictor(p, onednn=False) for p in (tmp_path / "in" / "inference", tmp_path / "out" / "small")
    )
    assert list(new._inputs) == list(old._inputs)
    assert new._names == old._names
    again = load_inference(tmp_path / "out")
    assert sorted(p.name for p in again.parameters()) == sorted(p.name for p in model.parameters())
    assert [list(p.shape) for p in again.parameters()] == [list(p.shape) for p in model.parameters()]
    assert fingerprint(again) == fingerprint(model)
    assert (
        Path(f"{result.prefix}.pdiparams").stat().st_size
        < (tmp_path / "in" / "inference.pdiparams").stat().st_size
    )
    # Other sizes of what may vary.
    arrays = [np.ones([3, *shape[1:]], "float32") for shape in shapes]
    expected = model(*map(paddle.to_tensor, arrays))
    for got, tensor in zip(new(*arrays), expected if isinstance(expected, list) else [expected]):
        np.testing.assert_allclose(got, tensor.numpy(), atol=1e-5)


def test_groups_are_the_same_after_a_round_trip_through_upsampling(tmp_path: Path) -> None:
    """Paddle 3 cannot run an interpolation with oneDNN, so it is written as something else."""
    model = load_inference(exported(TwoInputs(), tmp_path, [None, 3, 8, 8], [None, 2]))
    again = load_inference(save_inference(model, tmp_path / "again").prefix)
    shapes = [[1, 3, 8, 8], [1, 2]]
    assert [g.name for g in DygraphSensitivity(again, shapes).groups] == [
        g.name for g in DygraphSensitivity(model, shapes).groups
    ]


def test_a_folder_is_filled_and_other_files_stay(tmp_path: Path) -> None:
    model = load_inference(exported(ConvNet(), tmp_path, [None, 3, 8, 8]))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "inference.yml").write_text("Global: {}\n")
    other = ".pdmodel" if PROGRAM == ".json" else ".json"
    (tmp_path / "out" / f"inference{other}").write_text("of another Paddle")
    save_inference(model, tmp_path / "out")
    names = {file.name for file in (tmp_path / "out").iterdir()} - {"inference.pdiparams.info"}
    assert names == {f"inference{PROGRAM}", "inference.pdiparams", "inference.yml"}


def test_outputs_that_differ_are_refused_and_the_old_files_stay(tmp_path: Path) -> None:
    prefix = exported(ConvNet(), tmp_path, [None, 3, 8, 8])
    model = load_inference(prefix)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def restless(layer: nn.Layer, inputs: tuple, output: paddle.Tensor) -> paddle.Tensor:
        return output + 1.0 if paddle.in_dynamic_mode() else output

    last = next(layer for layer in model.sublayers() if isinstance(layer, nn.Linear))
    last.register_forward_post_hook(restless)
    with pytest.raises(
        ProofError, match=r"does not give the network's outputs: they differ by .* Nothing was written"
    ):
        save_inference(model, prefix)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    model = load_inference(exported(ConvNet(), tmp_path, [None, 3, 8, 8]))
    with pytest.raises(InputError, match="load_inference gave can be written, not ConvNet"):
        save_inference(ConvNet(), tmp_path / "out")
    with pytest.raises(InputError, match=r"takes 1 inputs \(x0\), not 2"):
        save_inference(model, tmp_path / "out", [np.ones([1, 3, 8, 8], "float32")] * 2)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be saved"):
        save_inference(model, tmp_path / "file" / "inference")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_full_disk_leaves_the_old_files(tmp_path: Path) -> None:
    """Paddle itself says nothing when it cannot write a file to its end."""
    import resource

    prefix = exported(ConvNet(), tmp_path, [None, 3, 8, 8])
    model = load_inference(prefix)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(
            InputError, match=r"cannot be saved: .*\. What was saved there before is as it was"
        ):
            save_inference(model, prefix)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
