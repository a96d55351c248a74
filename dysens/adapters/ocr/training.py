"""Hands a network, pruned or not, to PaddleOCR's own training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle

from dysens.adapters.ocr.config import section
from dysens.adapters.ocr.inference_files import read_plain_pickle
from dysens.adapters.ocr.ppocr import load_ppocr, logger
from dysens.adapters.ocr.task import OcrTask
from dysens.errors import InputError

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

    Optimizer, schedule, loss, data and metric are the config's. Checkpoints go to ``Global.save_model_dir``.

    Args:
        task: Its network holds the weights to start from.
        resume: An earlier checkpoint of the same run, without its ending: the optimizer's state and the epoch go on from there.

    Raises:
        InputError: The config lacks something that training needs, or the checkpoint to resume from is not there.
    """
    settings = section(task.config, "Global")
    missing = [key for key in NEEDED if key not in settings]
    if missing:
        raise InputError(f"training needs Global.{', Global.'.join(missing)} in the config.")
    if settings.get("use_amp"):
        raise InputError("mixed precision is not supported here: set -o Global.use_amp=false.")
    train_loader, eval_loader = task.train_dataloader(), task.eval_dataloader()
    optimizer, schedule = task.optimizer(steps_per_epoch=len(train_loader))
    load_ppocr().program.train(
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
        _resumed(resume, optimizer) if resume else {},
        logger,
        len(train_loader),
    )


def _resumed(resume: str | Path, optimizer: Any) -> dict[str, Any]:
    """Restores the optimizer and says where the run was, in the form that PaddleOCR's loop takes."""
    prefix = str(resume).removesuffix(".pdparams")
    state, progress = Path(f"{prefix}.pdopt"), Path(f"{prefix}.states")
    for path in (state, progress):
        if not path.is_file():
            raise InputError(f'training cannot go on from "{resume}": "{path}" is not there.')
    optimizer.set_state_dict(paddle.load(str(state)))
    states = read_plain_pickle(progress)
    best = dict(states.get("best_model_dict", {}))
    best["start_epoch"] = states.get("epoch", 0) + 1
    best["global_step"] = states.get("global_step", 0)
    return best
