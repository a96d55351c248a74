"""Pickles of strangers: what they become, what is refused, and that no file makes reading it slow or large."""

import os
import pickle
import struct
import subprocess
import time
import tracemalloc
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from dysens._pickle import PickledObject, load_plain, read_plain
from dysens.errors import InputError, UnsafePickleError

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
STATUS = "paddleslim.dygraph.prune.filter_pruner Status"


def loaded(data: bytes):
    return load_plain(data, "sensitivities", classes=[STATUS])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": {}},
        {"a": {0.1: -0.5, 0.2: 1e300}},
        {"é": {1: 2}},
        {b"a": {0.5: None}},
        {"a": True, "b": (1, 2, 3, 4), "c": ()},
        {"a": [1, [2.5, None], (3,)], "b": []},
        [{"shared": 1}] * 3,
    ],
)
def test_plain_values(value, protocol):
    assert loaded(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.uint8])
def test_numpy_scalars(kind, protocol):
    value = loaded(pickle.dumps({kind(3): kind(1)}, protocol))
    assert value == {3.0: 1.0}
    assert {type(number) for item in value.items() for number in item} == {type(kind(3).item())}


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize(
    "array",
    [
        np.array([0.25]),
        np.array(0.25),
        np.arange(24, dtype="f4").reshape(2, 3, 4),
        np.asfortranarray(np.arange(6, dtype="i2").reshape(2, 3)),
        np.arange(20, dtype="i8")[::3],
        np.array([[True, False]]),
        np.array([1 + 2j], "c8"),
        np.zeros((0, 3), "f2"),
        np.array([1.5, -2], ">f8"),
    ],
)
def test_numpy_arrays(array, protocol):
    found = loaded(pickle.dumps({"a": array}, protocol))["a"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.shape == array.shape


@pytest.mark.parametrize("protocol", range(5))
def test_ordered_dictionaries_are_plain(protocol):
    found = loaded(pickle.dumps(OrderedDict(b=1, a=OrderedDict()), protocol))
    assert list(found.items()) == [("b", 1), ("a", {})]
    assert type(found) is dict


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
        loaded(data)
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
        loaded(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    [
        *(
            {1},
            frozenset(),
            bytearray(b"a"),
            1j,
            range(3),
            {"a": {2}},
            Path("a"),
            OrderedDict,
            len,
        ),
        *(np.array(["a"]), np.array([b"a"]), np.array([None]), np.datetime64("2020"), np.uint64(3)),
        *(np.zeros(2, "i4,f4"), np.zeros(2, [("a", "O")]), np.zeros(2, "2f4").view("V4")),
        *(np.ma.array([1], mask=[True]), np.dtype("f4"), np.ndarray, {(1, 2): 3}, {None: 1}),
    ],
    ids=lambda value: f"{value!r:.40}",
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_such_files_do_not_hold_is_refused(value, protocol):
    with pytest.raises(
        (UnsafePickleError, InputError), match=r"never need|damaged|a plain number|nor a number"
    ):
        loaded(pickle.dumps(value, protocol))


NUMPY = b"cnumpy.core.multiarray\n"
F4 = b"cnumpy\ndtype\n(S'f4'\nI00\nI01\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb"
EMPTY = NUMPY + b"_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
CLASS = b"cpaddleslim.dygraph.prune.filter_pruner\nStatus\n"


def array_of(
    shape: bytes, dtype: bytes = F4, raw: bytes = b"S'abcdabcd'\n", fortran: bytes = b"I00\n"
) -> bytes:
    return EMPTY + b"(I1\n" + shape + dtype + fortran + raw + b"tb."


@pytest.mark.parametrize(
    "data",
    [
        b"cnumpy\ndtype\n(S'O'\nI00\nI01\ntR.",  # a dtype alone is nothing
        NUMPY + b"scalar\n(cnumpy\ndtype\n(S'O'\nI00\nI01\ntRS'x'\ntR.",
        NUMPY + b"scalar\n(" + F4 + b"S'abcdabcd'\ntR.",
        NUMPY + b"scalar\n(S'f4'\nS'abcd'\ntR.",
        CLASS + b"(S'/etc/passwd'\ntR.",
        b"\x80\x02" + CLASS + b"U\x01a\x85\x81.",
        b"(" + CLASS + b"S'/etc/passwd'\no.",
        b"(S'/etc/passwd'\nipaddleslim.dygraph.prune.filter_pruner\nStatus\n.",
        b"ccopy_reg\n_reconstructor\n(c__builtin__\nobject\nc__builtin__\nobject\nNtR.",
        b"ccopy_reg\n_reconstructor\n(cnumpy\nndarray\nc__builtin__\nobject\nNtR.",
        b"ccopy_reg\n_reconstructor\n(" + CLASS + b"c__builtin__\nobject\nS'state'\ntR.",
        b"c__builtin__\nobject\n(tR.",
        b"cnumpy\nndarray\n((I9999999999\nttR.",
        b"(I9999999999\ninumpy\nndarray\n.",
        b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x81.",
        b"c__builtin__\ntuple\n((I1\nI2\nttR.",
        b"c__builtin__\ntuple\n(tR.",
        b"ccollections\nOrderedDict\n((I1\nI2\nttR.",
        b"c_codecs\nencode\n(I1\nS'latin1'\ntR.",
        b"c_codecs\nencode\n(V\\u20ac\nS'latin1'\ntR.",
        EMPTY + b".",
        EMPTY + b"Nb.",
        EMPTY + b"(dS'values'\nI1\nsb.",
        array_of(b"(I-1\nt"),
        array_of(b"(I-2\nI-1\nt"),
        array_of(b"(I9999999999\nt"),
        array_of(b"(I2\nI2\nt"),
        array_of(b"(I01\nt", raw=b"S'abcd'\n"),
        array_of(b"(F2.0\nt"),
        array_of(b"I2\n"),
        array_of(b"(I2\nl"),
        array_of(b"(" + b"I1\n" * 65 + b"t", raw=b"S'abcd'\n"),
        array_of(b"(I0\nI99999999999999999999\nt", raw=b"S''\n"),
        array_of(b"(I2\nt", raw=b"S'abcdabc'\n"),
        array_of(b"(I2\nt", raw=b"(lI1\na"),
        array_of(b"(I2\nt", dtype=b"S'f4'\n"),
        array_of(b"(I1\nt", dtype=b"cnumpy\ndtype\n(S'O8'\nI00\nI01\ntR"),
        array_of(b"(I1\nt", dtype=b"cnumpy\ndtype\n(S'V8'\nI00\nI01\ntR(I3\nS'|'\nN(S'a'\nt(dI8\nI1\nI0\ntb"),
        array_of(b"(I1\nt", dtype=b"cnumpy\ndtype\n(S'f4'\ntR(I3\nS'|'\n(" + F4 + b"(I2\nttNNtb"),
        array_of(b"(I1\nt", dtype=b"cnumpy\ndtype\n(S'f4'\ntR(I3\nS'<f8,'\nNNNI-1\nI-1\nI0\ntb"),
        b"}\x94}(S'__class__'\nI1\nub.",
        b"(lS'a'\na}(S'append'\nI1\nub.",
        CLASS + b"}(S'__setstate__'\nI1\nub.",
        CLASS + b"(N}S'attributes'\nI1\nstb.",
        b"cnumpy\ndtype\n}(S'_function'\nI1\nub.",
        b"cnumpy\ndtype\n(N}S'__call__'\nI1\nstb.",
        CLASS + b")R(N}S'__class__'\nI1\nstb.",
        CLASS + b")R(lb.",
    ],
)
def test_allowed_names_can_not_be_used_otherwise(data):
    with pytest.raises(InputError, match=r"damaged|a plain number|of another class"):
        loaded(data)


def test_nothing_that_a_pickle_says_stays():
    with pytest.raises(InputError):
        loaded(CLASS + b"}(S'attributes'\nI1\nub.")
    assert loaded(CLASS + b")R.").attributes == {}
    found = loaded(CLASS + b")R}(S'__class__'\nI1\nS'attributes'\nI2\nub.")
    assert type(found) is PickledObject
    assert found.attributes == {"__class__": 1, "attributes": 2}


@pytest.mark.parametrize(
    ("data", "opcode"),
    [
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02\x83\x01\x00.", "EXT2"),
        (b"\x80\x02\x84\x01\x00\x00\x00.", "EXT4"),
        (b"Pid\n.", "PERSID"),
        (b"\x80\x02NQ.", "BINPERSID"),
        (b"\x80\x04" + CLASS + b")}\x92.", "NEWOBJ_EX"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"\x80\x05\x96" + bytes(8) + b".", "BYTEARRAY8"),
        (b"\x80\x02\x8b\x01\x00\x00\x00\x01.", "LONG4"),
        (b"N2.", "DUP"),
        (b"NN0.", "POP"),
        (b"(1N.", "POP_MARK"),
        (b"\x80\x04\x8f.", "EMPTY_SET"),
    ],
)
def test_opcodes_that_such_files_never_need(data, opcode):
    with pytest.raises(
        UnsafePickleError, match=f"the pickle opcode {opcode}, which sensitivities never need"
    ):
        loaded(data)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "os system",
            "builtins eval",
            "builtins getattr",
            "numpy ndarray.tofile",
            "numpy.core.multiarray fromfile",
        ),
        *("numpy load", "numpy.core multiarray._reconstruct", "dysens._pickle _Loader", "functools partial"),
        *(
            "operator attrgetter",
            "importlib import_module",
            "paddle load",
            "collections OrderedDict.fromkeys",
        ),
    ],
)
def test_other_names_are_refused_however_they_are_asked_for(name):
    module, attribute = name.split(" ")
    text = f"{module}\n{attribute}\n".encode()
    stacked = b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, attribute))
    for data in (
        b"c" + text + b".",
        b"(i" + text + b".",
        b"\x80\x04" + stacked + b"\x93.",
        b"(c" + text + b"o.",
    ):
        with pytest.raises(UnsafePickleError, match=rf"asks for {module}\.{attribute}, which"):
            loaded(data)


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
        b"(NR.",
        b"N(\x86.",
        b"p-1\n.",
        b"Np-1\n.",
        b"\x80\x06N.",
        b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
    ],
)
def test_damaged_pickles_are_refused_in_words(data):
    with pytest.raises(InputError, match=r"it is|in it|builds"):
        loaded(data)


