"""Who finds the groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dysens.engines import native, paddleslim
from dysens.engines.analysis import Analysis
from dysens.errors import InputError, nearest

if TYPE_CHECKING:
    import paddle

    from dysens.inputs import View

Engine = Callable[["paddle.nn.Layer", "Sequence[View]"], Analysis]

_ENGINES: dict[str, Engine] = {
    "auto": native.analyse,
    "native": native.analyse,
    "paddleslim": paddleslim.analyse,
}


def engine_named(name: str) -> Engine:
    """The engine that a user means."""
    if name not in _ENGINES:
        hint = nearest(str(name), _ENGINES) or f"; there are {', '.join(_ENGINES)}."
        raise InputError(f'there is no engine "{name}"{hint}')
    return _ENGINES[name]
