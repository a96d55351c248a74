"""PaddleOCR's label files, with the mistakes that it would pass over in silence caught first."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dysens.adapters.ocr._config import section
from dysens.errors import InputError
from dysens.flags import setting

logger = logging.getLogger(__name__)

# Kinds of networks whose labels are lists of boxes; others have the text of a line, a class, or files of another form.
LABELLED_BY_BOXES = ("det", "e2e", "kie")


def check_data(config: Mapping[str, Any], mode: str) -> None:
    """Looks through the label files, and for every image that they name.

    PaddleOCR takes another line, at random and for ever, where one cannot be read.

    Raises:
        InputError: Something is not there, or a line is cut short.
    """
    dataset = section(config, f"{mode}.dataset")
    delimiter = str(dataset.get("delimiter", "\t"))
    for file in label_files(dataset):
        path = Path(file)
        if not path.is_file():
            raise InputError(
                f'The label file "{file}" is not there (looked from "{Path.cwd()}"); set it with '
                f"{setting(f'{mode}.dataset.label_file_list=[...]')}, or draw a set with dysens.data.write_scenes."
            )
        lines = read_lines(path)
        _check_lines(file, lines, delimiter, (config.get("Architecture") or {}).get("model_type"))
        for number, line in enumerate(lines, start=1):
            image = image_path(dataset, line, delimiter)
            if image is not None:
                _check_image(image, f'line {number} of "{file}"', mode)


def _check_image(image: Path, place: str, mode: str) -> None:
    try:
        size = image.stat().st_size if image.is_file() else None
    except OSError as error:
        raise InputError(f'"{image}", the image in {place}, cannot be read: {error.strerror}.') from error
    if size is None:
        raise InputError(f'"{image}", the image in {place}, is not there: is {mode}.dataset.data_dir right?')
    if size == 0:
        raise InputError(f'"{image}", the image in {place}, is an empty file.')


def read_lines(path: Path) -> list[str]:
    """The lines of a label file. PaddleOCR splits at line feeds, and takes no byte-order mark off a name."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise InputError(
            f'Line {number} of the label file "{path}" is not UTF-8 text ({error.reason}): save the file as UTF-8.'
        ) from error
    except OSError as error:
        raise InputError(f'The label file "{path}" cannot be read: {error.strerror}.') from error
    if text.startswith("\ufeff"):
        raise InputError(
            f'Line 1 of the label file "{path}" begins with a byte-order mark, which PaddleOCR takes for a part of the first '
            "image's name: save the file as UTF-8 without it."
        )
    lines = text.split("\n")
    # Like PaddleOCR, which takes the carriage return of a Windows line end off as well.
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def _check_lines(file: str, lines: list[str], delimiter: str, kind: object) -> None:
    """Refuses a file in which a line is not an image, a tab and its label, or a label is cut short."""
    if not any(line.strip() for line in lines):
        raise InputError(f'The label file "{file}" is empty.')
    labels = []
    for number, line in enumerate(lines, start=1):
        image, tab, label = line.partition(delimiter)
        if not tab or not image.strip():
            spaced = delimiter == "\t" and len(line.split(None, 1)) == 2
            hint = " There are spaces where the tab should be." if spaced and not tab else ""
            where = "is empty" if not line.strip() else f'is not an image, a tab and its label: "{line[:80]}"'
            raise InputError(f'Line {number} of {len(lines)} of the label file "{file}" {where}.{hint}')
        labels.append(label.strip())
    if kind == "rec" and "" in labels:
        logger.warning(
            '%d of %d lines of "%s" have no text, the first is line %d; PaddleOCR takes other lines in their place.',
            labels.count(""),
            len(labels),
            file,
            labels.index("") + 1,
        )
    looks = _is_list(labels[0]) or labels[0].startswith("[{")  # all there is where no network is described
    if not (looks if kind is None else kind in LABELLED_BY_BOXES):
        return  # the text of a line may be anything
    for number, label in enumerate(labels, start=1):
        # Parsing every label of a large set would take minutes; what is cut short lacks its end.
        whole = label.startswith("[") and label.endswith("]") if 1 < number < len(labels) else _is_list(label)
        if not whole:
            raise InputError(
                f'The label in line {number} of {len(labels)} of "{file}" is cut short or garbled: "{label[-60:]}".'
            )


def _is_list(label: str) -> bool:
    try:
        return isinstance(json.loads(label), list)
    except ValueError:
        return False


def label_files(dataset: Mapping[str, Any]) -> list[str]:
    """The label files of a dataset section; PaddleOCR takes one as a plain string too."""
    files = dataset.get("label_file_list") or []
    return [files] if isinstance(files, str) else list(files)


def image_path(dataset: Mapping[str, Any], line: str, delimiter: str) -> Path | None:
    """The image that a line of a label file names; None where it names several, of which PaddleOCR draws one."""
    image = line.partition(delimiter)[0]
    return None if image.startswith("[") else Path(str(dataset.get("data_dir", "."))) / image


def label_texts(files: Iterable[Path], delimiter: str) -> Iterator[str]:
    """The text of each line of a recogniser's label files."""
    for file in files:
        for line in read_lines(file):
            yield line.partition(delimiter)[2]
