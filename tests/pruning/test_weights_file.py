"""`read_state`: what ``paddle.save`` writes comes back, and no file runs code, crashes or takes all memory."""

from __future__ import annotations

import os
import pickle
import random
import struct
import tracemalloc
from collections import OrderedDict
from pathlib import Path

import numpy as np
import paddle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import SHAPE, SmallNet, images, made, outputs, train_step

from dysens import DygraphSensitivity, load_pruned, save_pruned
from dysens.errors import DysensError, InputError, UnsafePickleError
from dysens.pruning import NAME_TABLE, load_checkpoint, read_state

LABELS = paddle.to_tensor([0, 1, 2, 3])
fuzz = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def same(found, expected) -> bool:
    """Equal in values, types and order."""
    if isinstance(expected, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and found.dtype == expected.dtype
            and np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f")
        )
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


def trained(optimizer_of):
    model = made(SmallNet)
    optimizer = optimizer_of(model.parameters())
    train_step(model, optimizer, images(4), LABELS)
    return model, optimizer


def warm_up():
    decay = paddle.optimizer.lr.MultiStepDecay(0.1, [2, 4])
    return paddle.optimizer.lr.LinearWarmup(decay, 3, 0.0, 0.1)


@pytest.fixture(scope="module")
def states():
    model, optimizer = trained(lambda p: paddle.optimizer.Adam(warm_up(), parameters=p))
    weights = model.state_dict()
    return {
        "weights": weights,
        "optimizer": optimizer.state_dict(),
        "optimizer with epoch": {**optimizer.state_dict(), "last_epoch": 3},
        "bfloat16": {name: tensor.astype("bfloat16") for name, tensor in weights.items()},
        "other types": {
            kind: paddle.ones([2, 3]).astype(kind)
            for kind in ("float16", "float64", "int64", "bool", "uint8")
        },
        "nested": {
            "model": OrderedDict(weights),
            "step": 7,
            "best": [0.5, None, ("a", 1)],
            "rate": np.float64(0.5),
        },
        "shared": {"a": [weights["stem.0.weight"]] * 2, "b": {}},
        "empty tensor": {"a": paddle.zeros([0, 3]), "b": paddle.to_tensor(2.5)},
        "arrays": {"a": np.arange(6).reshape(2, 3), "b": np.float32(0.5), "c": True},
    }


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize(
    "kind",
    [
        *("weights", "optimizer", "optimizer with epoch", "bfloat16", "other types"),
        *("nested", "shared", "empty tensor", "arrays"),
    ],
)
def test_what_paddle_saves_is_what_paddle_loads(states, kind, protocol, tmp_path):
    path = tmp_path / "file.pdparams"
    paddle.save(states[kind], str(path), protocol=protocol)
    assert same(read_state(path), paddle.load(str(path), return_numpy=True))
    assert same(read_state(path, trusted=True), paddle.load(str(path), return_numpy=True))


def test_python_2(tmp_path):
    """Paddle 1 under Python 2 wrote memory as strings; paddle.load takes them as Latin-1, and so must we."""
    path = tmp_path / "file.pdparams"
    path.write_bytes(
        b"\x80\x02}q\x01U\x01aq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01K\x02\x85cnumpy\ndtype\nq\x06U\x02f4K\x00K\x01\x87Rq\x07(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x08\x00\x00\x80\xbf\x00\x00\x20Atbs."
    )
    assert same(read_state(path), {"a": np.array([-1, 10], "f4")})
    assert same(read_state(path, trusted=True), {"a": np.array([-1, 10], "f4")})


def test_the_name_table(states, tmp_path):
    path = tmp_path / "file.pdparams"
    paddle.save(states["weights"], str(path))
    for trusted in (False, True):
        assert NAME_TABLE not in read_state(path, trusted)
        table = read_state(path, trusted, keep_name_table=True)[NAME_TABLE]
        assert table["stem.0.weight"] == states["weights"]["stem.0.weight"].name


class TestBigArrays:
    """Over 1 GiB an array is in slices; here small ones, in the same form."""

    def write(self, folder: Path, slices, shape, **parts):
        content = {"UnpackBigParamInfor@@": {"big": {"OriginShape": shape, "slices": slices}}, **parts}
        (folder / "file.pdparams").write_bytes(pickle.dumps(content, 2))
        return folder / "file.pdparams"

    def test_slices_are_put_together(self, tmp_path):
        parts = {"big@@.0": np.arange(4.0), "big@@.1": np.arange(4.0, 6.0), "small": np.ones(2)}
        path = self.write(tmp_path, ["big@@.0", "big@@.1"], (2, 3), **parts)
        expected = paddle.load(str(path), return_numpy=True)
        found = read_state(path)
        assert set(found) == {"big", "small"}
        assert np.array_equal(found["big"], np.arange(6.0).reshape(2, 3))
        assert np.array_equal(found["big"], expected["big"])

    @pytest.mark.parametrize(
        ("slices", "shape"),
        [
            (["a", "a"], (8,)),
            (["a", "c"], (8,)),
            (["a"], (5,)),
            (["a"], (-1,)),
            (["a"], (-4, -1)),
            (["a"], 4),
            (["text"], (4,)),
            (["a", "ints"], (6,)),
            ([], ()),
            (7, (4,)),
            ([["a"]], (4,)),
        ],
    )
    def test_tables_that_do_not_fit(self, tmp_path, slices, shape):
        path = self.write(tmp_path, slices, shape, a=np.ones(4), text="abcd", ints=np.ones(2, "i4"))
        with pytest.raises(InputError, match="table of large arrays does not fit"):
            read_state(path)

    def test_no_table(self, tmp_path):
        path = tmp_path / "file.pdparams"
        path.write_bytes(pickle.dumps({"UnpackBigParamInfor@@": [1]}))
        with pytest.raises(InputError, match="table of large arrays"):
            read_state(path)


