"""Writing a live network as an inference model that Paddle's predictor really runs."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

from dysens.atomic import folder_beside, probe, replace_folder
from dysens.compiled import SYMPTOM, interpolation_rewritten, quietly
from dysens.costs import Array, Inputs, Predictor, file_size, model_files
from dysens.errors import InputError, ProofError, in_a_sentence
from dysens.model import preserved
from dysens.programs._layer import ProgramLayer
from dysens.programs._load import TOLERANCE, in_dynamic_mode, outputs_apart, run_eagerly

logger = logging.getLogger(__name__)

NAME = "inference"
"""What the files of an inference model are called where only a folder is given."""


@dataclass(frozen=True)
class Exported:
    """An inference model on disk; prints as a sentence or two.

    Attributes:
        prefix: The files' common path without endings.
        difference: The largest difference between its outputs and the network's, on the data that they were compared on.
        bytes: All files together.
        compared_on: What these data are.
    """

    prefix: Path
    difference: float
    bytes: int
    compared_on: str = "noise"

    @property
    def comparison(self) -> str:
        """How it was compared with the live network, in a line."""
        return f"its outputs on {self.compared_on} differ from the network's by {self.difference:.1e} at most"

    def __str__(self) -> str:
        return f"exported to {self.prefix} ({self.bytes:,} bytes)\n{self.comparison}"


def save_inference(
    model: nn.Layer, path: str | os.PathLike[str], inputs: Sequence[Array] | None = None
) -> Exported:
    """Write an imported network, as it is now, as an inference model; what was written is run and compared first.

    Inputs, parameters and outputs have the names that they had in the program that was imported.

    Args:
        model: What `load_inference` gave, pruned or trained or not.
        path: The files' common path without endings, or a folder for ``inference.*``. What is there is replaced once the new
            files have been compared, and is as it was if they are refused.
        inputs: What to compare on, one array for each input; noise by default.

    Returns:
        Where it is, its size, and by how much its outputs differ, relative to the largest.

    Raises:
        InputError: The layer was not imported, the inputs do not fit, or nothing can be written there.
        ProofError: What was written does not give the layer's outputs.

    Example:
        >>> save_inference(model, "small/inference")  # doctest: +SKIP
    """
    if not isinstance(model, ProgramLayer):
        raise InputError(
            f"Only what load_inference gave can be written, not {type(model).__name__}; export that with paddle.jit.save."
        )
    prefix = _prefix(path)
    arrays = model.example_inputs() if inputs is None else list(inputs)
    if len(arrays) != len(model.feeds):
        names = ", ".join(feed.name for feed in model.feeds)
        raise InputError(f"The program takes {len(model.feeds)} inputs ({names}), not {len(arrays)}.")
    apart: list[float] = []

    def check(beside: Path, got: list[Array]) -> None:
        apart.append(_checked(prefix, beside, got, expected, arrays))

    with in_dynamic_mode(), preserved(model):
        model.eval()
        expected = run_eagerly(model, arrays)
        with quietly():
            saved_and_run(
                model,
                prefix,
                [model.input_spec],
                arrays,
                check,
                partial(_name_outputs, model.fetch_names),
                needs_onednn=False,
            )
    return Exported(prefix, apart[-1], file_size(prefix), "noise" if inputs is None else "the given inputs")


def _prefix(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    place = Path(path).expanduser()
    if place.is_dir() or text.endswith(("/", os.sep)):
        return place / NAME
    for ending in (".json", ".pdmodel", ".pdiparams"):
        if place.name.endswith(ending):
            return place.with_name(place.name.removesuffix(ending))
    return place


def _checked(
    prefix: Path, beside: Path, got: list[Array], expected: list[Array], arrays: Sequence[Array]
) -> float:
    apart = outputs_apart(got, expected)
    if not apart <= TOLERANCE:
        # Where boxes are picked by score, the rounding of oneDNN's kernels may pick another one; Paddle's own may not.
        plain = outputs_apart(Predictor(beside, onednn=False).answer(arrays), expected)
        if not plain <= TOLERANCE:
            raise ProofError(
                f'What would be saved as "{prefix}" does not give the network\'s outputs: they differ by '
                f"{min(apart, plain):.2g} of the largest. Nothing was written there."
            )
        logger.warning("With oneDNN the outputs of %s differ by %.1e, without by %.1e.", prefix, apart, plain)
        return plain
    return apart


Check = Callable[[Path, list[Array]], object]
"""Looks at an export beside its place and at what its predictor answered, and raises if it is not good enough."""


def saved_and_run(
    model: nn.Layer,
    prefix: Path,
    input_spec: Sequence[Any],
    inputs: Inputs,
    check: Check | None = None,
    change: Callable[[Path], object] | None = None,
    settings: Callable[[Path], object] | None = None,
    needs_onednn: bool = True,
) -> list[Array]:
    """Saves a network so that Paddle's default predictor runs it; the predictor's outputs for some inputs.

    Args:
        model: In eval mode.
        prefix: The files' common path without endings; what is there of an earlier export is replaced, all files as one step,
            once the new one is complete, has run and was checked.
        input_spec: As `paddle.jit.to_static` takes it.
        inputs: As `dysens.costs.Predictor` takes them.
        check: See there; by default whatever runs is taken.
        change: What is done to the files before they run.
        settings: Writes what else belongs to the export, beside a prefix that it is given.
        needs_onednn: Whether it has to run with oneDNN's kernels, as Paddle's predictor does by default.

    Raises:
        InputError: The disk is full, or nothing can be written there; what was there is as it was.
    """

    def attempt(surroundings: AbstractContextManager[None]) -> list[Array]:
        with folder_beside(prefix.parent) as folder:
            beside = folder / prefix.name
            with surroundings, preserved(model):  # to_static stays on a layer, with what it has traced
                paddle.jit.save(
                    paddle.jit.to_static(model, input_spec=list(input_spec), full_graph=True), str(beside)
                )
            probe(beside)  # Paddle writes without a word when the disk is full
            if change is not None:
                change(beside)
            outputs = _answered(beside, inputs, needs_onednn)
            if check is not None:
                check(beside, outputs)
            if settings is not None:
                settings(beside)
            # A program of another Paddle version would be loaded instead, so that goes too.
            stale = [file.name for file in model_files(prefix)]
            replace_folder(prefix.parent, folder, stale, last=model_files(beside)[0].name)
        return outputs

    try:
        return attempt(nullcontext())
    except OSError as error:
        raise InputError(
            f'"{prefix}" cannot be saved: {error.strerror or error}. What was saved there before is as it was. '
            "Make room, or name another place."
        ) from error
    except Exception as error:
        if SYMPTOM not in str(error):
            raise
        logger.debug("Upsampling is written in a way that oneDNN of this Paddle version can run.")
        return attempt(interpolation_rewritten())


def _answered(prefix: Path, inputs: Inputs, needs_onednn: bool) -> list[Array]:
    try:
        return Predictor(prefix).answer(inputs)
    except Exception as error:
        if needs_onednn or SYMPTOM in str(error):
            raise
        outputs = Predictor(prefix, onednn=False).answer(inputs)
        logger.warning(
            "It runs without oneDNN only, as networks with channels last do: %s", in_a_sentence(error)
        )
        return outputs


def _name_outputs(names: Sequence[str], prefix: Path) -> None:
    """Give the outputs of an exported program the names that they had."""
    program = model_files(prefix)[0]
    if program.suffix == ".json":
        content = json.loads(program.read_bytes())
        (block,) = content["program"]["regions"][0]["blocks"]
        for op in block["ops"]:
            if op["#"].endswith(".fetch"):
                attributes = {each["N"]: each["AT"] for each in op["A"]}
                attributes["name"]["D"] = names[attributes["col"]["D"]]
        program.write_text(json.dumps(content), encoding="utf-8")
        return
    from paddle.base.proto import framework_pb2

    content = framework_pb2.ProgramDesc()
    content.ParseFromString(program.read_bytes())
    block = content.blocks[0]
    taken = {variable.name for variable in block.vars}
    fetched = [op for op in block.ops if op.type == "fetch"]
    columns = {op.inputs[0].arguments[0]: next(a.i for a in op.attrs if a.name == "col") for op in fetched}
    # Twice the same, or the name of something else: such an output keeps its new name.
    renamed = {old: names[col] for old, col in columns.items() if names[col] not in taken}
    if len(set(renamed.values())) < len(renamed):
        return
    for variable in block.vars:
        variable.name = renamed.get(variable.name, variable.name)
    for op in block.ops:
        for slot in (*op.inputs, *op.outputs):
            slot.arguments[:] = [renamed.get(name, name) for name in slot.arguments]
    program.write_bytes(content.SerializeToString())


def largest_gap(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """The largest difference between two lists of outputs; infinite where their shapes differ."""
    if [array.shape for array in ours] != [array.shape for array in theirs]:
        return math.inf
    # As float64, and not by Python's max: a NaN must not get lost.
    gaps = [np.abs(a.astype("float64") - b).max(initial=0.0) for a, b in zip(ours, theirs)]
    return float(np.max(gaps, initial=0.0))
