"""Small static programs, of whichever kind this Paddle makes, and what runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import nn

PIR = bool(getattr(paddle.framework, "use_pir_api", lambda: False)())
PARAMS = ["conv1_weights", "conv2_weights", "conv3_weights", "conv4_weights", "conv5_weights"]
CLASSES = 4


class ConvBN(nn.Layer):
    def __init__(self, name: str, inside: int, out: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        weight = paddle.ParamAttr(name=f"{name}_weights")
        self.conv = nn.Conv2D(
            inside, out, size, stride, size // 2, groups=groups, weight_attr=weight, bias_attr=False
        )
        scale, offset = (paddle.ParamAttr(name=f"{name}_bn_{what}") for what in ("scale", "offset"))
        self.bn = nn.BatchNorm2D(out, weight_attr=scale, bias_attr=offset)

    def forward(self, x: Any) -> Any:
        return nn.functional.relu(self.bn(self.conv(x)))


class Net(nn.Layer):
    """Two sums, a depthwise convolution, a reshape with a width in it, dropout."""

    def __init__(self, flat: bool = False) -> None:
        super().__init__()
        self.flat = flat
        self.conv1, self.conv2 = ConvBN("conv1", 1, 8, 3), ConvBN("conv2", 8, 8, 3)
        self.conv3, self.conv4 = ConvBN("conv3", 8, 8, 3, 2), ConvBN("conv4", 8, 8, 3)
        self.dw, self.conv5 = ConvBN("dw", 8, 8, 3, groups=8), ConvBN("conv5", 8, 16, 1)
        self.pool, self.drop = nn.AdaptiveAvgPool2D(1 if flat else 2), nn.Dropout(0.3)
        self.fc = nn.Linear(16 if flat else 64, CLASSES, weight_attr=paddle.ParamAttr(name="fc_weights"))

    def forward(self, x: Any) -> Any:
        x = self.conv1(x)
        x = x + self.conv2(x)
        x = self.conv3(x)
        x = x + self.conv4(x)
        x = self.pool(self.conv5(self.dw(x)))
        return self.fc(self.drop(x.flatten(1) if self.flat else x.reshape([-1, 64])))


class Static:
    """A train program, its copy for testing, trained for some steps in a scope of their own."""

    def __init__(self, optimizer: str = "Momentum") -> None:
        paddle.seed(0)
        self.place = paddle.CPUPlace()
        self.scope = paddle.static.Scope()
        self.train, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(self.train, startup):
            image = paddle.static.data("image", [None, 1, 12, 12])
            label = paddle.static.data("label", [None, 1], "int64")
            logits = Net()(image)
            loss = nn.functional.cross_entropy(logits, label).mean()
            accuracy = paddle.metric.accuracy(nn.functional.softmax(logits), label)
            self.fetch = [accuracy, loss, logits]
            self.test = self.train.clone() if PIR else self.train.clone(for_test=True)
            self.test_fetch = self._fetch_in_copy()
            getattr(paddle.optimizer, optimizer)(0.05).minimize(loss)
        if not PIR:
            self.fetch = [value.name for value in self.fetch]
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(48, 1, 12, 12)).astype("float32")
        quarters = np.abs(self.x[:, 0].reshape(48, 2, 6, 2, 6)).mean((2, 4)).reshape(48, 4)
        self.y = quarters.argmax(1).astype("int64")[:, None]
        self.exe = paddle.static.Executor(self.place)
        self.exe.run(startup, scope=self.scope)
        self.steps(12)

    def _fetch_in_copy(self) -> list[Any]:
        if not PIR:
            return [value.name for value in self.fetch]
        self.test.set_is_test_attr()
        ops = list(self.train.global_block().ops)
        places = [
            next(i for i, op in enumerate(ops) if op.id() == v.get_defining_op().id()) for v in self.fetch
        ]
        return [self.test.global_block().ops[place].result(0) for place in places]

    @property
    def feed(self) -> dict[str, np.ndarray]:
        return {"image": self.x, "label": self.y}

    def steps(self, count: int, program: Any = None) -> list[float]:
        """Losses of training steps."""
        program = self.train if program is None else program
        with paddle.static.scope_guard(self.scope):
            return [
                float(self.exe.run(program, feed=self.feed, fetch_list=[self.fetch[1]])[0])
                for _ in range(count)
            ]

    def logits(self, program: Any = None) -> np.ndarray:
        """What a program for testing gives."""
        program = self.test if program is None else program
        with paddle.static.scope_guard(self.scope):
            return np.array(self.exe.run(program, feed=self.feed, fetch_list=[self.test_fetch[2]])[0])

    def values(self, program: Any = None) -> dict[str, np.ndarray]:
        """Everything that the scope holds for a program."""
        program = self.train if program is None else program
        names = [v.name for v in program.list_vars() if v.persistable and v.name not in ("feed", "fetch")]
        found = {name: self.scope.find_var(name) for name in names}
        return {
            n: np.array(v.get_tensor())
            for n, v in found.items()
            if v is not None and v.get_tensor()._is_initialized()
        }

    def shapes(self, program: Any) -> dict[str, tuple[int, ...]]:
        """The shapes that a program states."""
        return {
            v.name: tuple(v.shape)
            for v in program.list_vars()
            if v.persistable and v.name not in ("feed", "fetch")
        }


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(one[k].tobytes() == other[k].tobytes() for k in one)
