"""How a model and its evaluator are named on the command line. Plain text, so that it can be handed to another process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from dysens.errors import InputError

CONFIG_ENDINGS = (".yml", ".yaml")


@dataclass(frozen=True)
class ModelName:
    """What a user typed.

    Attributes:
        text: ``package.module:function``, a config file, or the name of a network in paddle.vision.
        weights: A file to load into the model.
        settings: ``key=value``: arguments of the function, or overrides of the config.
        shapes: Shapes of the inputs; none for a config, which knows them.
        evaluator: ``package.module:function``; None for what the config or the function brings.
        submodel: Which network of an OCR distillation config.
        with_training: Whether a config's training forward has to survive a cut too.
    """

    text: str
    weights: str | None = None
    settings: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    evaluator: str | None = None
    submodel: str | None = None
    with_training: bool = True

    @property
    def kind(self) -> str:
        """ "ocr" or "det" for a config, "function", or "vision"."""
        if self.text.endswith(CONFIG_ENDINGS):
            return config_kind(Path(self.text))
        return "function" if ":" in self.text else "vision"


def config_kind(path: Path) -> str:
    """Whether a YAML file is a config of PaddleOCR ("ocr") or of PaddleDetection ("det").

    Only the top-level keys are looked at. Nothing is built: PaddleDetection's configs have tags that stand for its classes.

    Raises:
        InputError: The file is not there, no YAML, or neither of the two.
    """
    keys = _top_keys(path)
    if {"Global", "Architecture"} & keys:
        return "ocr"
    if {"architecture", "_BASE_"} & keys:
        return "det"
    raise InputError(
        f'"{path}" is no config that dysens knows: PaddleOCR\'s have the sections Global and Architecture, '
        "PaddleDetection's a line such as `architecture: YOLOv3`, or _BASE_."
    )


def _top_keys(path: Path) -> set[str]:
    try:
        tree = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise InputError(f'the config "{path}" cannot be read: {error.strerror}.') from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f'the config "{path}" is not valid YAML: {error}') from error
    if not isinstance(tree, yaml.MappingNode):
        return set()
    return {str(key.value) for key, _ in tree.value}
