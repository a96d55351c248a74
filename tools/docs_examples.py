"""An extension of griffe, which reads the docstrings for the API reference: our ``Example:`` is what it calls ``Examples:``."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


class ExampleSections(Extension):
    """Lets examples be shown as code; as they stand, griffe takes them for notes in prose."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
