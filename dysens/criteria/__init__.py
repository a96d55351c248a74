"""Which units go first: norms of filters, or what data say."""

from dysens.criteria._norms import (
    CRITERIA,
    Criterion,
    GroupCriterion,
    check_criterion,
    compensates,
    criterion_name,
    fpgm,
    l1,
    l2,
    random,
)
from dysens.criteria._select import LowestScores
from dysens.criteria._variance import Variance

__all__ = [
    "CRITERIA",
    "Criterion",
    "GroupCriterion",
    "LowestScores",
    "Variance",
    "check_criterion",
    "compensates",
    "criterion_name",
    "fpgm",
    "l1",
    "l2",
    "random",
]
