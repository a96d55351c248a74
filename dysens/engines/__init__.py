"""Who finds the groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dysens.engines import native
from dysens.errors import InputError, nearest

if TYPE_CHECKING:
    import paddle

    from dysens.inputs import View

_ENGINES: dict[str, Callable[[paddle.nn.Layer, Sequence[View]], native.Analysis]] = {
    "auto": native.analyse,
    "native": native.analyse,
}


def engine_named(name: str) -> Callable[[paddle.nn.Layer, Sequence[View]], native.Analysis]:
    """The engine that a user means."""
    if name not in _ENGINES:
        hint = nearest(str(name), _ENGINES) or f"; there are {', '.join(_ENGINES)}."
        raise InputError(f'there is no engine "{name}"{hint}')
    return _ENGINES[name]
