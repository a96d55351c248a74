"""Who finds the groups: the native engine probes the live layer, PaddleSlim walks a program. Both are proven."""

from dysens.engines._analysis import Analysis, Engine
from dysens.engines._native import native_engine
from dysens.engines._paddleslim import EngineChoice, engine_for

__all__ = ["Analysis", "Engine", "EngineChoice", "engine_for", "native_engine"]
