"""What to remove, removing it, undoing it, proving that it was right, and a pruned model on disk."""

from dysens.pruning._checkpoint import (
    cut_as_saved,
    has_plan,
    is_cut_as_saved,
    load_checkpoint,
    load_pruned,
    renamed_state,
    save_plan,
    save_pruned,
    set_optimizer_state,
    stages_of,
)
from dysens.pruning._costs import PruneOutcome, describe_costs
from dysens.pruning._cutting import Cuts, cut, fold_into, history, holds, masked, zero
from dysens.pruning._files import NAME_TABLE, check_array, read_state
from dysens.pruning._plan import (
    CannotCutError,
    Folded,
    PrunePlan,
    TensorCut,
    TensorMix,
    TensorShift,
    group_now,
    plan_for,
    translated,
)
from dysens.pruning._proof import TOLERANCE, difference, proof_removals, random_removal, trial, trial_removals

__all__ = [
    "NAME_TABLE",
    "TOLERANCE",
    "CannotCutError",
    "Cuts",
    "Folded",
    "PruneOutcome",
    "PrunePlan",
    "TensorCut",
    "TensorMix",
    "TensorShift",
    "check_array",
    "cut",
    "cut_as_saved",
    "describe_costs",
    "difference",
    "fold_into",
    "group_now",
    "has_plan",
    "history",
    "holds",
    "is_cut_as_saved",
    "load_checkpoint",
    "load_pruned",
    "masked",
    "plan_for",
    "proof_removals",
    "random_removal",
    "read_state",
    "renamed_state",
    "save_plan",
    "save_pruned",
    "set_optimizer_state",
    "stages_of",
    "translated",
    "trial",
    "trial_removals",
    "zero",
]
