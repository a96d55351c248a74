"""The facts of a model card as plain data, and their JSON file."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from io import BytesIO
from pathlib import Path
from typing import Any

from dysens.errors import InputError

FORMAT = 1
CARD_JSON, CARD_HTML = "card.json", "card.html"
WIDEST = 480  # pixels of a thumbnail
_IMAGE = re.compile(r"data:image/(jpeg|png);base64,[A-Za-z0-9+/=]*\Z")


@dataclass(frozen=True)
class CardState:
    """One state of the network; None for what is not known.

    Attributes:
        state: What was done to it: original, pruned, trained, exported, or any other word.
        score: What it is worth.
        spread: The standard error of the score over the data.
        flops: Of one forward.
        params: How many parameters it has.
        bytes: Of the exported model.
        milliseconds: Of one call of the exported model.
    """

    state: str
    score: float | None = None
    spread: float | None = None
    flops: int | None = None
    params: int | None = None
    bytes: int | None = None
    milliseconds: float | None = None


Region = tuple[tuple[tuple[float, float], ...], str]
"""Corners in the image, and a name."""


@dataclass(frozen=True)
class CardSample:
    """One image, and what the original and the small network made of it.

    Attributes:
        image: A ``data:`` address, see `thumbnail`.
        width: Of the image.
        height: Of the image.
        before: Regions that the original found, in pixels of this image.
        after: Regions that the small network found.
        text_before: What the original read; None for networks that find regions.
        text_after: What the small network read.
    """

    image: str
    width: float
    height: float
    before: tuple[Region, ...] = ()
    after: tuple[Region, ...] = ()
    text_before: str | None = None
    text_after: str | None = None


@dataclass(frozen=True)
class Card:
    """What was lost and what was won, and how it came about.

    Attributes:
        model: The network's name.
        states: The original first, the result last.
        metric: What the score is called; None without one.
        higher_is_better: Whether that holds for the score.
        framework: Whose network it is.
        evaluated_on: What the score is of.
        calibrated_on: What was calibrated on.
        criterion: How units were chosen.
        timed_on: What took the times.
        output_error: Squared difference of the outputs to the original's, relative to their variance; None if not measured.
        proofs: In words, what was compared, and the largest difference.
        widths: Layer path, channels before and after.
        samples: Images to compare by eye.
        notes: What the user should know, in sentences.
        versions: Of Python, Paddle and the like.
        seed: Of whatever was drawn; None if nothing was.
        date: When the card was written, as ISO 8601.
        commands: What was typed, in its order.
        running: Whether more is to come.
    """

    model: str
    states: tuple[CardState, ...]
    metric: str | None = None
    higher_is_better: bool = True
    framework: str = "Paddle"
    evaluated_on: str = ""
    calibrated_on: str = ""
    criterion: str = ""
    timed_on: str = ""
    output_error: float | None = None
    proofs: Mapping[str, float] = field(default_factory=dict)
    widths: tuple[tuple[str, int, int], ...] = ()
    samples: tuple[CardSample, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    date: str = ""
    commands: tuple[str, ...] = ()
    running: bool = False

    def to_json(self) -> str:
        """Strict JSON; what is no finite number is null."""
        return json.dumps(
            {"format": FORMAT, **_strict(asdict(self))}, allow_nan=False, ensure_ascii=False, indent=1
        )


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_LARGEST = 2**26  # bytes of a card, pictures included


def read_card(path: str | Path) -> Card:
    """Read a ``card.json``.

    Raises:
        InputError: It is not there, or is not a card.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST >> 20} MiB")
        return _card(json.loads(content))
    except OSError as error:
        raise InputError(f'The card "{path}" cannot be read: {error.strerror}.') from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise InputError(f'"{path}" is not a card that dysens wrote: {error}') from error


def _card(found: Any) -> Card:
    if found["format"] != FORMAT:
        raise ValueError(f"its format is {found['format']!r:.40}, and this dysens reads {FORMAT}")
    known = {each.name for each in fields(Card)}
    values = {name: value for name, value in found.items() if name in known}
    values["states"] = tuple(_state(each) for each in values["states"])
    values["samples"] = tuple(_sample(each) for each in values.get("samples", ()))
    values["widths"] = tuple(
        (_text(path), int(before), int(after)) for path, before, after in values.get("widths", ())
    )
    for name in ("notes", "commands"):
        values[name] = tuple(map(_text, values.get(name, ())))
    values["proofs"] = {_text(what): _number(amount) for what, amount in values.get("proofs", {}).items()}
    values["versions"] = {_text(name): _text(version) for name, version in values.get("versions", {}).items()}
    for name in ("model", "framework", "evaluated_on", "calibrated_on", "criterion", "timed_on", "date"):
        _text(values.get(name, ""))
    for name in ("output_error", "seed"):
        _number_or_none(values.get(name))
    if values.get("metric") is not None:
        _text(values["metric"])
    if not values["states"]:
        raise ValueError("it has no states")
    return Card(**values)


def _state(found: Mapping[str, Any]) -> CardState:
    numbers = {
        each.name: _number_or_none(found.get(each.name)) for each in fields(CardState) if each.name != "state"
    }
    return CardState(_text(found["state"]), **numbers)


def _sample(found: Mapping[str, Any]) -> CardSample:
    if not _IMAGE.match(_text(found["image"])):
        raise ValueError("one of its images is not an image")
    text_before, text_after = (
        None if found[key] is None else _text(found[key]) for key in ("text_before", "text_after")
    )
    return CardSample(
        found["image"],
        _number(found["width"]),
        _number(found["height"]),
        tuple(map(_region, found["before"])),
        tuple(map(_region, found["after"])),
        text_before,
        text_after,
    )


def _region(found: Sequence[Any]) -> Region:
    points, name = found
    return tuple((_number(x), _number(y)) for x, y in points), _text(name)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.40} is no number")
    return value


def _number_or_none(value: Any) -> Any:
    return None if value is None else _number(value)


def thumbnail(image: Any) -> tuple[str, float, float, float]:
    """An image as a ``data:`` address, with its width and height, and by how much it was made smaller.

    Args:
        image: Bytes, height by width by 3.
    """
    from PIL import Image

    picture = Image.fromarray(image)
    scale = min(1.0, WIDEST / max(picture.size))
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    kept = BytesIO()
    picture.resize(size).save(kept, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(kept.getvalue()).decode()}", size[0], size[1], scale


def sample(image: Any, before: Any, after: Any) -> CardSample:
    """What two networks made of an image.

    Args:
        image: Bytes, height by width by 3.
        before: Has ``regions`` and ``text``: of the original.
        after: The same of the small network.
    """
    address, width, height, scale = thumbnail(image)

    def scaled(regions: Sequence[Region]) -> tuple[Region, ...]:
        return tuple(
            (tuple((round(x * scale, 1), round(y * scale, 1)) for x, y in points), name)
            for points, name in regions
        )

    return CardSample(
        address, width, height, scaled(before.regions), scaled(after.regions), before.text, after.text
    )
