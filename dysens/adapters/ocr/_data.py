"""PaddleOCR's data loaders, and samples out of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from PIL import Image

from dysens.adapters._shared import seeded
from dysens.adapters.ocr._config import section, transforms
from dysens.adapters.ocr._labels import check_data
from dysens.adapters.ocr._ppocr import load_ppocr, remarks
from dysens.adapters.ocr._readable import check_samples, report_decoding
from dysens.errors import InputError

# Datasets of PaddleOCR that read images named in label files; others keep the same samples elsewhere.
FROM_FILES = ("SimpleDataSet", "MultiScaleDataSet", "TextDetDataset", "TextRecDataset", "MSTextRecDataset")
DRAWN_SIDE = (
    256  # of a detector's training image: large enough for every network, small enough to look at it often
)

SEED = 1024  # the one that PaddleOCR's train.py falls back to


def build_loader(config: Mapping[str, Any], mode: str, place: Any, scored: bool = False) -> Any:
    """PaddleOCR's loader of ``Train`` or ``Eval``.

    Args:
        config: As completed by the task.
        mode: ``Train`` or ``Eval``.
        place: Where tensors shall be.
        scored: Whether a network is scored on it: then every image is decoded first. Otherwise one that cannot be decoded is
            warned of when its turn comes.

    Raises:
        InputError: A label file or an image that it names is missing, or there is no data for a single batch, or a set that
            is scored on has an image that cannot be decoded.
    """
    check_data(config, mode)
    seed = config["Global"].get("seed", SEED)
    loader = load_ppocr().build_dataloader(deepcopy(dict(config)), mode, place, remarks, seed)
    if len(loader) == 0:
        size = section(config, f"{mode}.loader").get("batch_size_per_card")
        raise InputError(
            f"{mode} has {len(loader.dataset)} images, too few for one batch of {size} "
            f"({mode}.loader.batch_size_per_card) with drop_last."
        )
    report_decoding(loader.dataset, config, mode)
    if scored and section(config, f"{mode}.dataset").get("name") in FROM_FILES:
        check_samples(loader.dataset, config, mode)
    return loader


class Batches:
    """The batches of a loader; its workers end with the last batch that somebody takes.

    Paddle keeps a reference to an iterator that was left early, so that its processes would stay until the program ends.

    Args:
        loader: PaddleOCR's.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        try:
            yield from batches
        finally:
            batches._try_shutdown_all()


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
        loader = load_ppocr().build_dataloader(drawn, "Train", place, remarks, SEED)
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
    return text_lines(path, "dictionary")


def text_lines(path: Path, kind: str = "file") -> list[str]:
    """The lines of a text file, without the line breaks of any system.

    Raises:
        InputError: It cannot be read.
    """
    try:
        content = path.read_bytes()
        lines = content.decode("utf-8").split("\n")
    except OSError as error:
        raise InputError(
            f'The {kind} "{path}" cannot be read: {error.strerror} (looked from "{Path.cwd()}").'
        ) from error
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise InputError(
            f'Line {number} of the {kind} "{path}" is not UTF-8 text ({error.reason}): save the file as UTF-8.'
        ) from error
    # The line after the last line break is no line.
    return [line.strip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


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
