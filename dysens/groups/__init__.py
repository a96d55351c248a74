"""Which channels of a live model move together: found by running it, not by reading it."""

from dysens.groups._candidates import (
    CONV_GROUPS,
    FREE,
    REARRANGED,
    by_conv_groups,
    candidates,
    connected,
    in_blocks,
    members_of,
    part_of,
    together,
)
from dysens.groups._channel_graph import ChannelGraph, channel_graph
from dysens.groups._describe import (
    GroupList,
    GroupNames,
    Unprunable,
    explain_group,
    groups_with,
    matching,
    skip_reasons,
)
from dysens.groups._group import (
    ChannelGroup,
    Choice,
    Layout,
    Remembered,
    Removal,
    checked_ratio,
    merge_removals,
)
from dysens.groups._instrument import Call, Visit, numbers, run
from dysens.groups._layers import (
    ALL,
    FILTERS,
    Intake,
    Port,
    Role,
    Slice,
    filters_by_path,
    filters_of,
    roles_of,
)
from dysens.groups._likeness import Likeness
from dysens.groups._probe import Probe, Wrong
from dysens.groups._remembered import may_be_share, remembering
from dysens.groups._reorder import layouts

__all__ = [
    "ALL",
    "CONV_GROUPS",
    "FILTERS",
    "FREE",
    "REARRANGED",
    "Call",
    "ChannelGraph",
    "ChannelGroup",
    "Choice",
    "GroupList",
    "GroupNames",
    "Intake",
    "Layout",
    "Likeness",
    "Port",
    "Probe",
    "Remembered",
    "Removal",
    "Role",
    "Slice",
    "Unprunable",
    "Visit",
    "Wrong",
    "by_conv_groups",
    "candidates",
    "channel_graph",
    "checked_ratio",
    "connected",
    "explain_group",
    "filters_by_path",
    "filters_of",
    "groups_with",
    "in_blocks",
    "layouts",
    "matching",
    "may_be_share",
    "members_of",
    "merge_removals",
    "numbers",
    "part_of",
    "remembering",
    "roles_of",
    "run",
    "skip_reasons",
    "together",
]
