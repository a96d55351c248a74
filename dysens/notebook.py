"""Whether this code runs in a notebook."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code. That a kernel's package is loaded says nothing: others load it too."""
    loaded = sys.modules.get("IPython")
    return loaded is not None and hasattr(loaded.get_ipython(), "kernel")
