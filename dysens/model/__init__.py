"""Touch a live layer and leave it as found: state, interrupts, inputs, eager copies."""

from dysens.model._inputs import (
    View,
    doubled,
    eagerly,
    fresh,
    in_double_precision,
    leaves,
    map_leaves,
    view_of,
    without_dropout,
)
from dysens.model._interrupts import run_through
from dysens.model._memory import give_memory_back
from dysens.model._state import (
    ModelState,
    Preserved,
    TensorState,
    all_tensors,
    fingerprint,
    forward_state,
    has_storage,
    isolate,
    preserved,
    swap_storage,
    tensor_path,
    tensors_by_path,
)

__all__ = [
    "ModelState",
    "Preserved",
    "TensorState",
    "View",
    "all_tensors",
    "doubled",
    "eagerly",
    "fingerprint",
    "forward_state",
    "fresh",
    "give_memory_back",
    "has_storage",
    "in_double_precision",
    "isolate",
    "leaves",
    "map_leaves",
    "preserved",
    "run_through",
    "swap_storage",
    "tensor_path",
    "tensors_by_path",
    "view_of",
    "without_dropout",
]
