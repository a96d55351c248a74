"""Hands a network, pruned or not, to PaddleOCR's own training loop."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import paddle

from dysens._pickle import read_plain
from dysens.adapters._shared import read_optimizer_state, seeded
from dysens.adapters.ocr._config import section
from dysens.adapters.ocr._data import SEED
from dysens.adapters.ocr._ppocr import load_ppocr
from dysens.errors import InputError
from dysens.flags import setting
from dysens.pruning import save_plan, set_optimizer_state

if TYPE_CHECKING:
    from dysens.adapters.ocr._task import OcrTask

logger = logging.getLogger(__name__)

NEEDED = (
    "epoch_num",
    "log_smooth_window",
    "print_batch_step",
    "eval_batch_step",
    "save_epoch_step",
    "save_model_dir",
)


def train(task: OcrTask, resume: str | Path | None = None) -> None:
    """Trains ``task.network`` as it is now with PaddleOCR's ``program.train``.

    Optimizer, schedule, loss, data and metric are the config's. Checkpoints go to ``Global.save_model_dir``,
    each with the plan of what was cut beside it.

    Args:
        task: Its network holds the weights to start from.
        resume: An earlier checkpoint of the same run, without its ending: the optimizer's state and the
            epoch go on from there.

    Raises:
        InputError: The config lacks something that training needs, or the checkpoint to resume from is not
            there.
    """
    settings = section(task.config, "Global")
    missing = [key for key in NEEDED if key not in settings]
    if missing:
        raise InputError(f"Training needs Global.{', Global.'.join(missing)} in the config.")
    if settings.get("use_amp"):
        raise InputError(f"Mixed precision is not supported here: use {setting('Global.use_amp=false')}.")
    train_loader, eval_loader = task.train_dataloader(), task.eval_dataloader()
    optimizer, schedule = task.optimizer(steps_per_epoch=len(train_loader))
    program = load_ppocr().program
    # PaddleOCR's train.py seeds all generators too: augmentation then draws alike in every run.
    with seeded(settings.get("seed", SEED)), _plans_beside_checkpoints(program):
        program.train(
            task.config,
            train_loader,
            eval_loader,
            task.place,
            task.network,
            task.loss(),
            optimizer,
            schedule,
            task.post_process,
            task.new_network_metric(),
            _resumed(resume, task.network, optimizer) if resume else {},
            logger,
            len(train_loader),
        )


@contextmanager
def _plans_beside_checkpoints(program: ModuleType) -> Iterator[None]:
    """Every checkpoint that PaddleOCR's loop writes gets its plan: without, nobody could load a pruned one."""
    original = program.save_model

    def save_model(model: Any, optimizer: Any, folder: str, *others: Any, **named: Any) -> None:
        original(model, optimizer, folder, *others, **named)
        save_plan(model, Path(folder) / named["prefix"])

    program.save_model = save_model  # type: ignore[attr-defined]
    try:
        yield
    finally:
        program.save_model = original  # type: ignore[attr-defined]


def _resumed(resume: str | Path, network: paddle.nn.Layer, optimizer: Any) -> dict[str, Any]:
    """Restores the optimizer and says where the run was, in the form that PaddleOCR's loop takes."""
    prefix = str(resume).removesuffix(".pdparams")
    paths = [Path(prefix + ending) for ending in (".pdparams", ".pdopt", ".states")]
    for path in paths:
        if not path.is_file():
            raise InputError(f'Training cannot go on from "{resume}": "{path}" is not there.')
    weights, state, progress = paths
    set_optimizer_state(optimizer, read_optimizer_state(state, weights, network), state)
    states = read_plain(progress, "such files")
    best, epoch, step = (
        states.get("best_model_dict", {}),
        states.get("epoch", 0),
        states.get("global_step", 0),
    )
    if not isinstance(best, dict) or not isinstance(epoch, int) or not isinstance(step, int):
        raise InputError(
            f'"{progress}" does not say where the training was; it is damaged, or of another program.'
        )
    return {**best, "start_epoch": epoch + 1, "global_step": step}
