"""Files that are missing, broken, cut off, empty or of something else: a sentence, and Paddle stays as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import nn

from dysens.errors import DysensError, InputError
from dysens.programs import load_inference, uses_pir
from programs.nets import PROGRAM, ConvNet, export, exported


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    exported(ConvNet(), folder, [None, 3, 8, 8])
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r'no inference model at ".*none": a program ends in .json .* or .pdmodel'
    ):
        load_inference(tmp_path / "none")
    with pytest.raises(InputError, match="holds no inference model"):
        load_inference(tmp_path)


def test_a_folder_with_several(folder: Path) -> None:
    shutil.copy(folder / f"inference{PROGRAM}", folder / f"a{PROGRAM}")
    (folder / f"inference{PROGRAM}").rename(folder / f"b{PROGRAM}")
    with pytest.raises(InputError, match=r"holds several programs \(a.*, b.*\); say which one"):
        load_inference(folder)


def test_other_json_beside_a_program_is_no_program(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "det"}')
    (folder / f"inference{PROGRAM}").rename(folder / f"net{PROGRAM}")
    (folder / "inference.pdiparams").rename(folder / "net.pdiparams")
    assert load_inference(folder).feeds[0].name == "x0"


def test_no_weights(folder: Path) -> None:
    (folder / "inference.pdiparams").unlink()
    with pytest.raises(
        InputError, match=r'has no weights: there is no file "inference\.pdiparams" beside it'
    ):
        load_inference(folder)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("ending", [PROGRAM, ".pdiparams"])
def test_cut_off(folder: Path, ending: str, share: float) -> None:
    file = folder / f"inference{ending}"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(DysensError, match=r"^\S.*\.$"):
        load_inference(folder)
    assert paddle.in_dynamic_mode()


@pytest.mark.parametrize(
    "content", [b"no program", b"\x00" * 500, b"[1, 2]", b'{"base_code": {"magic": "pir"}}', b"\x80\x04."]
)
@pytest.mark.parametrize("ending", [PROGRAM, ".pdiparams"])
def test_of_something_else(folder: Path, ending: str, content: bytes) -> None:
    (folder / f"inference{ending}").write_bytes(content)
    with pytest.raises(DysensError, match=r"inference"):
        load_inference(folder / "inference")


@pytest.mark.parametrize("content", [b"", b"no program", b"{", b'{"layers": 12}', b"\x89PNG\r\n"])
def test_a_broken_program_is_named_where_its_folder_is_given(folder: Path, content: bytes) -> None:
    (folder / f"inference{PROGRAM}").write_bytes(content)
    with pytest.raises(
        InputError, match=rf'inference\{PROGRAM}" is (empty|not a Paddle program|JSON, but not)'
    ):
        load_inference(folder)


def without_first_convolution(data: bytes) -> tuple[bytes, bytes]:
    """A program whose first convolution is one that Paddle does not know, and one that reads nothing."""
    if uses_pir():
        unknown, deaf = json.loads(data), json.loads(data)
        for program, changed in ((unknown, {"#": "1.convolve"}), (deaf, None)):
            ops = program["program"]["regions"][0]["blocks"][0]["ops"]
            place = next(number for number, op in enumerate(ops) if op["#"].endswith("conv2d"))
            ops[place] = {**ops[place], **(changed or {"I": [{"%": 99999}, *ops[place]["I"][1:]]})}
        return json.dumps(unknown).encode(), json.dumps(deaf).encode()
    from paddle.base.proto import framework_pb2

    unknown, deaf = framework_pb2.ProgramDesc(), framework_pb2.ProgramDesc()
    for program in (unknown, deaf):
        program.ParseFromString(data)
    first = [next(op for op in program.blocks[0].ops if op.type == "conv2d") for program in (unknown, deaf)]
    first[0].type = "convolve"
    del first[1].inputs[:]
    return unknown.SerializeToString(), deaf.SerializeToString()


def test_an_operation_that_paddle_does_not_know_and_one_that_reads_nothing(folder: Path) -> None:
    file = folder / f"inference{PROGRAM}"
    unknown, deaf = without_first_convolution(file.read_bytes())
    file.write_bytes(unknown)
    with pytest.raises(InputError, match=r'because of "convolve" \(operation \d+'):
        load_inference(folder)
    file.write_bytes(deaf)
    with pytest.raises(InputError, match="outputs depend on none of its inputs"):
        load_inference(folder)


def test_no_path() -> None:
    with pytest.raises(InputError, match="has to be text or a Path, not None"):
        load_inference(None)  # type: ignore[arg-type]


def test_weights_of_another_network(folder: Path, tmp_path: Path) -> None:
    export(ConvNet(12), tmp_path / "wide", [None, 3, 8, 8])
    shutil.copy(tmp_path / "wide.pdiparams", folder / "inference.pdiparams")
    with pytest.raises(InputError, match="does not belong to"):
        load_inference(folder)


def test_damaged_anywhere(folder: Path) -> None:
    """Bytes of the program and of the weights' descriptions: refused in a sentence, or imported and compared."""
    rng = np.random.default_rng(0)
    said = []
    for ending, most in ((PROGRAM, None), (".pdiparams", 60)):
        file = folder / f"inference{ending}"
        good = file.read_bytes()
        for place in rng.choice(len(good) if most is None else most, 12, replace=False):
            data = bytearray(good)
            data[place] ^= 0x15
            file.write_bytes(bytes(data))
            try:
                load_inference(folder)
            except DysensError as error:
                said.append(str(error))
        file.write_bytes(good)
    assert said
    assert [sentence for sentence in said if not sentence.endswith(".")] == []
    load_inference(folder)


class Branching(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = self.conv(x)
        if y.mean() > 0:
            y = y * 2
        return y


def test_control_flow_is_named(tmp_path: Path) -> None:
    export(Branching(), tmp_path / "inference", [None, 3, 8, 8])
    name = "pd_op.if" if uses_pir() else "conditional_block"
    with pytest.raises(
        InputError, match=rf'because of "{name}" \(operation \d+, .*control flow cannot be replayed'
    ):
        load_inference(tmp_path)


class Quantised(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return quantised(self.conv(x))


@paddle.jit.not_to_static
def quantised(x: paddle.Tensor) -> paddle.Tensor:
    if uses_pir():
        return paddle._C_ops.fake_quantize_dequantize_abs_max(x, 8, 1)[0]
    return nn.quant.quant_layers.FakeQuantAbsMax()(x)


def test_a_quantised_program_is_named(tmp_path: Path) -> None:
    export(Quantised(), tmp_path / "inference", [None, 3, 8, 8])
    with pytest.raises(InputError, match=r'because of ".*quant.*" \(operation \d+, .*it is quantised'):
        load_inference(tmp_path)


@pytest.mark.once("paddle26")
def test_a_program_of_paddle_3_on_paddle_2(tmp_path: Path) -> None:
    program = {"base_code": {"magic": "pir"}, "program": {"regions": [{"blocks": [{"ops": [{"#": "p"}]}]}]}}
    (tmp_path / "inference.json").write_text(json.dumps(program))
    (tmp_path / "inference.pdiparams").write_bytes(b"1")
    with pytest.raises(InputError):
        load_inference(tmp_path)
