"""The command line: ``dysens`` and ``python -m dysens``; and the same under the options of tools/.

Nothing here loads Paddle, pandas or matplotlib before a command needs them: help has to come at once, and a journal can be
looked at on a machine without Paddle. So commands import what they work with inside their functions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dysens._lazy import lazy_exports

if TYPE_CHECKING:
    from dysens.cli._analysis_tool import AnalysisTool
    from dysens.cli._program import COMMANDS, parser
    from dysens.cli._tools import Tool, compress_tool, eval_tool, export_tool, sensitivity_tool

__all__ = [
    "COMMANDS",
    "AnalysisTool",
    "Tool",
    "compress_tool",
    "eval_tool",
    "export_tool",
    "main",
    "parser",
    "sensitivity_tool",
]

_INTERRUPTED = 130  # what shells give for SIGINT


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for an error, 2 for invalid usage, 130 for Ctrl-C.

    Args:
        words: What stands after ``dysens``; from the command line if not given.
    """
    try:
        # Imported here, so that Ctrl-C in the meantime is no stack trace; the program itself tells more of a later one.
        from dysens.cli._program import main as program

        return program(words)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return _INTERRUPTED


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "_analysis_tool": ["AnalysisTool"],
        "_program": ["COMMANDS", "parser"],
        "_tools": ["Tool", "compress_tool", "eval_tool", "export_tool", "sensitivity_tool"],
    },
)
