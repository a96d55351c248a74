"""Exported inference models and static programs as live layers, and back.

`load_inference` reads files, `layer_of_program` takes a `paddle.static.Program` in memory with the scope that its weights are
in; both give a `ProgramLayer`, an ordinary `paddle.nn.Layer`. In between is a `Graph` (`read_program`): operations with slots,
attributes and shapes as plain data, the same for both generations of programs. `Op.index` is an operation's place in the
program's global block, and every parameter of the layer has the name that it has in the program (``tensor.name``), so a plan
that was made on the layer can be carried out on the program: look up which parameter each path is with
`dysens.model.tensors_by_path`.
"""

from dysens.programs._files import InferenceFiles, find_inference, read_inference_state
from dysens.programs._graph import Feed, Graph, Op
from dysens.programs._layer import ProgramLayer
from dysens.programs._load import in_dynamic_mode, layer_of_program, load_inference, read_program, uses_pir

__all__ = [
    "Feed",
    "Graph",
    "InferenceFiles",
    "Op",
    "ProgramLayer",
    "find_inference",
    "in_dynamic_mode",
    "layer_of_program",
    "load_inference",
    "read_inference_state",
    "read_program",
    "uses_pir",
]
