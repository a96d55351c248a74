"""Names of a room that are looked up on first use, so that importing the room loads no more than it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(
    room: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package whose names live in its modules.

    Args:
        room: The package, its ``__name__``.
        homes: Module of the package (or of another room, as "room:dysens.other") to the names that come from it.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def look_up(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module = home_of[name]
        return getattr(import_module(module if module.startswith("dysens.") else f"{room}.{module}"), name)

    def names() -> list[str]:
        return sorted(home_of)

    return look_up, names
