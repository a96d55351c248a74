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
from dysens.programs._load import (
    in_dynamic_mode,
    layer_of_program,
    load_inference,
    outputs_apart,
    read_program,
    run_eagerly,
    uses_pir,
)
from dysens.programs._save import Exported, largest_gap, save_inference, saved_and_run
from dysens.programs._static_forward import (
    forward_layer,
    forward_outputs,
    in_static_mode,
    is_old,
    scope_array,
)
from dysens.programs._static_load import LoadedProgram, load_program
from dysens.programs._static_network import (
    ProgramCut,
    Pruned,
    StaticNetwork,
    apply_cut,
    check_parameters,
    program_shapes,
    prunable_filters,
)
from dysens.programs._static_plan import ProgramPlan, write_scope
from dysens.programs._static_serve import (
    LayerAnswers,
    NotServedError,
    Run,
    Watched,
    runs_answered,
    served_callback,
)

__all__ = [
    "Exported",
    "Feed",
    "Graph",
    "InferenceFiles",
    "LayerAnswers",
    "LoadedProgram",
    "NotServedError",
    "Op",
    "ProgramCut",
    "ProgramLayer",
    "ProgramPlan",
    "Pruned",
    "Run",
    "StaticNetwork",
    "Watched",
    "apply_cut",
    "check_parameters",
    "find_inference",
    "forward_layer",
    "forward_outputs",
    "in_dynamic_mode",
    "in_static_mode",
    "is_old",
    "largest_gap",
    "layer_of_program",
    "load_inference",
    "load_program",
    "outputs_apart",
    "program_shapes",
    "prunable_filters",
    "read_inference_state",
    "read_program",
    "run_eagerly",
    "runs_answered",
    "save_inference",
    "saved_and_run",
    "scope_array",
    "served_callback",
    "uses_pir",
    "write_scope",
]
