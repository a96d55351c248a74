"""Programs that are not a network as it was exported (fused, converted, quantised, with loops), made by Paddle's own means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import paddle
import pytest
from paddle import nn

from dysens.errors import InputError
from dysens.programs import load_inference, uses_pir
from programs.nets import PROGRAM, ConvNet, export


def optimized(folder: Path, onednn: bool) -> Path:
    """What Paddle's predictor saves after its passes."""
    prefix = export(ConvNet(), folder / "inference", [None, 3, 8, 8])
    saved = folder / "saved"
    saved.mkdir()
    config = paddle.inference.Config(f"{prefix}{PROGRAM}", f"{prefix}.pdiparams")
    config.disable_gpu()
    config.disable_glog_info()
    if onednn:
        config.enable_mkldnn()
    else:
        getattr(config, "disable_mkldnn", lambda: None)()
    config.switch_ir_optim(True)
    config.enable_save_optim_model(True)
    config.set_optim_cache_dir(str(saved))
    paddle.inference.create_predictor(config)
    return saved


def test_a_program_that_was_rewritten_for_onednn(tmp_path: Path) -> None:
    saved = optimized(tmp_path, onednn=True)
    if uses_pir():
        sentence = r'because of "onednn_op\.\w+" \(operation \d+\): it was rewritten for oneDNN'
    else:
        sentence = r'because of "fused_conv2d" \(operation \d+, .*it was fused for inference'
    with pytest.raises(InputError, match=sentence):
        load_inference(saved)


def test_a_program_after_the_passes_for_the_cpu(tmp_path: Path) -> None:
    """Paddle 2 fuses a linear layer; what Paddle 3 does leaves a network as it is, so it is imported, and compared."""
    saved = optimized(tmp_path, onednn=False)
    if uses_pir():
        assert load_inference(saved)(paddle.ones([1, 3, 8, 8])).shape == [1, 5]
        return
    with pytest.raises(InputError, match=r'because of "fc" \(operation \d+, .*it was fused for inference'):
        load_inference(saved)


class Looping(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y, i = self.conv(x), paddle.zeros([1], "int64")
        while i < 3:
            y, i = y * 1.5, i + 1
        return y


class LoopingByName(Looping):
    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        start = [paddle.zeros([1], "int64"), self.conv(x)]
        return paddle.static.nn.while_loop(lambda i, y: i < 3, lambda i, y: [i + 1, y * 1.5], start)[1]


@pytest.mark.parametrize("network", [Looping, LoopingByName])
def test_a_loop(network: Callable[[], nn.Layer], tmp_path: Path) -> None:
    export(network(), tmp_path / "inference", [None, 3, 8, 8])
    with pytest.raises(
        InputError, match=r'because of ".*while" \(operation \d+, .*control flow cannot be replayed'
    ):
        load_inference(tmp_path)


def test_training_with_quantisation_in_mind(tmp_path: Path) -> None:
    from paddle.quantization import QAT, QuantConfig
    from paddle.quantization.quanters import FakeQuanterWithAbsMaxObserver

    quanter = FakeQuanterWithAbsMaxObserver(moving_rate=0.9)
    config = QuantConfig(activation=None, weight=None)
    config.add_type_config(nn.Conv2D, activation=quanter, weight=quanter)
    network = ConvNet()
    network.train()
    way = QAT(config)
    network = way.quantize(network)
    network(paddle.randn([2, 3, 8, 8]))
    network.eval()
    if not uses_pir():  # Paddle 3.3 cannot convert what it has quantised
        network = way.convert(network)
    export(network, tmp_path / "inference", [None, 3, 8, 8])
    with pytest.raises(InputError, match=r'because of ".*quantize.*" \(operation \d+, .*it is quantised'):
        load_inference(tmp_path)
