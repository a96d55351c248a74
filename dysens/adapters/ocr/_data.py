"""PaddleOCR's data loaders, with the mistakes that it would pass over in silence caught first."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from PIL import Image

from dysens.adapters._shared import seeded
from dysens.adapters.ocr._config import section, transforms
from dysens.adapters.ocr._ppocr import load_ppocr
from dysens.errors import InputError
from dysens.flags import setting

logger = logging.getLogger(__name__)

# Datasets of PaddleOCR that read images named in label files; others keep the same samples elsewhere.
FROM_FILES = ("SimpleDataSet", "MultiScaleDataSet", "TextDetDataset", "TextRecDataset", "MSTextRecDataset")
# Kinds of networks whose labels are lists of boxes; others have the text of a line, a class, or files of another form.
LABELLED_BY_BOXES = ("det", "e2e", "kie")
DRAWN_SIDE = (
    256  # of a detector's training image: large enough for every network, small enough to look at it often
)

SEED = 1024  # the one that PaddleOCR's train.py falls back to


def build_loader(config: Mapping[str, Any], mode: str, place: Any) -> Any:
    """PaddleOCR's loader of ``Train`` or ``Eval``.

    Raises:
        InputError: A label file or the first image that it names is missing, or there is no data for a
            single batch.
    """
    check_data(config, mode)
    seed = config["Global"].get("seed", SEED)
    loader = load_ppocr().build_dataloader(deepcopy(dict(config)), mode, place, logger, seed)
    if len(loader) == 0:
        size = section(config, f"{mode}.loader").get("batch_size_per_card")
        raise InputError(
            f"{mode} has {len(loader.dataset)} images, too few for one batch of {size} "
            f"({mode}.loader.batch_size_per_card) with drop_last."
        )
    return loader


def check_data(config: Mapping[str, Any], mode: str) -> None:
    """Looks through the label files, and for every image that they name.

    PaddleOCR takes another line, at random and for ever, where one cannot be read.

    Raises:
        InputError: Something is not there, or a line is cut short.
    """
    dataset = section(config, f"{mode}.dataset")
    delimiter = str(dataset.get("delimiter", "\t"))
    folder = Path(str(dataset.get("data_dir", ".")))
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
            image = line.partition(delimiter)[0]
            if not image.startswith("["):
                _check_image(folder / image, f'line {number} of "{file}"', mode)


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


def drawn_samples(config: Mapping[str, Any], folder: Path, place: Any, count: int) -> list[Any]:
    """Some training samples, made of drawn images by the config's own transforms: enough to see what a forward takes.

    Args:
        config: As completed by the task.
        folder: Gets the images and their label file.
        place: Where tensors shall be.
        count: How many samples.

    Raises:
        InputError: It is not known what images and labels of this kind of network look like.
    """
    drawn = deepcopy(dict(config))
    dataset = section(drawn, "Train.dataset")
    kind = str(section(drawn, "Architecture").get("model_type"))
    random = np.random.RandomState(0)
    lines = []
    for number in range(2 * count):
        image = random.randint(0, 255, (48, 320, 3) if kind != "det" else (320, 320, 3), dtype=np.uint8)
        name = f"{number}.png"
        Image.fromarray(image).save(folder / name)
        sides = ["320", "48"] if dataset.get("ds_width") else []
        lines.append("\t".join([name, _drawn_label(config, kind, number), *sides]))
    labels = folder / "label.txt"
    labels.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if dataset.get("name") not in FROM_FILES:
        dataset["name"] = FROM_FILES[0]
    dataset.update(data_dir=str(folder), label_file_list=[str(labels)], ratio_list=[1.0], delimiter="\t")
    for name, arguments in transforms(drawn, "Train"):
        if name == "EastRandomCropData":
            arguments["size"] = [min(side, DRAWN_SIDE) for side in arguments["size"]]
    section(drawn, "Train.loader").update(batch_size_per_card=count, num_workers=0)
    if "sampler" in drawn["Train"]:
        drawn["Train"]["sampler"].update(first_bs=count, fix_bs=True)
    with seeded(SEED):
        loader = load_ppocr().build_dataloader(drawn, "Train", place, logger, SEED)
        return first_samples(loader, count)


def _drawn_label(config: Mapping[str, Any], kind: str, number: int) -> str:
    if kind == "det":
        tops = (40 + 5 * number, 180)
        points = [[[30, top], [280, top], [280, top + 60], [30, top + 60]] for top in tops]
        return json.dumps([{"transcription": "drawn", "points": each} for each in points])
    if kind == "cls":
        return str(section(config, "PostProcess").get("label_list", ["0"])[0])
    dictionary = config["Global"].get("character_dict_path")
    if kind != "rec":
        raise InputError(f'It is not known what training data of the model type "{kind}" look like.')
    known = read_dictionary(Path(dictionary)) if dictionary else list("0123456789abcdefghijklmnopqrstuvwxyz")
    return "".join(each for each in known[10:14] if len(each) == 1 and not each.isspace()) or known[0]


def read_dictionary(path: Path) -> list[str]:
    """The characters of a dictionary, one a line, as PaddleOCR reads them: what looks like a space may be one.

    Raises:
        InputError: It cannot be read.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f'The dictionary "{path}" cannot be read as UTF-8 text: {error}.') from error
    # The line after the last line break is no line.
    return [line.strip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def label_texts(files: Iterable[Path], delimiter: str) -> Iterator[str]:
    """The text of each line of a recogniser's label files."""
    for file in files:
        for line in read_lines(file):
            yield line.partition(delimiter)[2]


def first_samples(loader: Any, count: int) -> list[Any]:
    """The beginning of a loader's first batch, the same at every call: augmentation draws from a fixed seed.

    The dataset is asked directly: the loader's own thread reads ahead, and would draw along with others.
    """
    indices = next(iter(loader.batch_sampler))[:count]
    with seeded(SEED):
        samples = [loader.dataset[index] for index in indices]
    if loader.collate_fn is not None:
        return list(loader.collate_fn(samples))
    return [paddle.to_tensor(np.stack(column)) for column in zip(*samples)]
