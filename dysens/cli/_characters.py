"""``dysens characters``: a recogniser that reads only what an application needs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from dysens.cli._models import OCR, model_name, task_of
from dysens.cli._options import Command, add_json, add_model
from dysens.cli._terminal import CommandParser, Output
from dysens.errors import InputError

FOLDER = Path("characters")


def _add_characters(parser: CommandParser) -> None:
    add_model(parser, config="of a text recogniser of PaddleOCR")
    parser.option("keep", type=Path, metavar="FILE", help="dictionary, one character a line: keep these")
    parser.option("text", type=Path, metavar="FILE", help="text: keep every character in it")
    parser.option(
        "preset",
        metavar="NAME",
        help="keep these: digits, ascii, latin, greek, cyrillic, kana, chinese",
    )
    parser.option(
        "output", type=Path, default=FOLDER, metavar="DIR", help=f"folder for the result ({FOLDER})"
    )
    add_json(parser)


def _characters(options: Namespace, out: Output) -> None:
    name = model_name(options)
    if name.kind != OCR:
        raise InputError(f'"{name.text}" is not a PaddleOCR config, and only a recogniser has a dictionary.')

    from dysens.adapters.ocr import OcrTask, cut_characters, wanted_characters

    wanted = wanted_characters(options.keep, options.text, options.preset)
    task = task_of(name)
    assert isinstance(task, OcrTask)
    found = cut_characters(task, wanted, options.output)
    data: dict[str, Any] = {
        "characters_before": found.before,
        "characters_after": found.after,
        "unknown": list(found.unknown),
        "params_before": found.params_before,
        "params_after": found.params_after,
        "difference": found.difference,
        "lacking": dict(found.lacking),
        "lines": found.lines,
        "unreadable": found.unreadable,
        "config": str(found.config),
        "native": found.native,
    }
    out.result(str(found), data)


CHARACTERS = Command(
    name="characters",
    summary="cut a text recogniser's dictionary to the characters needed",
    arguments="CONFIG (--keep F | --text F | --preset NAME) [options]",
    example="dysens characters PP-OCRv5_mobile_rec.yml --preset ascii -o ascii\n"
    "dysens characters rec.yml --text corpus.txt -o mine",
    add_options=_add_characters,
    run=_characters,
)
