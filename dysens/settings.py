"""Settings as they are typed: ``key=value``, with the value in YAML."""

from __future__ import annotations

from typing import Any

import yaml

from dysens.errors import InputError


def parsed_setting(text: str) -> tuple[str, Any]:
    """Key and value.

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
