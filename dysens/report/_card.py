"""The model card: what was lost and what was won, as one HTML file to show around, and the same as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from html import escape
from itertools import groupby
from pathlib import Path

from dysens.atomic import write_file
from dysens.report._card_data import CARD_HTML, CARD_JSON, Card, CardSample, CardState
from dysens.report._card_words import WORDS, fact_in_both, known_word, word
from dysens.report._page import filled, moment_text, template


def write_card(folder: str | Path, card: Card) -> Path:
    """Write ``card.html`` and ``card.json`` into a folder.

    Args:
        folder: Is made if it is not there.
        card: The facts.

    Returns:
        The page.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name, text in ((CARD_JSON, card.to_json()), (CARD_HTML, card_page(card))):
        data = text.encode("utf-8", "replace")
        write_file(place / name, lambda path, data=data: path.write_bytes(data))  # type: ignore[misc]
    return place / CARD_HTML


def card_page(card: Card) -> str:
    """The page: self-contained, for light and dark, in English and Chinese."""
    parts = {
        "title": escape(f"{card.model} · dysens"),
        "style": template("report.css") + template("card.css"),
        "heading": _heading(card),
        "tiles": "".join(_tile(*each) for each in tiles(card)),
        "states": _states(card),
        "widths": _widths(card),
        "samples": _samples(card),
        "proof": _proof(card),
        "how": _how(card),
        "script": template("card.js"),
    }
    return filled("card.html", parts)


def amount(value: float | None, unit: str = "") -> str:
    """A number in four digits, with k, M, G or T.

    Example:
        >>> amount(1_234_567), amount(None), amount(12)
        ('1.235 M', '', '12')
    """
    if value is None:
        return ""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g} {letter}{unit}"
    return f"{value:.4g}{f' {unit}' if unit else ''}"


def score_text(score: float | None, spread: float | None) -> str:
    """A score with its spread."""
    if score is None:
        return ""
    return f"{score:.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def change(before: float | None, after: float | None) -> str:
    """By how much a cost fell or rose, in percent; nothing where it is not known."""
    if not before or after is None:
        return ""
    return f"{(after - before) / before:+.1%}".replace("-", "\N{MINUS SIGN}")


def _last(states: Sequence[CardState], name: str) -> float | None:
    """The latest that is known."""
    known = [getattr(state, name) for state in states[1:] if getattr(state, name) is not None]
    return known[-1] if known else None


def tiles(card: Card) -> list[tuple[str, str, str, str]]:
    """The large figures: heading (HTML), the original's, the result's, and the change, as text."""
    first, states = card.states[0], card.states
    score = _last(states, "score")
    spread = next((s.spread for s in reversed(states) if s.score is not None and s.spread is not None), None)
    points = (
        ""
        if first.score is None or score is None
        else f"{score - first.score:+.4f}".replace("-", "\N{MINUS SIGN}")
    )
    found = [
        (escape(card.metric or ""), score_text(first.score, first.spread), score_text(score, spread), points)
    ]
    for key, name, unit in (
        ("flops", "flops", ""),
        ("params", "params", ""),
        ("file", "bytes", "B"),
        ("ms", "milliseconds", ""),
    ):
        before, after = getattr(first, name), _last(states, name)
        found.append((word(key), amount(before, unit), amount(after, unit), change(before, after)))
    return [each for each in found if each[1] or each[2]]


def _tile(heading: str, before: str, after: str, changed: str) -> str:
    value, _, spread = after.partition(" ± ")
    notes = [f"± {escape(spread)}"] if spread else []
    notes += [f"{word('was')} {escape(before)}"] if before else []
    notes += [escape(changed)] if changed else []
    return (
        f"<div><dt>{heading}</dt><dd><b>{escape(value) or word('unknown')}</b>"
        f"<small>{'<br>'.join(notes)}</small></dd></div>"
    )


