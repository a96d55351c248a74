"""Hands a network, pruned or not, to PaddleOCR's own training loop."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import paddle
from paddle.nn import functional

from dysens._pickle import read_plain
from dysens.adapters._shared import read_optimizer_state, seeded
from dysens.adapters.ocr._config import section
from dysens.adapters.ocr._data import SEED
from dysens.adapters.ocr._fine_tuning import FineTuning, fine_tuning_of
from dysens.adapters.ocr._ppocr import load_ppocr
from dysens.errors import InputError
from dysens.model import run_through
from dysens.pruning import read_state, save_plan, set_optimizer_state

if TYPE_CHECKING:
    from dysens.adapters.ocr._task import OcrTask

logger = logging.getLogger(__name__)

BEST = "best_accuracy"  # what PaddleOCR calls the checkpoint that scored best
FINE_TUNING = "dysens_fine_tuning"  # of a checkpoint's states: a run that goes on trains as it began
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

    Optimizer, schedule, loss, data and metric are the config's; what the network knows is looked after, see `FineTuning`.
    Checkpoints go to ``Global.save_model_dir``, each with the plan of what was cut beside it.

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
    with quick_log_softmax():
        fine_tuning = fine_tuning_of(task) if resume is None else _fine_tuning_before(resume)
    train_loader, eval_loader = task.train_dataloader(), task.eval_dataloader()
    program = load_ppocr().program
    takes = inspect.signature(program.train).parameters
    optimizer, schedule, *further = task.optimizer(steps_per_epoch=len(train_loader))
    newer = {**_decay_schedule(further, takes), **_moving_average(settings, task.network, takes)}
    network, optimizer, precision = _mixed_precision(settings, task.network, optimizer)
    began = time.time()
    # PaddleOCR's train.py seeds all generators too: augmentation then draws alike in every run.
    with (
        seeded(settings.get("seed", SEED)),
        _plans_beside_checkpoints(program, **{FINE_TUNING: asdict(fine_tuning)}),
        fine_tuning.applied(task.network),
        quick_log_softmax(),
    ):
        program.train(
            _for_short_trainings(task.config, len(train_loader)),
            train_loader,
            eval_loader,
            task.place,
            network,
            task.loss(),
            optimizer,
            schedule,
            task.post_process,
            task.new_network_metric(),
            _resumed(resume, task.network, optimizer) if resume else {},
            logger,
            len(train_loader),
            **{name: value for name, value in precision.items() if name in takes},
            **newer,
        )
    _take_the_best(task.network, Path(str(settings["save_model_dir"])) / BEST, began)


@contextmanager
def quick_log_softmax() -> Iterator[None]:
    """The same numbers from quick operations: Paddle's own log_softmax takes 3 microseconds a class on a CPU.

    The loss of an NRTR branch takes it of every character of every line: with 18,000 classes that is most of a step.
    """
    original = functional.log_softmax

    def log_softmax(x: paddle.Tensor, axis: int = -1, dtype: Any = None, name: Any = None) -> paddle.Tensor:
        if "gpu" in str(x.place):
            return original(x, axis, dtype, name)
        x = x if dtype is None else x.astype(dtype)
        x = x - x.max(axis=axis, keepdim=True).detach()
        return x - x.exp().sum(axis=axis, keepdim=True).log()

    functional.log_softmax = log_softmax
    try:
        yield
    finally:
        functional.log_softmax = original


def _for_short_trainings(config: Mapping[str, Any], steps_per_epoch: int) -> dict[str, Any]:
    """A copy in which the network is scored at least once, after the last step: without, there is no best_accuracy. And an epoch
    is reported four times at least: a stock recogniser's takes minutes for three batches."""
    copied = deepcopy(dict(config))
    settings = copied["Global"]
    steps = steps_per_epoch * int(settings["epoch_num"])
    given = settings["eval_batch_step"]
    start, every = given[:2] if isinstance(given, (list, tuple)) else (0, given)
    if not settings.get("eval_batch_epoch") and start + every > steps:
        settings["eval_batch_step"] = [0, steps]
    settings["print_batch_step"] = max(1, min(int(settings["print_batch_step"]), steps_per_epoch // 4))
    return copied


def _decay_schedule(further: list[Any], takes: Collection[str]) -> dict[str, Any]:
    """The schedule of the weight decay, which newer versions of PaddleOCR build with the optimizer, for their loop."""
    given = [each for each in further if each is not None]
    if not given:
        return {}
    if len(further) > 1 or "wd_scheduler" not in takes:
        raise InputError(
            "PaddleOCR's build_optimizer returns more than its loop (program.train) takes: "
            f"{', '.join(type(each).__name__ for each in given)}. ppocr and tools are of different versions, or newer than this "
            "version of dysens knows."
        )
    return {"wd_scheduler": given[0]}


def _moving_average(
    settings: Mapping[str, Any], network: paddle.nn.Layer, takes: Collection[str]
) -> dict[str, Any]:
    """The moving average of the weights that ``Global.use_ema`` asks for, where the loop does not build it by itself."""
    if not settings.get("use_ema"):
        return {}
    if importlib.util.find_spec("ppocr.utils.ema") is None:
        logger.warning(
            "The config asks for a moving average of the weights (Global.use_ema), which this version of PaddleOCR does not "
            "have: training goes on without it."
        )
        return {}
    if "ema" not in takes:
        return {}  # the loop gets the network as it is now, and the config
    names = {
        "decay": "ema_decay",
        "ema_decay_type": "ema_decay_type",
        "ema_filter_no_grad": "ema_filter_no_grad",
    }
    options = {name: settings[key] for name, key in names.items() if key in settings}
    return {"ema": importlib.import_module("ppocr.utils.ema").ModelEMA(network, **options)}


def _mixed_precision(
    settings: Mapping[str, Any], network: paddle.nn.Layer, optimizer: Any
) -> tuple[paddle.nn.Layer, Any, dict[str, Any]]:
    """What PaddleOCR's train.py prepares for ``Global.use_amp``: network, optimizer, and further arguments of its loop."""
    if not settings.get("use_amp"):
        return network, optimizer, {}
    if not paddle.is_compiled_with_cuda():
        logger.warning(
            "The config asks for mixed precision, which needs a GPU: training goes on in single precision."
        )
        return network, optimizer, {}
    scaler = paddle.amp.GradScaler(
        init_loss_scaling=settings.get("scale_loss", 1.0),
        use_dynamic_loss_scaling=settings.get("use_dynamic_loss_scaling", False),
    )
    level, dtype = settings.get("amp_level", "O2"), settings.get("amp_dtype", "float16")
    if level == "O2":
        network, optimizer = paddle.amp.decorate(
            models=network, optimizers=optimizer, level=level, master_weight=True, dtype=dtype
        )
    lists = {name: settings.get(name, []) for name in ("amp_custom_black_list", "amp_custom_white_list")}
    return network, optimizer, {"scaler": scaler, "amp_level": level, "amp_dtype": dtype, **lists}


def _take_the_best(network: paddle.nn.Layer, best: Path, began: float) -> None:
    """The network goes on with the weights that scored best in this run, as whoever reads best_accuracy does."""
    file = best.with_name(best.name + ".pdparams")
    if not file.is_file() or file.stat().st_mtime < began:
        return  # of an earlier run: nothing here was better
    saved = read_state(file)
    for name, tensor in network.state_dict().items():
        tensor.set_value(paddle.to_tensor(saved[name]).astype(tensor.dtype))


@contextmanager
def _plans_beside_checkpoints(program: ModuleType, **states: Any) -> Iterator[None]:
    """Every checkpoint that PaddleOCR's loop writes gets its plan: without, nobody could load a pruned one.

    Ctrl-C waits until both are written.

    Args:
        program: With PaddleOCR's ``save_model``.
        states: What else to write into the ``.states`` of a checkpoint.
    """
    original = program.save_model

    def save_model(*arguments: Any, **named: Any) -> None:
        run_through(lambda: save_both(*arguments, **named))

    def save_both(model: Any, optimizer: Any, folder: str, *others: Any, **named: Any) -> None:
        original(model, optimizer, folder, *others, **named, **states)
        save_plan(model, Path(folder) / named["prefix"])
        if named["prefix"] == BEST and (Path(folder) / "best_model" / "model.pdparams").is_file():
            save_plan(model, Path(folder) / "best_model" / "model")  # PaddleOCR 3 keeps the best one twice

    program.save_model = save_model  # type: ignore[attr-defined]
    try:
        yield
    finally:
        program.save_model = original  # type: ignore[attr-defined]


def _fine_tuning_before(resume: str | Path) -> FineTuning:
    """How the run that is gone on with was trained; one that does not say so, just as the config says."""
    progress = Path(str(resume).removesuffix(".pdparams") + ".states")
    states = read_plain(progress, "such files") if progress.is_file() else {}
    known = states.get(FINE_TUNING) if isinstance(states, dict) else None
    if not isinstance(known, dict) or not all(
        isinstance(each, str) for each in known.get("new_branches", ())
    ):
        return FineTuning()
    return FineTuning(tuple(known.get("new_branches", ())), bool(known.get("frozen_norms")))


def _resumed(resume: str | Path, network: paddle.nn.Layer, optimizer: Any) -> dict[str, Any]:
    """Restores the optimizer and says where the run was, in the form that PaddleOCR's loop takes."""
    prefix = str(resume).removesuffix(".pdparams")
    paths = [Path(prefix + ending) for ending in (".pdparams", ".pdopt", ".states")]
    for path in paths:
        if not path.is_file():
            raise InputError(f'Training cannot continue from "{resume}": "{path}" is not there.')
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
