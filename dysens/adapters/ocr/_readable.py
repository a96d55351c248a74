"""What PaddleOCR's datasets pass over in silence: an image that cannot be decoded, a label that cannot be encoded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dysens.adapters.ocr._config import section
from dysens.adapters.ocr._labels import image_path, label_files, read_lines
from dysens.errors import InputError

logger = logging.getLogger(__name__)

DECODER = "DecodeImage"
ENCODERS = "LabelEncode"  # how the names of such transforms end


class ReportedDecoder:
    """A dataset's own decoder that warns of every file which it cannot decode, once.

    Args:
        decoder: PaddleOCR's transform.
        config: To find the line of the label file.
        mode: Whose images these are, ``Train`` or ``Eval``.
    """

    def __init__(self, decoder: Any, config: Mapping[str, Any], mode: str) -> None:
        self.decoder = decoder
        self._dataset = section(config, f"{mode}.dataset")
        self._known: set[str] = set()

    def __call__(self, data: Any) -> Any:
        """The decoded sample; None where the file is no image, for which PaddleOCR takes another sample."""
        decoded = self.decoder(data)
        path = str(data.get("img_path", "")) if decoded is None else ""
        if path and path not in self._known:
            self._known.add(path)
            logger.warning(
                '"%s", %s, cannot be decoded as an image; PaddleOCR takes another image in its place.',
                path,
                self._place(Path(path)),
            )
        return decoded

    def _place(self, path: Path) -> str:
        for place, image, _ in _samples(self._dataset):
            if image == path:
                return f"the image in {place}"
        return "an image of several in a line"


def report_decoding(dataset: Any, config: Mapping[str, Any], mode: str) -> None:
    """Have a dataset of PaddleOCR warn of the files that it cannot decode."""
    transforms = getattr(dataset, "ops", None)
    if isinstance(transforms, list):
        transforms[:] = [
            ReportedDecoder(each, config, mode) if type(each).__name__ == DECODER else each
            for each in transforms
        ]


def check_samples(dataset: Any, config: Mapping[str, Any], mode: str) -> None:
    """Decode every image and encode every label of a set that a network is to be scored on.

    PaddleOCR scores the next sample twice where one fails.

    Args:
        dataset: Of PaddleOCR, from its label files.
        config: That describes it.
        mode: Its section.

    Raises:
        InputError: An image cannot be decoded.
    """
    transforms = getattr(dataset, "ops", None) or []
    decoder = next((each.decoder for each in transforms if isinstance(each, ReportedDecoder)), None)
    encoders = [each for each in transforms if type(each).__name__.endswith(ENCODERS)]
    count, passed_over = 0, []
    for place, image, label in _samples(section(config, f"{mode}.dataset")):
        count += 1
        sample = {"img_path": str(image), "label": label, "image": image.read_bytes()}
        if decoder is not None and decoder(dict(sample)) is None:
            raise InputError(
                f'"{image}", the image in {place}, cannot be decoded: it is damaged, or no image. PaddleOCR would score '
                "another one in its place."
            )
        if label.strip() and not all(_encodes(each, sample) for each in encoders):
            passed_over.append(place)
    if passed_over:
        logger.warning(
            "%d of %d labels of %s cannot be encoded (text too long for Global.max_text_length, without a character of the "
            "dictionary, or without a box); the first is %s. PaddleOCR scores other samples in their place.",
            len(passed_over),
            count,
            mode,
            passed_over[0],
        )


def _encodes(encoder: Any, sample: Mapping[str, Any]) -> bool:
    try:
        return encoder(dict(sample)) is not None
    except (
        Exception
    ) as error:  # whatever a label that is not as expected raises; PaddleOCR goes on to another
        logger.debug("A label cannot be encoded: %s: %s", type(error).__name__, error)
        return False


def _samples(dataset: Mapping[str, Any]) -> Iterator[tuple[str, Path, str]]:
    """Place, image and label of each line; lines that name several images, of which one is drawn, are left out."""
    delimiter = str(dataset.get("delimiter", "\t"))
    for file in label_files(dataset):
        for number, line in enumerate(read_lines(Path(file)), start=1):
            path = image_path(dataset, line, delimiter)
            if path is not None:
                yield f'line {number} of "{file}"', path, line.split(delimiter)[1]
