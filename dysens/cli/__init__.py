"""The command line: ``dysens`` and ``python -m dysens``; and the same under the options of tools/.

Nothing here loads Paddle, pandas or matplotlib before a command needs them: help has to come at once, and a journal can be
looked at on a machine without Paddle. So commands import what they work with inside their functions.
"""

from dysens.cli._analysis_tool import AnalysisTool
from dysens.cli._program import COMMANDS, main, parser
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
