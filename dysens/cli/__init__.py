"""The command line: ``dysens`` and ``python -m dysens``.

Nothing here loads Paddle, pandas or matplotlib before a command needs them: help has to come at once, and a journal can be
looked at on a machine without Paddle. So commands import what they work with inside their functions.
"""

from dysens.cli.program import main

__all__ = ["main"]
