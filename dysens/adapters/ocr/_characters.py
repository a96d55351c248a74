"""Cut a recogniser's dictionary: classes of the CTC head and of the branches that run in training only."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
import yaml
from paddle import nn

from dysens.adapters.ocr._config import network_sections, section
from dysens.adapters.ocr._data import read_dictionary, text_lines
from dysens.adapters.ocr._labels import label_files, label_texts
from dysens.adapters.ocr._unfuse import has_fused_branches, unfused_state
from dysens.atomic import write_file
from dysens.errors import InputError, ProofError, nearest
from dysens.flags import flag
from dysens.pruning import PrunePlan, TensorCut, cut, save_pruned, stages_of

if TYPE_CHECKING:
    from dysens.adapters.ocr._task import OcrTask

logger = logging.getLogger(__name__)

SAVE, DICTIONARY, CONFIG, NATIVE = "characters", "dictionary.txt", "config.yml", "pretrained.pdparams"
_ASCII = [(0x21, 0x7E)]
_CHINESE = [(0x3001, 0x3011), (0xFF01, 0xFF5E), (0x2014, 0x2026)]
# Ranges of code points by what people call them; what the model's dictionary lacks of them is no loss.
PRESETS: Mapping[str, Sequence[tuple[int, int]]] = {
    "digits": [(0x30, 0x39)],
    "ascii": _ASCII,
    "latin": [*_ASCII, (0xA1, 0x17F), (0x2010, 0x2026), (0x20AC, 0x20AC)],
    "greek": [*_ASCII, (0x370, 0x3FF)],
    "cyrillic": [*_ASCII, (0x400, 0x4FF)],
    "kana": [*_ASCII, (0x3001, 0x30FF)],
    "chinese": [*_ASCII, *_CHINESE],
}


def preset_characters(name: str) -> set[str]:
    """The characters of a preset.

    Args:
        name: One of digits, ascii, latin, greek, cyrillic, kana, chinese (ASCII, punctuation and the 3,755 characters of the
            first level of GB 2312).

    Raises:
        InputError: There is no such preset.

    Example:
        >>> "".join(sorted(preset_characters("digits")))
        '0123456789'
    """
    if name not in PRESETS:
        raise InputError(
            f'There is no preset "{name}"{nearest(name, PRESETS) or "; there are: " + ", ".join(PRESETS) + "."}'
        )
    found = {chr(code) for first, last in PRESETS[name] for code in range(first, last + 1)}
    if name == "chinese":
        rows = ((0xA0 + row, 0xA0 + cell) for row in range(16, 56) for cell in range(1, 95))
        found |= {text for pair in rows if (text := bytes(pair).decode("gb2312", "ignore"))}
    return found


def wanted_characters(
    keep: Path | None = None, text: Path | None = None, preset: str | None = None
) -> set[str]:
    """Everything that was asked for: a dictionary's characters, those of a text, those of a preset.

    Raises:
        InputError: Nothing was asked for, or a file cannot be read.
    """
    if keep is None and text is None and preset is None:
        raise InputError(
            f"Nothing says which characters to keep: give {flag('keep')} with a dictionary, {flag('text')} with a text that has "
            f"them all, or {flag('preset')} with one of {', '.join(PRESETS)}."
        )
    found = set(preset_characters(preset)) if preset is not None else set()
    for path in (keep, text):
        if path is None:
            continue
        lines = {line.removeprefix("\ufeff") for line in text_lines(path)}
        found |= {each for line in lines for each in line} | (lines if path == keep else set())
        if not found - {""}:
            raise InputError(f'"{path}" has no characters.')
    return found - {""}


@dataclass(frozen=True)
class CharactersCut:
    """What cutting a dictionary brought; prints as some lines.

    Attributes:
        before: Characters in the dictionary before.
        after: Characters in it now.
        unknown: Asked for, and not in the dictionary before: no cut can add them.
        params_before: Numbers in the weights before, without what runs in training only.
        params_after: The same now.
        difference: Between the logits of kept characters before and after, at most.
        lacking: Characters that the evaluation set needs and the new dictionary lacks, with their number of lines.
        lines: Lines of the evaluation set; None if its label files are not there.
        unreadable: How many of these have a character that the new dictionary lacks.
        config: The config that goes with the smaller network.
        native: Whether PaddleOCR itself can build that network from the config; not if channels were cut as well.
    """

    before: int
    after: int
    unknown: tuple[str, ...]
    params_before: int
    params_after: int
    difference: float
    lacking: Mapping[str, int]
    lines: int | None
    unreadable: int
    config: Path
    native: bool

    def __str__(self) -> str:
        lines = [
            f"{self.after:,} of {self.before:,} characters kept; {self.params_after:,} of {self.params_before:,} parameters",
            f"logits of kept characters differ by {self.difference:.1e} at most",
        ]
        if self.unknown:
            lines.append(
                f"{len(self.unknown)} were asked for that the model never knew: {' '.join(self.unknown[:20])}"
            )
        if self.lines is None:
            lines.append("the evaluation set was not looked at: its label files are not there")
        elif self.lacking:
            rare = sorted(self.lacking, key=lambda each: -self.lacking[each])
            lines.append(
                f"{self.unreadable} of {self.lines} lines of the evaluation set need {len(self.lacking)} characters that are not "
                f"kept: {' '.join(rare[:20])}"
            )
        else:
            lines.append(f"all {self.lines} lines of the evaluation set are written in the kept characters")
        lines.append(f"weights, plan and dictionary are beside {self.config}")
        if not self.native:
            lines.append("channels were cut before: train and export it with dysens, which reads the plan")
        return "\n".join(lines)


def cut_characters(task: OcrTask, wanted: set[str], folder: Path) -> CharactersCut:
    """Keep only the wanted characters of a recogniser, and write everything that goes with it.

    Blank, space and the special tokens of training branches stay. Writes ``characters.pdparams`` with ``characters.plan.json``
    (for `dysens.load_pruned`, and the config before the cut), ``dictionary.txt``, and ``config.yml``, which PaddleOCR trains,
    evaluates and exports as it is.

    Args:
        task: A recogniser with its weights; its network is cut in place, and its decoder follows.
        wanted: The characters to keep; see `wanted_characters`.
        folder: Is made if it is not there.

    Raises:
        InputError: The network is no recogniser with a CTC head, or knows none of these characters.
        ProofError: The kept characters do not get the logits that they had.
    """
    given = task.config["Global"].get("character_dict_path")
    if section(task.config, "Architecture").get("model_type") != "rec" or not given:
        raise InputError("Only the dictionary of a recogniser can be cut, and the config is not of one.")
    if not task.has_weights:
        logger.warning(
            "The network has random weights, so the result is only good for a trial: give %s.",
            flag("weights"),
        )
    known = read_dictionary(Path(given))
    kept = [index for index, character in enumerate(known) if character in wanted]
    if not kept:
        raise InputError(f'The dictionary "{given}" has none of the characters that were asked for.')
    spaces = bool(task.config["Global"].get("use_space_char"))
    plan = characters_plan(task.network, len(known), kept, spaces)
    before = _deployed_params(task)
    outer = bool(stages_of(task.network))
    expected = _ctc_logits(task)
    cut(task.network, plan)
    difference = _largest_change(expected, _ctc_logits(task), [0, *(1 + k for k in kept)])
    folder = folder.resolve()  # PaddleOCR's programs are run from its own folder
    folder.mkdir(parents=True, exist_ok=True)
    dictionary = "".join(f"{known[index]}\n" for index in kept).encode("utf-8")
    write_file(folder / DICTIONARY, lambda place: place.write_bytes(dictionary))
    save_pruned(task.network, folder / SAVE)
    lacking, lines, unreadable = _needs(task.config, {known[index] for index in kept})
    task.follow_dictionary(_write_config(task, folder, None if outer else _native_weights(task, folder)))
    return CharactersCut(
        before=len(known),
        after=len(kept),
        unknown=tuple(sorted(wanted - set(known) - {" "})),
        params_before=before,
        params_after=_deployed_params(task),
        difference=difference,
        lacking=lacking,
        lines=lines,
        unreadable=unreadable,
        config=folder / CONFIG,
        native=not outer,
    )


def characters_plan(network: nn.Layer, known: int, kept: Sequence[int], spaces: bool) -> PrunePlan:
    """The plan that leaves only some characters.

    Args:
        network: With its CTC head, and maybe branches that guide it in training.
        known: Characters in the dictionary.
        kept: Which of them stay, by their place in it.
        spaces: Whether the network has a class for the space, after them.

    Raises:
        InputError: A head has other classes than the dictionary and its special tokens.
    """
    removed = sorted(set(range(known)) - set(kept))
    classes = known + int(spaces)
    cuts: list[TensorCut] = []
    attributes: dict[str, dict[str, int]] = {}
    for path, tensor, axis, first, size in _class_axes(network, classes):
        gone = tuple(first + index for index in removed)
        cuts.append(TensorCut(f"{path}.{tensor}", axis, size, gone))
    for path, layer in network.named_sublayers():
        now = layer.__dict__.get("out_channels")
        sizes = {cut.size for cut in cuts if cut.tensor.startswith(f"{path}.")}
        if now in sizes and type(layer).__name__ in ("CTCHead", "Transformer"):
            attributes[path] = {"out_channels": now - len(removed)}
    return PrunePlan(tuple(cuts), attributes)


def _class_axes(network: nn.Layer, classes: int) -> Iterator[tuple[str, str, int, int, int]]:
    """Where classes are: layer path, tensor, axis, the place of the dictionary's first character, and how many there are."""
    found = False
    for path, layer in network.named_sublayers():
        kind = type(layer).__name__
        if kind == "CTCHead":
            found = True
            name = "fc" if hasattr(layer, "fc") else "fc2"
            yield from _of(layer, path, {f"{name}.weight": 1, f"{name}.bias": 0}, 1, classes + 1)
        elif kind == "Transformer" and hasattr(layer, "tgt_word_prj"):
            # Blank, unknown, start and end come first, and one class at the end is never used.
            names = {"embedding.embedding.weight": 0, "tgt_word_prj.weight": 1}
            yield from _of(layer, path, names, 4, classes + 5)
        elif kind == "ParallelSARDecoder":
            yield from _of(layer, path, {"embedding.weight": 0}, 0, classes + 3)
            yield from _of(layer, path, {"prediction.weight": 1, "prediction.bias": 0}, 0, classes + 2)
    if not found:
        raise InputError("The network has no CTC head, and only the classes of such a head can be cut.")