class Spy:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


class TestCode:
    @pytest.mark.parametrize("protocol", range(6))
    def test_none_is_run(self, tmp_path, protocol):
        path, trap = tmp_path / "file.pdparams", tmp_path / "trap"
        path.write_bytes(pickle.dumps({"a": np.ones(2), "b": Spy(trap)}, min(protocol, 4)))
        with pytest.raises(
            UnsafePickleError, match=r"file\.pdparams.*asks for (posix|nt)\.mkdir.*trusted=True"
        ):
            read_state(path)
        assert not trap.exists()

    def test_trusted_files_may(self, tmp_path):
        path, trap = tmp_path / "file.pdparams", tmp_path / "trap"
        path.write_bytes(pickle.dumps({"a": np.ones(2), "b": Spy(trap)}, 4))
        assert read_state(path, trusted=True)["b"] is None
        assert trap.exists()

    def test_trusted_files_that_paddle_can_not_load(self, tmp_path):
        path = tmp_path / "file.pdparams"
        for content in (b"junk", b""):
            path.write_bytes(content)
            with pytest.raises(InputError, match="cannot be loaded by Paddle"):
                read_state(path, trusted=True)
        with pytest.raises(InputError, match="no file"):
            read_state(tmp_path / "nowhere", trusted=True)

    def test_load_pruned_and_load_checkpoint(self, tmp_path):
        model = pruned()
        save_pruned(model, tmp_path / "pruned")
        path, trap = tmp_path / "pruned.pdparams", tmp_path / "trap"
        path.write_bytes(pickle.dumps({**read_state(path), "evil": Spy(trap)}, 4))
        for load in (load_pruned, load_checkpoint):
            with pytest.raises(UnsafePickleError, match="mkdir"):
                load(made(SmallNet), tmp_path / "pruned")
        assert not trap.exists()
        with pytest.raises(InputError, match="'evil', which this network lacks"):
            load_pruned(made(SmallNet), tmp_path / "pruned", trusted=True)
        assert trap.exists()


def pruned() -> paddle.nn.Layer:
    model = made(SmallNet)
    ds = DygraphSensitivity(model, SHAPE, criterion="l1")
    ds.prune_vars({group.name: 0.5 for group in ds.groups})
    return model


def test_other_contents_are_refused_in_words(tmp_path):
    path = tmp_path / "file.pdparams"
    for content, message in (
        (b"", "cut short"),
        (pickle.dumps([1]), "not a dictionary"),
        (pickle.dumps({1: 2}), "not a name"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"file\.pdparams.*{message}.*\.$"):
            read_state(path)
    for place in (tmp_path, tmp_path / "nowhere.pdparams"):
        with pytest.raises(InputError, match="cannot be read"):
            read_state(place)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value.astype("float64"), "float64 in the file"),
        (lambda value: value.astype("complex64"), "complex64 in the file"),
        (lambda value: value.tolist(), "list in the file"),
        (lambda value: None, "NoneType in the file"),
        (lambda value: value[:-1], "has shape"),
    ],
)
def test_a_tensor_of_another_kind(tmp_path, change, message):
    model = made(SmallNet)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    state["stem.0.weight"] = change(state["stem.0.weight"])
    (tmp_path / "file.pdparams").write_bytes(pickle.dumps(state, 4))
    before = outputs(model)
    with pytest.raises(InputError, match=f"'stem.0.weight'.*{message}"):
        load_checkpoint(model, tmp_path / "file")
    assert np.array_equal(outputs(model), before)


@pytest.mark.parametrize(
    "odd", [{}, {"LR_Scheduler": 7}, {"master_weights": 7}, {"x": "text"}, {"x": np.ones(3)}]
)
def test_an_optimizer_state_that_does_not_fit(tmp_path, odd):
    model, optimizer = trained(lambda p: paddle.optimizer.Adam(warm_up(), parameters=p))
    save_pruned(model, tmp_path / "whole", optimizer)
    (tmp_path / "whole.pdopt").write_bytes(pickle.dumps(odd))
    fresh = made(SmallNet)
    used = paddle.optimizer.Adam(warm_up(), parameters=fresh.parameters())
    train_step(fresh, used, images(4), LABELS)
    with pytest.raises(InputError, match=r"whole\.pdopt\" does not fit this optimizer"):
        load_pruned(fresh, tmp_path / "whole", used)


