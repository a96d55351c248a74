"""Which units go first: norms of filters, or what data say."""

from typing import TYPE_CHECKING

from dysens._lazy import lazy_exports

if TYPE_CHECKING:
    from dysens.criteria._by_group import LowestScores, Variance
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

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "_norms": [
            "CRITERIA",
            "Criterion",
            "GroupCriterion",
            "check_criterion",
            "compensates",
            "criterion_name",
            "fpgm",
            "l1",
            "l2",
            "random",
        ],
        "_by_group": ["LowestScores", "Variance"],
    },
)
