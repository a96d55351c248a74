"""Bridges to the frameworks whose models people prune: ``dysens.adapters.ocr`` and ``dysens.adapters.det``.

`Task` is what a bridge gives the pipeline; `LayerTask` is one without a framework. The bridges themselves are imported by
name: each needs packages that the other does not.
"""

from dysens.adapters._layer import LayerTask, ProgramTask
from dysens.adapters._norms import frozen_norms, norms_of
from dysens.adapters._onnx import write_onnx
from dysens.adapters._shared import install_command
from dysens.adapters.base import Reading, Scoring, Task, Unlabelled
from dysens.programs import Exported

__all__ = [
    "Exported",
    "LayerTask",
    "ProgramTask",
    "Reading",
    "Scoring",
    "Task",
    "Unlabelled",
    "frozen_norms",
    "install_command",
    "norms_of",
    "write_onnx",
]