def _heading(card: Card) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    facts = [
        escape(card.framework),
        escape(card.metric or ""),
        escape(card.evaluated_on),
        fact_in_both(card.criterion),
        escape(_date_of(card)),
        escape(versions),
    ]
    shown = " · ".join(
        dict.fromkeys(fact for fact in facts if fact)
    )  # a function's score is of nothing with another name
    running = f'<p class="running" role="status">{word("running")}</p>' if card.running else ""
    return f'<h1>{escape(card.model)}</h1><p class="muted">{shown}</p>{running}'


def _states(card: Card) -> str:
    columns = [
        (
            escape(card.metric) if card.metric else word("score"),
            [score_text(s.score, s.spread) for s in card.states],
        ),
        (word("flops"), [amount(s.flops) for s in card.states]),
        (word("params"), [amount(s.params) for s in card.states]),
        (word("file"), [amount(s.bytes, "B") for s in card.states]),
        (word("ms"), ["" if s.milliseconds is None else f"{s.milliseconds:.2f}" for s in card.states]),
    ]
    known = [column for column in columns if any(column[1])]  # what was never measured needs no column
    heads = [word("state"), *(heading for heading, _ in known)]
    rows = []
    for place, state in enumerate(card.states):
        shown = "".join(
            f'<td class="number"><small class="head">{heading}</small>{escape(cells[place]) or "–"}</td>'
            for heading, cells in known
        )
        rows.append(f'<tr><th scope="row">{known_word(state.state)}</th>{shown}</tr>')
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    table = (
        f'<table class="states stacked"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )
    spread = any(state.spread is not None for state in card.states)
    note = f'<p class="muted">{word("spread_note")}</p>' if spread else ""
    return f'<div class="scroll">{table}</div>{note}'


_BAR, _GAP, _HEIGHT = 10, 4, 160
_MOST_PARTS = 8  # of a network, that names below its picture have room for


def bars(widths: Sequence[tuple[str, int, int]]) -> list[tuple[str, float, float, float]]:
    """What the picture of the widths shows: a title, where a bar stands, how high it was, and is."""
    most = max((before for _, before, _ in widths), default=1)
    scale = _HEIGHT / math.sqrt(most)  # areas of channels, so that narrow layers are seen beside wide ones
    return [
        (
            f"{path}: {before} → {after}",
            place * (_BAR + _GAP) + _GAP / 2,
            scale * math.sqrt(before),
            scale * math.sqrt(after),
        )
        for place, (path, before, after) in enumerate(widths)
    ]


def _widths(card: Card) -> str:
    if not card.widths:
        return ""
    drawn = bars(card.widths)
    rectangles = "".join(
        f'<g><title>{escape(title)}</title><rect class="was" x="{x}" y="{_HEIGHT - was:.1f}" width="{_BAR}" height="{was:.1f}"/>'
        f'<rect class="is" x="{x}" y="{_HEIGHT - now:.1f}" width="{_BAR}" height="{now:.1f}"/></g>'
        for title, x, was, now in drawn
    )
    picture = (
        f'<svg class="widths" preserveAspectRatio="none" role="img" aria-label="{escape(WORDS["widths"][0])}" '
        f'viewBox="0 0 {len(drawn) * (_BAR + _GAP)} {_HEIGHT}">{rectangles}</svg>'
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(path)}</th><td class="number">{before}</td><td class="number">{after}</td></tr>'
        for path, before, after in card.widths
    )
    head = "".join(f'<th scope="col">{word(key)}</th>' for key in ("layer", "before", "after"))
    return _section(
        "widths",
        f'<p class="muted">{word("widths_note")}</p>{picture}{_parts(card.widths)}'
        f"<details><summary>{word('all_widths')}</summary>"
        f'<div class="scroll"><table class="states"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>',
    )


def _parts(widths: Sequence[tuple[str, int, int]]) -> str:
    """Below the picture, the parts of the network that its bars belong to, each as wide as its bars."""
    parts = [(name, len(list(group))) for name, group in groupby(path.split(".")[0] for path, _, _ in widths)]
    if not 1 < len(parts) <= _MOST_PARTS:
        return ""
    shown = "".join(f"<span>{escape(name)}</span>" for name, _ in parts)
    columns = " ".join(f"minmax(0, {count}fr)" for _, count in parts)
    return (
        f'<div class="parts muted" style="grid-template-columns: {columns}" aria-hidden="true">{shown}</div>'
    )


