"""How the program that runs spells an option, so that an error names what its user can type.

A message says ``flag("target_loss")``. That is ``--target-loss`` while ``dysens`` runs, ``--target_loss`` while one of tools/
does, and ``target_loss`` when called from Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import yaml

from dysens.errors import InputError


@dataclass(frozen=True)
class Spelling:
    """How options are written.

    Attributes:
        prefix: Before the name of an option.
        separator: Between the words of its name.
        setting: Before a ``key=value`` of a config.
        names: Options that are called otherwise, in full.
    """

    prefix: str
    separator: str
    setting: str
    names: Mapping[str, str] = field(default_factory=dict)

    def flag(self, name: str) -> str:
        """An option by its name in Python."""
        return self.names.get(name, self.prefix + name.replace("_", self.separator))

    def given(self, name: str, value: Any) -> str:
        """An option with its value, as it is typed."""
        if not self.prefix:
            text = f'"{value}"' if isinstance(value, str) else repr(value)
            return f"{self.flag(name)}={text}"
        return self.flag(name) if value is True else f"{self.flag(name)} {value}"


PYTHON = Spelling("", "_", "the override ")
DYSENS = Spelling("--", "-", "--set ", {"target_vars": "--only", "ds.groups": "`dysens groups`"})

_running: ContextVar[Spelling] = ContextVar("running", default=PYTHON)


def flag(name: str) -> str:
    """An option as the program that runs spells it.

    Args:
        name: Its name in Python.

    Example:
        >>> flag("target_loss")
        'target_loss'
        >>> with spelled(DYSENS):
        ...     flag("target_loss")
        '--target-loss'
    """
    return _running.get().flag(name)


def given(name: str, value: Any) -> str:
    """An option with its value, as the program that runs takes it; a switch that is on needs none.

    Args:
        name: Its name in Python.
        value: What it is set to.

    Example:
        >>> given("fast", "off"), given("force", True)
        ('fast="off"', 'force=True')
        >>> with spelled(DYSENS):
        ...     given("fast", "off"), given("force", True)
        ('--fast off', '--force')
    """
    return _running.get().given(name, value)


def setting(text: str) -> str:
    """An override of a config as the program that runs takes it.

    Args:
        text: ``key=value``.

    Example:
        >>> with spelled(DYSENS):
        ...     setting("Global.use_gpu=false")
        '--set Global.use_gpu=false'
    """
    return _running.get().setting + text


@contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """Inside, `flag` and `setting` spell as this program does."""
    token = _running.set(spelling)
    try:
        yield
    finally:
        _running.reset(token)


def parsed_setting(text: str) -> tuple[str, Any]:
    """Key and value of an override as it is typed: ``key=value``, with the value in YAML.

    Raises:
        InputError: There is no key, no "=", or no YAML behind it.

    Example:
        >>> parsed_setting("Global.sizes=[320, 640]")
        ('Global.sizes', [320, 640])
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f'"{text}" is not of the form key=value.')
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InputError(f'The value of "{text}" is not valid YAML: {error}') from error
