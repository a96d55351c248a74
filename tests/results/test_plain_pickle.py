"""The pickle machine on its own: what it builds, what it refuses, and that no file makes it slow or large."""

import os
import pickle
import struct
import subprocess
import time

import numpy as np
import pytest

from dysens.errors import InputError, UnsafePickleError
from dysens.results.plain_pickle import PickledArray, load_plain

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": {}},
        {"a": {0.1: -0.5, 0.2: 1e300}},
        {"é": {1: 2}},
        {b"a": {0.5: None}},
        {"a": True, "b": (1, 2, 3, 4)},
    ],
)
def test_plain_values(value, protocol):
    assert load_plain(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.uint8])
def test_numpy_scalars(kind, protocol):
    value = load_plain(pickle.dumps({kind(3): kind(1)}, protocol))
    assert value == {3.0: 1.0}
    assert {type(number) for item in value.items() for number in item} == {float}


@pytest.mark.parametrize("protocol", range(5))
def test_numpy_arrays(protocol):
    assert load_plain(pickle.dumps({"a": np.array([0.25])}, protocol)) == {"a": PickledArray((0.25,))}
    assert load_plain(pickle.dumps({"a": np.array(0.25)}, protocol)) == {"a": PickledArray((0.25,))}


def test_big_endian_numbers():
    assert load_plain(pickle.dumps(np.array([1.5], ">f8"), 2)) == PickledArray((1.5,))


class Spy:
    """Unpickled by the wrong machine it would create a file."""

    def __init__(self, reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("function", "named"),
    [
        (os.system, "system"),
        (eval, "eval"),
        (getattr, "getattr"),
        (subprocess.Popen, "Popen"),
        (np.load, "load"),
        (bytearray, "bytearray"),
    ],
)
def test_a_pickle_that_would_run_a_command_is_refused_by_name(function, named, protocol, tmp_path):
    trap = tmp_path / "trap"
    data = pickle.dumps({"a": Spy((function, (f"touch {trap}",)))}, protocol)
    with pytest.raises(UnsafePickleError, match=named):
        load_plain(data)
    assert not trap.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'touch trap'\ntR.",
        b"(S'touch trap'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    ],
)
def test_the_old_ways_to_call_are_refused_by_name(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsafePickleError, match=r"os\.system"):
        load_plain(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [[1], {1}, frozenset(), bytearray(b"a"), 1j, range(3), {"a": [1]}])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_sensitivities_do_not_hold_is_refused(value, protocol):
    with pytest.raises((UnsafePickleError, InputError), match=r"never need|is damaged"):
        load_plain(pickle.dumps(value, protocol))


def test_allowed_names_can_not_be_called_otherwise():
    for data in (
        b"cnumpy\ndtype\n(S'O'\nI00\nI01\ntR.",  # no object arrays: a dtype alone is nothing
        b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'O'\nI00\nI01\ntRS'x'\ntR.",
        b"cpaddleslim.dygraph.prune.filter_pruner\nStatus\n(S'/etc/passwd'\ntR.",
        b"\x80\x02cpaddleslim.dygraph.prune.filter_pruner\nStatus\nS'/etc/passwd'\n\x85\x81.",
        b"ccopy_reg\n_reconstructor\n(c__builtin__\nobject\nc__builtin__\nobject\nNtR.",
        b"c__builtin__\nobject\n(tR.",
    ):
        try:
            value = load_plain(data)
        except InputError:
            continue
        assert type(value).__module__ == "dysens.results.plain_pickle"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"}",
        b"(",
        b"t.",
        b"K\x01(.",
        b"N}s.",
        b"}K\x01s.",
        b"}(K\x01u.",
        b"h\x05.",
        b"}NNb.",
        b"R.",
        b"S'no end\n.",
        b"Sx\n.",
        b"I" + b"9" * 10_000 + b"\n.",
        b"Fnumber\n.",
        b"\xff",
        b"}(NK\x01u.",
        b"}\x85}K\x01s.",
    ],
)
def test_damaged_pickles_are_refused_in_words(data):
    with pytest.raises(InputError, match=r"it is|in it|builds"):
        load_plain(data)


class TestBombs:
    """Small files that make pickle.Unpickler take all memory or all time."""

    def finish_soon(self, data):
        started = time.process_time()
        with pytest.raises((InputError, UnsafePickleError)):
            load_plain(data)
        assert time.process_time() - started < 30  # not a test of speed: these would take hours

    def test_a_memo_index_of_two_thousand_million(self):
        assert load_plain(b"\x80\x02}r" + struct.pack("<I", 2**31) + b".") == {}

    def test_a_string_that_says_it_is_huge(self):
        self.finish_soon(b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"abc")
        self.finish_soon(b"\x80\x04B" + struct.pack("<I", 2**32 - 1) + b"abc")

    def test_a_key_of_nested_shared_tuples(self):
        nested = b")" + b"2\x86" * 60  # DUP, TUPLE2
        self.finish_soon(b"\x80\x02}" + nested + b"Ns.")
        through_memo = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60
        self.finish_soon(b"\x80\x02}" + through_memo + b"Ns.")

    def test_deep_nesting(self):
        deep = b"\x80\x02" + b"}K\x01" * 100_000 + b"N" + b"s" * 100_000 + b"."
        assert isinstance(load_plain(deep), dict)

    def test_a_dictionary_that_holds_itself(self):
        value = load_plain(b"\x80\x02}q\x00K\x01h\x00s.")
        assert value[1] is value

    def test_endless_opcodes(self, monkeypatch):
        monkeypatch.setattr("dysens.results.plain_pickle.MAX_OPCODES", 1000)
        with pytest.raises(InputError, match="more than 1000 opcodes"):
            load_plain(b"\x80\x02" + b"N" * 2000 + b".")
