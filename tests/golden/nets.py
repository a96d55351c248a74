"""Small networks behind the golden sensitivities in this folder.

Built with `paddle.utils.unique_name.guard()` so that parameter names
(`conv2d_0.w_0`, ...) are the same on every Paddle version.
"""

import paddle
from paddle import nn


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, k=3, stride=1, groups=1, act=True):
        layers = [
            nn.Conv2D(cin, cout, k, stride, (k - 1) // 2, groups=groups, bias_attr=False),
            nn.BatchNorm2D(cout),
        ]
        super().__init__(*layers, *([nn.ReLU()] if act else []))


class Residual(nn.Layer):
    """Two 3x3 convolutions, with a 1x1 projection where the shape changes."""

    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = ConvBN(cin, cout, stride=stride)
        self.conv2 = ConvBN(cout, cout, act=False)
        self.short = ConvBN(cin, cout, 1, stride, act=False) if stride > 1 or cin != cout else None

    def forward(self, x):
        y = self.conv2(self.conv1(x))
        return nn.functional.relu(y + (x if self.short is None else self.short(x)))


class TinyResNet(nn.Layer):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = ConvBN(3, 16)
        self.blocks = nn.Sequential(
            Residual(16, 16), Residual(16, 32, 2), Residual(32, 32), Residual(32, 64, 2)
        )
        self.pool = nn.AdaptiveAvgPool2D(1)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        return self.fc(paddle.flatten(self.pool(self.blocks(self.stem(x))), 1))


def mobilenet_v1():
    return paddle.vision.models.mobilenet_v1(scale=0.25, num_classes=10)


def mobilenet_v3():
    return paddle.vision.models.mobilenet_v3_small(scale=0.5, num_classes=10)


NETS = {"tiny_resnet": TinyResNet, "mobilenet_v1": mobilenet_v1, "mobilenet_v3": mobilenet_v3}
INPUT_SHAPE = [1, 3, 32, 32]


def build(name):
    with paddle.utils.unique_name.guard():
        return NETS[name]()
