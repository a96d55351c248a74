"""Settings in every kind of container: a change is noticed, an equal value is no change."""

from __future__ import annotations

import argparse
import array
import collections
import contextvars
import dataclasses
import decimal
import enum
import fractions
import functools
import itertools
import logging
import random
import types
import weakref

import numpy as np
import paddle
import pytest

from dysens.compiled._freeze import frozen, why_unreadable


@dataclasses.dataclass
class Settings:
    value: float = 1.0


class Slotted:
    __slots__ = ("__hidden", "value")

    def __init__(self, value):
        self.value, self.__hidden = 0.0, value


class OfClass:
    value = 1.0


class Mode(enum.Enum):
    ONE, TWO = 1.0, 2.0


class Scale(paddle.nn.Layer):
    def __init__(self, value):
        super().__init__()
        self.scale = value


def nested(value, levels=40):
    for _ in range(levels):
        value = {"inside": [value]}
    return value


def closure(value):
    return lambda: value


def with_attribute(value):
    def function():
        pass

    function.setting = value
    return function


def method(value):
    return types.MethodType(lambda owner: owner.value, Settings(value))


def advanced(steps, iterator):
    collections.deque(itertools.islice(iterator, int(steps)), maxlen=0)
    return iterator


def drawn(steps, generator):
    for _ in range(int(steps)):
        generator.random()
    return generator


KEPT = [Settings(1.0), Settings(2.0)]
MAKERS = {
    "number": lambda v: v,
    "numpy number": np.float32,
    "list": lambda v: [0, v],
    "dict": lambda v: {"a": v},
    "nested": nested,
    "many": lambda v: [[0.0, 1.0]] * 3000 + [[0.0, v]],
    "set": lambda v: {v},
    "deque": lambda v: collections.deque([v]),
    "chain map": lambda v: collections.ChainMap({}, {"a": v}),
    "user dict": lambda v: collections.UserDict(a=v),
    "read-only dict": lambda v: types.MappingProxyType({"a": v}),
    "namespace": lambda v: types.SimpleNamespace(a=[types.SimpleNamespace(b=v)]),
    "arguments": lambda v: argparse.Namespace(a=v),
    "dataclass": Settings,
    "slots": Slotted,
    "enum": Mode,
    "decimal": decimal.Decimal,
    "fraction": fractions.Fraction,
    "array": lambda v: array.array("d", [v]),
    "bytes that change": lambda v: bytearray([int(v)]),
    "numpy array": lambda v: np.array([0.0, v]),
    "numpy array of objects": lambda v: np.array([None, [v]], dtype=object),
    "tensor": lambda v: paddle.to_tensor([v]),
    "tensor in an object": lambda v: types.SimpleNamespace(a=paddle.to_tensor([v])),
    "closure": closure,
    "default": lambda v: eval(f"lambda a={v}: a"),
    "keyword default": lambda v: eval(f"lambda *, a={v}: a"),
    "constant in code": lambda v: eval(f"lambda: {v}"),
    "attribute of a function": with_attribute,
    "partial": lambda v: functools.partial(max, v),
    "method": method,
    "weak reference": lambda v: weakref.ref(KEPT[int(v) - 1]),
    "loose layer": lambda v: [Scale(v)],
    "iterator": lambda v: advanced(v, itertools.cycle([1, 2, 3])),
    "counter": lambda v: itertools.count(int(v)),
    "random numbers": lambda v: drawn(v, random.Random(0)),
    "random numbers of numpy": lambda v: drawn(v, np.random.default_rng(0)),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_another_value_is_noticed_and_an_equal_one_is_the_same(kind):
    make = MAKERS[kind]
    before = frozen(make(1.0))
    assert frozen(make(1.0)) == before
    assert frozen(make(2.0)) != before
    assert not why_unreadable(make(1.0))


def test_a_class_and_its_instances():
    before = frozen(OfClass), frozen([OfClass()])
    OfClass.value = 2.0
    after = frozen(OfClass), frozen([OfClass()])
    OfClass.value = 1.0
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert (frozen(OfClass), frozen([OfClass()])) == before


def test_a_context_variable():
    variable = contextvars.ContextVar("variable", default=1.0)
    before = frozen(variable)
    variable.set(2.0)
    assert frozen(variable) != before


def test_what_is_inside_of_itself():
    one, other = [1.0], [1.0]
    one.append(one)
    other.append(other)
    assert frozen(one) == frozen(other)
    other[0] = 2.0
    assert frozen(one) != frozen(other)


def test_no_other_object_takes_the_place_of_one_that_is_gone():
    """An address is used again as soon as its object is gone."""
    before = [frozen(object) for _ in range(3)]
    seen = [frozen(i for i in range(n)) for n in range(50)]
    assert before[0] == before[1]
    assert not any(one == other for one, other in itertools.combinations(seen, 2))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ((i for i in range(3)), "a generator"),
        ([{"a": (i for i in range(3))}], "a generator"),
        ([[each] for each in range(30_000)], "more than 20000 values"),
        (nested(1.0, 300), "deeply nested values"),
    ],
)
def test_what_cannot_be_looked_into_is_said(value, why):
    assert why_unreadable(value) == why


def test_loggers_and_modules_do_not_count():
    assert not why_unreadable({"log": logging.getLogger("a"), "np": np, "act": paddle.nn.functional.relu})
