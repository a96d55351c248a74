import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dysens.errors import InputError, JournalError
from dysens.results import Owner, Point
from dysens.results._records import Claim, Release, decode, encode

from .common import header, point

characters = st.characters(codec="utf-8", exclude_characters="\0")
texts = st.text(characters, max_size=20)
names = st.text(characters, min_size=1, max_size=20)
floats = st.floats(allow_nan=True, allow_infinity=True)
points = st.builds(
    Point,
    param=names,
    path=texts,
    ratio=st.floats(0, 0.99),
    metric=st.none() | floats,
    loss=floats,
    seconds=st.none() | st.floats(0, 1e9),
    share=st.floats(0.01, 1),
)


@given(points)
def test_a_point_survives_its_line(made):
    line = encode(made)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == made


@given(points)
def test_lines_are_strict_json(made):
    def refuse(token):
        raise AssertionError(token)

    assert json.loads(encode(made), parse_constant=refuse)["kind"] == "point"


def test_the_other_records_survive_too():
    owner = Owner("machine", 12, 3.5)
    for record in (header(), Claim("a", "b.weight", 0.3, owner, 1.0), Release(owner)):
        assert decode(encode(record)) == record


def test_no_score_is_null():
    fields = json.loads(encode(point(metric=math.nan)))
    assert fields["metric"] is None
    assert fields["loss"] is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[1]",
        b"{}",
        b'{"kind": 3}',
        b'{"kind": "poem"}',
        b'{"kind": "point"}',
        b'{"kind": "point", "param": 1, "path": "", "ratio": 0.1, "metric": 1, "loss": 1, "seconds": 1}',
        b'{"kind": "point", "param": "a", "path": "", "ratio": 0.1, "metric": NaN, "loss": 1, "seconds": 1}',
        b'{"kind": "header", "format": 0}',
        b'{"kind": "claim", "param": "a", "path": "", "ratio": 0.1, "time": 0, "host": "h", "pid": "x", "started": 0}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 5_000,
    ],
)
def test_other_lines_are_refused_in_words(line):
    with pytest.raises(InputError, match=r"\w"):
        decode(line)


def test_a_newer_format_is_not_guessed_at():
    with pytest.raises(JournalError, match="format 2"):
        decode(b'{"kind": "header", "format": 2, "what": "ever"}')