def _samples(card: Card) -> str:
    if not card.samples:
        return ""
    shown = "".join(_sample(each, place) for place, each in enumerate(card.samples))
    has_text = [each.text_before is not None or each.text_after is not None for each in card.samples]
    keys = [
        key for key, there in (("samples_note", not all(has_text)), ("texts_note", any(has_text))) if there
    ]
    notes = "".join(f'<p class="muted">{word(key)}</p>' for key in keys)
    return _section("samples", f'{notes}<div class="samples">{shown}</div>')


def _sample(each: CardSample, place: int) -> str:
    if each.text_before is not None or each.text_after is not None:
        same = each.text_before == each.text_after
        lines = (
            (("same_text", each.text_before),)
            if same
            else (("original", each.text_before), ("result", each.text_after))
        )
        read = "".join(
            f"<p><small>{word(key)}</small> <q>{escape(text or '')}</q></p>" for key, text in lines
        )
        picture = _drawn(
            f'<image href="{escape(each.image)}" width="{each.width}" height="{each.height}"/>', each, (), ""
        )
        return f'<figure class="read{"" if same else " differs"}">{picture}{read}</figure>'
    image = (
        f'<image id="image-{place}" href="{escape(each.image)}" width="{each.width}" height="{each.height}"/>'
    )
    left = _drawn(image, each, each.before, "was")
    right = _drawn(f'<use href="#image-{place}"/>', each, each.after, "is")
    counts = f"{len(each.before)} → {len(each.after)}"
    return f'<figure class="pair">{left}{right}<figcaption class="muted">{counts} {word("found")}</figcaption></figure>'


def _drawn(
    image: str, each: CardSample, regions: Sequence[tuple[tuple[tuple[float, float], ...], str]], kind: str
) -> str:
    shapes = "".join(
        f'<polygon points="{" ".join(f"{x},{y}" for x, y in points)}"><title>{escape(name)}</title></polygon>'
        for points, name in regions
    )
    return f'<svg viewBox="0 0 {each.width} {each.height}" class="{kind}">{image}{shapes}</svg>'


def _proof(card: Card) -> str:
    lines = [f"<li>{known_word(what)}: <b>{value:.1e}</b></li>" for what, value in card.proofs.items()]
    if card.output_error is not None:
        lines.append(f"<li>{word('output_error')}: <b>{card.output_error:.3g}</b></li>")
    return _section("proof", f"<ul>{''.join(lines)}</ul>") if lines else ""


def _how(card: Card) -> str:
    facts = {
        "framework": card.framework,
        "evaluated_on": card.evaluated_on,
        "calibrated_on": card.calibrated_on,
        "criterion": card.criterion,
        "timed_on": card.timed_on,
        "seed": "" if card.seed is None else str(card.seed),
        "date": _date_of(card),
        "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
    }
    rows = "".join(
        f"<dt>{word(key)}</dt><dd>{fact_in_both(fact)}</dd>" for key, fact in facts.items() if fact
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in card.notes)
    commands = escape("\n".join(card.commands))
    return _section(
        "how",
        f'<dl class="facts">{rows}</dl>'
        + (f"<h3>{word('notes')}</h3><ul>{notes}</ul>" if notes else "")
        + (f"<h3>{word('commands')}</h3><pre>{commands}</pre>" if commands else ""),
    )


def _date_of(card: Card) -> str:
    """Day and minute, and where; a date that somebody wrote by hand as it is."""
    try:
        return moment_text(datetime.fromisoformat(card.date))
    except ValueError:
        return card.date


def _section(key: str, content: str) -> str:
    return f'<section class="card" id="{key}"><h2>{word(key)}</h2>{content}</section>'