def _of(
    layer: nn.Layer, path: str, tensors: Mapping[str, int], first: int, size: int
) -> Iterator[tuple[str, str, int, int, int]]:
    state = layer.state_dict()
    for name, axis in tensors.items():
        if name not in state:
            continue
        if state[name].shape[axis] != size:
            raise InputError(
                f"Layer '{path}' has {state[name].shape[axis]} classes where the dictionary and its special tokens make {size}: "
                "do dictionary and weights belong together?"
            )
        yield path, name, axis, first, size


def _ctc_logits(task: OcrTask) -> np.ndarray:
    """What the CTC head of the network to deploy says before the softmax."""
    seen: list[np.ndarray] = []
    head = next(layer for layer in task.model.sublayers() if type(layer).__name__ == "CTCHead")
    linear = head.fc if hasattr(head, "fc") else head.fc2
    hook = linear.register_forward_post_hook(lambda _layer, _inputs, output: seen.append(output.numpy()))
    training = task.model.training
    try:
        task.model.eval()
        with paddle.no_grad():
            task.model(*task.example_inputs)
    finally:
        hook.remove()
        if training:
            task.model.train()
    return seen[-1]


def _largest_change(before: np.ndarray, after: np.ndarray, kept: Sequence[int]) -> float:
    change = float(np.abs(before[..., list(kept)] - after[..., : len(kept)]).max())
    # Weights are the same bit for bit; a library may add in another order where a matrix is narrower.
    if not change <= 1e-5 * float(np.abs(before).max()):
        raise ProofError(f"The logits of kept characters differ by {change:.2g} from those before the cut.")
    return change


