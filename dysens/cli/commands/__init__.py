"""The commands, in the order in which they are usually needed."""

from __future__ import annotations

from dysens.cli.command import Command
from dysens.cli.commands import (
    convert,
    demo,
    groups,
    merge,
    plot,
    prune,
    ratios,
    report,
    search,
    show,
    sweep,
)

COMMANDS: dict[str, Command] = {
    module.COMMAND.name: module.COMMAND
    for module in (groups, sweep, search, show, plot, report, ratios, prune, merge, convert, demo)
}
