"""The commands that documents show: indented, or in a block of bash."""

from __future__ import annotations

import re
import shlex

BASH = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """The words of every line that is a command, from the program's name on, without remarks."""
    indented = re.findall(r"^    (.*)", text, re.MULTILINE)
    lines = [*indented, *(line for block in BASH.findall(text) for line in block.splitlines())]
    return [
        shlex.split(line, comments=True) for line in lines if line.startswith(("dysens ", "python tools/"))
    ]