def _deployed_params(task: OcrTask) -> int:
    """Numbers in the weights of the layers that run when the model is deployed."""
    ran: set[int] = set()
    hooks = [
        layer.register_forward_pre_hook(
            lambda layer, _inputs: ran.update(id(p) for p in layer._parameters.values())
        )
        for layer in task.model.sublayers()
    ]
    _ctc_logits(task)
    for hook in hooks:
        hook.remove()
    return sum(int(np.prod(p.shape)) for p in task.model.parameters() if id(p) in ran)


def _needs(config: Mapping[str, Any], kept: set[str]) -> tuple[dict[str, int], int | None, int]:
    """Characters that the evaluation set has and the dictionary lacks, by lines; all lines; the lines concerned."""
    files = (
        [Path(file) for file in label_files(section(config, "Eval.dataset"))] if config.get("Eval") else []
    )
    if not files or not all(file.is_file() for file in files):
        return {}, None, 0
    delimiter = str(section(config, "Eval.dataset").get("delimiter", "\t"))
    lacking: dict[str, int] = {}
    lines = unreadable = 0
    for text in label_texts(files, delimiter):
        lines += 1
        missing = set(text) - kept - {" "}
        unreadable += bool(missing)
        for character in missing:
            lacking[character] = lacking.get(character, 0) + 1
    return lacking, lines, unreadable


def _native_weights(task: OcrTask, folder: Path) -> Path | None:
    """Weights under the names that PaddleOCR's network has before its branches are fused; None if they have them already."""
    if not has_fused_branches(task.network):
        return None
    config = deepcopy(task.given)
    config["Global"].update(
        character_dict_path=str(folder / DICTIONARY), pretrained_model=None, checkpoints=None
    )
    fresh = type(task)(config, task.submodel).network
    state = unfused_state(task.network, fresh, _some_batches(task))
    write_file(folder / NATIVE, lambda place: paddle.save(state, str(place)))
    return folder / NATIVE


def _some_batches(task: OcrTask) -> Iterator[tuple[Any, ...]]:
    """Images of ``Eval``, as many as tell what values a network meets; noise, with a warning, where there are none."""
    images = task.images_to_compare()
    if images is None:
        yield task.example_inputs
        return
    yield (images,)


def _write_config(task: OcrTask, folder: Path, native: Path | None) -> dict[str, Any]:
    config = deepcopy(task.given)
    config["Global"]["character_dict_path"] = str(folder / DICTIONARY)
    config["Global"]["pretrained_model"] = str(native or folder / f"{SAVE}.pdparams")
    config["Global"]["checkpoints"] = None
    for network in network_sections(config):
        for entry in (network.get("Head") or {}, *(network.get("Head") or {}).get("head_list", [])):
            if isinstance(entry, dict):  # filled in anew from the dictionary
                entry.pop("out_channels", None)
                entry.pop("out_channels_list", None)
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    write_file(folder / CONFIG, lambda place: place.write_text(text, encoding="utf-8"))
    return config
