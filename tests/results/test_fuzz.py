"""Any bytes at all: an error in words or a correct result, never another exception, never a hang."""

import io
import json
import math
import pickle
import pickletools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dysens.errors import DysensError
from dysens.results import Journal, Sensitivities, is_slim_file, read_slim_file, write_status
from dysens.results._records import encode

from .common import header, point
from .test_records import names, points

fuzz = settings(deadline=None, max_examples=70, suppress_health_check=[HealthCheck.function_scoped_fixture])

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(
    [
        *(
            "kind",
            "format",
            "param",
            "path",
            "ratio",
            "metric",
            "loss",
            "seconds",
            "share",
            "points",
            "paths",
        ),
        *("host", "pid", "started", "time", "model", "weights", "criterion", "evaluator", "baseline"),
        "higher_is_better",
    ]
)
kinds = st.sampled_from(["header", "point", "claim", "release", "sensitivities", "poem"])
records = st.builds(
    lambda kind, rest: {**rest, "kind": kind}, kinds, st.dictionaries(fields, trees | st.just(1))
)
lines = (
    st.binary(max_size=40).map(lambda junk: junk + b"\n")
    | records.map(lambda record: json.dumps(record).encode() + b"\n")
    | points.map(encode)
    | st.just(encode(header()))
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "file"


def check_words(error):
    assert " " in str(error)


def try_to_read(file, data):
    """Every reader of this room on the same bytes."""
    file.write_bytes(data)
    found = None
    for read in (Sensitivities.load, read_slim_file, is_slim_file):
        try:
            result = read(file)
        except DysensError as error:
            check_words(error)
        else:
            found = result if isinstance(result, Sensitivities) else found
    if found is not None:
        assert all(0 <= each.ratio < 1 and not math.isnan(each.loss) for each in found.points)
        assert len(found.to_frame()) == len(found.points)
    return found


def try_to_continue(file, data):
    """Opening may refuse; if not, an appended point must be there afterwards, for the next reader too."""
    file.write_bytes(data)
    new = point("conv2d_0.w_0", 0.123, 0.25)
    try:
        journal = Journal.open(file, header())
    except DysensError as error:
        check_words(error)
        assert file.read_bytes() == data
        return
    journal.append(new)
    assert new in journal.points()
    assert new in Journal.open(file, header()).points()
    assert file.read_bytes().startswith(data)


@fuzz
@given(data=st.binary(max_size=200))
def test_random_bytes(file, data):
    try_to_read(file, data)
    try_to_continue(file, data)


@fuzz
@given(parts=st.lists(lines, max_size=6), cut=st.integers(0, 30))
def test_journals_of_odd_lines_cut_anywhere(file, parts, cut):
    data = b"".join(parts)
    data = data[: max(0, len(data) - cut)]
    try_to_read(file, data)
    try_to_continue(file, data)


@fuzz
@given(
    good=st.lists(points, min_size=1, max_size=5),
    junk=st.lists(st.binary(max_size=30), max_size=3),
    data=st.data(),
)
def test_good_lines_survive_any_junk_between_them(file, good, junk, data):
    written = [encode(header()), *map(encode, good)]
    for piece in junk:
        written.insert(data.draw(st.integers(1, len(written))), b"#" + piece.replace(b"\n", b"") + b"\n")
    file.write_bytes(b"".join(written))
    kept = {(p.path or header().paths.get(p.param) or p.param, p.ratio): p.loss for p in good if p.full}
    reader = Journal.open(file, header())._reader
    assert {key: p.loss for key, p in reader.points.items()} == kept


@fuzz
@given(document=trees | records)
def test_json_of_wrong_types(file, document):
    try_to_read(file, json.dumps(document).encode())
    if isinstance(document, dict):
        head = {"kind": "sensitivities", "format": 1, "baseline": 0.9, "higher_is_better": True}
        try_to_read(file, json.dumps({**head, **document}).encode())
        try_to_read(file, json.dumps({**head, "points": [document]}).encode())


@fuzz
@given(rows=st.lists(st.lists(st.text(max_size=6), max_size=8), max_size=4), junk=st.binary(max_size=20))
def test_csv_of_wrong_types(file, rows, junk):
    body = "\n".join(",".join(row) for row in rows).encode("utf-8", "replace")
    try_to_read(file, b"param,path,ratio,metric,loss,seconds\n" + body + junk)


class TestPickles:
    @fuzz
    @given(value=trees, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
    def test_wrong_types(self, file, value, protocol):
        try_to_read(file, pickle.dumps(value, protocol))
        try_to_read(file, pickle.dumps({"conv2d_0.w_0": value}, protocol))
        try_to_read(file, pickle.dumps({"conv2d_0.w_0": {0.1: value}}, protocol))

    @fuzz
    @given(
        curves=st.dictionaries(
            names,
            st.dictionaries(
                st.integers(0, 99).map(lambda n: n / 100), st.floats(allow_nan=False), max_size=4
            ),
            max_size=4,
        ),
        data=st.data(),
    )
    def test_whole_and_damaged_files(self, file, curves, data):
        protocol = data.draw(st.integers(0, pickle.HIGHEST_PROTOCOL))
        write_status(file, curves)
        for whole in (pickle.dumps(curves, protocol), file.read_bytes()):
            file.write_bytes(whole)
            assert read_slim_file(file) == curves
            try_to_read(file, whole[: data.draw(st.integers(0, len(whole)))])
            damaged = bytearray(whole)
            damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
            try_to_read(file, bytes(damaged))

    @fuzz
    @given(
        opcodes=st.lists(st.sampled_from([op.code for op in pickletools.opcodes]), max_size=30),
        arguments=st.binary(max_size=60),
        protocol=st.sampled_from([b"", b"\x80\x02", b"\x80\x04"]),
    )
    def test_random_opcodes(self, file, opcodes, arguments, protocol):
        stream, pieces = io.BytesIO(arguments), [protocol]
        for code in opcodes:
            pieces += [code.encode("latin-1"), stream.read(2)]
        try_to_read(file, b"".join(pieces) + b".")