class TestMemory:
    """A file of a few KB must not take more than a few MB."""

    def refused(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        tracemalloc.start()
        try:
            with pytest.raises(DysensError):
                read_state(path)
            assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
        finally:
            tracemalloc.stop()

    def test_slices_of_the_same_memory(self, tmp_path):
        array = np.ones(50_000)
        parts = {f"a@@.{index}": array for index in range(5_000)}
        table = {"a": {"OriginShape": (50_000 * 5_000,), "slices": list(parts)}}
        self.refused(tmp_path / "file.pdparams", pickle.dumps({**parts, "UnpackBigParamInfor@@": table}, 4))

    @pytest.mark.parametrize("length", [2**16, 2**31, 2**40, 2**63, 2**64 - 1])
    def test_bytes_that_are_not_there(self, tmp_path, length):
        for opcode in (b"\x8e", b"\x8d", b"\x96", b"\x95"):
            data = b"\x80\x05}\x8c\x01a" + opcode + struct.pack("<Q", length) + b"abcds."
            self.refused(tmp_path / "file.pdparams", data)

    def test_a_file_of_zeros(self, tmp_path):
        with (tmp_path / "file.pdparams").open("wb") as handle:
            handle.truncate(2**43)
        with pytest.raises(InputError, match="larger than"):
            read_state(tmp_path / "file.pdparams")


class TestDamage:
    """Real files, changed at random: a sentence, or a state that is one."""

    @pytest.fixture(scope="class")
    def files(self, states, tmp_path_factory):
        folder = tmp_path_factory.mktemp("files")
        for index, state in enumerate(states.values()):
            for protocol in (2, 4):
                paddle.save(state, str(folder / f"{index}-{protocol}.pdparams"), protocol=protocol)
        return [path.read_bytes() for path in sorted(folder.iterdir())]

    def check(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        try:
            state = read_state(path)
        except DysensError as error:
            words = str(error)
        else:
            words = "file.pdparams."
            assert all(isinstance(name, str) for name in state)
            for value in state.values():
                if isinstance(value, np.ndarray):
                    paddle.to_tensor(value)
        assert "file.pdparams" in words
        assert words.endswith(".")

    @fuzz
    @given(data=st.data())
    def test_truncated_anywhere(self, files, tmp_path, data):
        whole = data.draw(st.sampled_from(files))
        path = tmp_path / "file.pdparams"
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        with pytest.raises(InputError, match=r"file\.pdparams"):
            read_state(path)

    @fuzz
    @given(data=st.data())
    def test_changed_bytes(self, files, tmp_path, data):
        damaged = bytearray(data.draw(st.sampled_from(files)))
        # Most of a file is numbers; its opcodes and names are at its beginning and between small tensors.
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        self.check(tmp_path / "file.pdparams", bytes(damaged))

    @fuzz
    @given(data=st.data())
    def test_pieces_taken_out_doubled_and_mixed(self, files, tmp_path, data):
        whole = data.draw(st.sampled_from(files))
        start, end = sorted((data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))))
        other = data.draw(st.sampled_from(files))
        place = data.draw(st.integers(0, len(other)))
        for damaged in (
            whole[:start] + whole[end:],
            whole[:end] + whole[start:],
            other[:place] + whole[start:end] + other[place:],
        ):
            self.check(tmp_path / "file.pdparams", damaged)

    @fuzz
    @given(seed=st.integers(0, 2**32))
    def test_networks_and_optimizers(self, seed, saved, tmp_path):
        """Files that still can be read: loaded as they are, or refused, with the network left as it was."""
        chance = random.Random(seed)
        for ending in (".plan.json", ".pdparams", ".pdopt"):
            content = bytearray(saved[ending])
            if ending != ".plan.json":
                for _ in range(chance.randrange(3)):
                    content[chance.randrange(len(content))] = chance.randrange(256)
            (tmp_path / f"file{ending}").write_bytes(content)
        model = made(SmallNet, seed=1)
        optimizer = paddle.optimizer.Adam(warm_up(), parameters=model.parameters())
        before = outputs(model)
        try:
            load_pruned(model, tmp_path / "file", optimizer)
        except DysensError:
            assert np.array_equal(outputs(model), before)
        else:
            expected = read_state(tmp_path / "file.pdparams")
            assert same({name: tensor.numpy() for name, tensor in model.state_dict().items()}, expected)

    @pytest.fixture(scope="class")
    def saved(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("saved")
        model = pruned()
        optimizer = paddle.optimizer.Adam(warm_up(), parameters=model.parameters())
        train_step(model, optimizer, images(4), LABELS)
        save_pruned(model, folder / "file", optimizer)
        return {
            ending: (folder / f"file{ending}").read_bytes()
            for ending in (".plan.json", ".pdparams", ".pdopt")
        }
