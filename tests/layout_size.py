"""The page-layout detector at half the size that it was trained for: it still finds something, in a quarter of the time."""

from __future__ import annotations

HEIGHT, WIDTH = 416, 320
_NORMALIZE = "NormalizeImage: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], is_scale: true}"
HALF_SIZE = (
    f"EvalReader.sample_transforms=[{{Decode: {{}}}}, {{Resize: {{target_size: [{HEIGHT}, {WIDTH}], keep_ratio: false, "
    f"interp: 2}}}}, {{{_NORMALIZE}}}, {{Permute: {{}}}}]",
    f"TestReader.inputs_def.image_shape=[3, {HEIGHT}, {WIDTH}]",
    f"TrainReader.batch_transforms=[BatchRandomResize: {{target_size: [{HEIGHT}, {WIDTH}], random_size: false, "
    f"random_interp: false, keep_ratio: false}}, {_NORMALIZE}, Permute: {{}}]",
)
"""Overrides of configs/det/picodet_lcnet_layout.yml."""
