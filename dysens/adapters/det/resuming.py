"""Going on with a training that was broken off, with the optimizer as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paddle

from dysens.adapters.det.task import DetTask
from dysens.adapters.optimizer_state import read_optimizer_state
from dysens.errors import InputError
from dysens.pruning._weights_file import read_state
from dysens.pruning.checkpoint import set_optimizer_state


@contextmanager
def resumed_trainer(task: DetTask, checkpoint: str | Path, name: str | None = None) -> Iterator[Any]:
    """ppdet's ``Trainer`` where it was when it wrote a checkpoint; use it inside the ``with``.

    ppdet's own ``resume_weights`` finds the optimizer's state by automatic parameter names, and these change with what was
    built before in a process.

    Args:
        task: Its network gets the checkpoint's weights, and is cut by the plan beside them if it is still whole.
        checkpoint: One that a Trainer of `DetTask` wrote, without an ending: ``output/my_config_pruned/2``.
        name: See `DetTask.trainer`.

    Raises:
        InputError: Files are missing or do not fit, or no epoch is left to be trained.
    """
    prefix = str(checkpoint).removesuffix(".pdparams")
    weights, optimizer, live = (Path(prefix + ending) for ending in (".pdparams", ".pdopt", ".pdema"))
    for path in (weights, optimizer):
        if not path.is_file():
            raise InputError(f'training cannot go on from "{checkpoint}": {path} is not there.')
    task.load(weights)
    with task.trainer(name=name) as trainer:
        averaged = live.is_file() and trainer.use_ema
        if averaged:
            # The checkpoint has the moving average; what was averaged is beside it.
            task.model.set_state_dict(read_state(live))
        state = read_optimizer_state(optimizer, weights, task.model)
        trainer.start_epoch = state.pop("last_epoch", 0)
        if trainer.start_epoch >= trainer.cfg.epoch:
            raise InputError(
                f'"{checkpoint}" was written after epoch {trainer.start_epoch} of {trainer.cfg.epoch}: nothing is left to be '
                "trained. Train for longer with -o epoch=number."
            )
        set_optimizer_state(trainer.optimizer, state, optimizer)
        if averaged:
            average = {name: paddle.to_tensor(value) for name, value in read_state(weights).items()}
            trainer.ema.resume(average, state["LR_Scheduler"]["last_epoch"])
        yield trainer