class TestBombs:
    """Small files that make pickle.Unpickler take all memory or all time."""

    def finish_soon(self, data):
        started = time.process_time()
        with pytest.raises((InputError, UnsafePickleError)):
            loaded(data)
        assert time.process_time() - started < 30  # not a test of speed: these would take hours

    def test_a_memo_index_of_two_thousand_million(self):
        self.finish_soon(b"\x80\x02}r" + struct.pack("<I", 2**31) + b".")
        self.finish_soon(b"}p2147483648\n.")

    def test_a_string_that_says_it_is_huge(self):
        self.finish_soon(b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"abc")
        self.finish_soon(b"\x80\x04B" + struct.pack("<I", 2**32 - 1) + b"abc")

    def test_a_key_of_nested_shared_tuples(self):
        nested = b")" + b"2\x86" * 60  # DUP, TUPLE2
        self.finish_soon(b"\x80\x02}" + nested + b"Ns.")
        through_memo = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60
        self.finish_soon(b"\x80\x02}" + through_memo + b"Ns.")

    @pytest.mark.parametrize("make", [b"N\x85", b"N\x86", b"\x85"])
    def test_a_key_of_deep_tuples(self, make):
        """Whose hash would take all of the stack."""
        self.finish_soon(b"\x80\x02}N" + make * 200_000 + b"Ns.")
        self.finish_soon(b"\x80\x02}(N" + make * 200_000 + b"Nu.")
        self.finish_soon(b"\x80\x02(N" + make * 200_000 + b"Nd.")

    def test_a_tuple_that_hides_from_the_first_pass(self):
        nested = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60
        for hidden in (b"Nb", b"(u", b"(e", b"q\x01h\x01", b"NNs", b"Na"):
            self.finish_soon(b"\x80\x02}" + nested + hidden + b"Ns.")

    def test_deep_nesting(self):
        depth = 100_000
        for start, end in (
            (b"}K\x01", b"s"),
            (b"]", b"a"),
            (b"", b"\x85"),
            (CLASS + b")R}K\x01", b"sb"),
            (EMPTY, b"\x85b"),
        ):
            few = depth if len(start) < 10 else depth // 10
            self.finish_soon(b"\x80\x02" + start * few + b"N" + end * few + b".")

    def test_a_container_that_holds_itself(self):
        self.finish_soon(b"\x80\x02}q\x00K\x01h\x00s.")
        self.finish_soon(b"\x80\x02]q\x00h\x00a.")
        self.finish_soon(b"\x80\x02" + CLASS + b")Rq\x00}K\x01h\x00sb.")

    @pytest.mark.parametrize(
        "double", [b"]h\x00ah\x00aq\x00", b"}K\x01h\x00sK\x02h\x00sq\x00", b"h\x00h\x00\x86q\x00"]
    )
    def test_a_container_that_doubles(self, double):
        self.finish_soon(b"\x80\x02]q\x00" + double * 25 + b".")

    def test_shapes_that_double(self):
        nested = b"]q\x00" + b"h\x00h\x00\x86q\x00" * 60
        self.finish_soon(b"\x80\x02" + array_of(nested)[:-1] + b".")
        self.finish_soon(
            b"\x80\x02" + array_of(b"(" + (b"\x8a\xff" + b"\x7f" * 255) * 10_000 + b"t")[:-1] + b"."
        )

    def test_memory_that_is_named_often(self):
        """A text of 1 MB that becomes bytes, or an array, a hundred thousand times."""
        text = b"X" + struct.pack("<I", 2**20) + bytes(2**20) + b"q\x01"
        encode = b"c_codecs\nencode\nq\x00" + text + b"U\x06latin1\x86q\x02"
        self.finish_soon(b"\x80\x02" + encode + b"(" + b"h\x00h\x02R" * 100_000 + b"l.")
        array = EMPTY + b"q\x00(I1\n(I262144\nt" + F4 + b"I00\n" + text + b"tq\x02b"
        self.finish_soon(b"\x80\x02(" + array + b"h\x00" * 100_000 + b"l.")
        self.finish_soon(b"\x80\x02" + array + b"h\x02b" * 100_000 + b".")

    def test_memory_in_proportion_to_the_file(self):
        tracemalloc.start()
        try:
            for data in (
                b"\x80\x02]q\x00" + b"]h\x00ah\x00aq\x00" * 25 + b".",
                b"\x80\x04\x8e" + struct.pack("<Q", 2**33) + b"abc",
                array_of(b"(I999999999\nt"),
                b"\x80\x02}r" + struct.pack("<I", 2**30) + b".",
            ):
                with pytest.raises(InputError):
                    loaded(data)
            assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
        finally:
            tracemalloc.stop()

    def test_endless_opcodes(self, monkeypatch):
        monkeypatch.setattr("dysens._pickle.MAX_OPCODES", 1000)
        with pytest.raises(InputError, match="more than 1000 opcodes"):
            loaded(b"\x80\x02" + b"N" * 2000 + b".")


class TestFiles:
    def test_a_dictionary(self, tmp_path):
        (tmp_path / "file").write_bytes(pickle.dumps({"a": [1]}))
        assert read_plain(tmp_path / "file", "such files") == {"a": [1]}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (pickle.dumps([1]), "not a dictionary"),
            (b"", "cut short"),
            (pickle.dumps({"a": 1})[:-1], "cut short"),
        ],
    )
    def test_other_contents(self, tmp_path, content, message):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(InputError, match=rf'file" cannot be read: it .*{message}.*\.$'):
            read_plain(tmp_path / "file", "such files")

    def test_no_regular_file(self, tmp_path):
        for place in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(
                InputError, match=r"cannot be read: it (is not a regular file|does not exist)"
            ):
                read_plain(place, "such files")

    def test_a_huge_file(self, tmp_path):
        with (tmp_path / "file").open("wb") as handle:
            handle.truncate(2**40)
        with pytest.raises(InputError, match="larger than 1000 bytes"):
            read_plain(tmp_path / "file", "such files", limit=1000)
