from __future__ import annotations

from dysens.adapters.det import DetTask
from dysens.sensitivity import DygraphSensitivity

# What PaddleDetection's tutorial on sensitivities names for YOLOv3-MobileNetV1, as block and layer of the static network.
SEED_TOOL = [
    f"yolo_block.{block}.{layer}" for block in range(3) for layer in ("0.0", "0.1", "1.0", "1.1", "2", "tip")
]
LIVE_NAMES = {
    "0.0": "conv_module.conv0",
    "0.1": "conv_module.conv1",
    "1.0": "conv_module.conv2",
    "1.1": "conv_module.conv3",
    "2": "conv_module.route",
    "tip": "tip",
}


def test_every_parameter_that_the_seed_tool_names_is_in_a_group_of_its_own(config):
    task = DetTask(config("yolov3_mobilenet_v1_shapes", "TestReader.inputs_def.image_shape=[3, 64, 64]"))
    groups = DygraphSensitivity(task.model, task.example_inputs).groups
    for name in SEED_TOOL:
        block, layer = name.removeprefix("yolo_block.").split(".", 1)
        path = f"neck.yolo_block.{block}.{LIVE_NAMES[layer]}.conv.weight"
        assert [group.path for group in groups if path in group.filters] == [path]
    assert len(groups) == 34
