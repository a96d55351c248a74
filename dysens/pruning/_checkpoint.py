"""A pruned model on disk: its weights, and a readable plan of what was removed from the original network."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from dysens.atomic import Writer, finish, is_unfinished, write_file, write_together
from dysens.errors import InputError, in_a_sentence
from dysens.model import isolate, preserved, tensors_by_path
from dysens.pruning._cutting import cut, history, note_cut
from dysens.pruning._files import FORMAT, PlanFile, check_array, check_fits, check_widths, read_state
from dysens.pruning._plan import PrunePlan

PLAN, WEIGHTS, OPTIMIZER = ".plan.json", ".pdparams", ".pdopt"

_READS = 5  # how often a checkpoint is read again that others are replacing


def save_pruned(
    model: paddle.nn.Layer,
    path: str | os.PathLike[str],
    optimizer: paddle.optimizer.Optimizer | None = None,
) -> None:
    """Write ``path.pdparams`` (weights), ``path.plan.json`` (what was cut) and, with an optimizer, ``path.pdopt``.

    Args:
        model: A model that `DygraphSensitivity.prune_vars` has cut; one that was never cut is saved with an empty plan.
        path: Where to, without a suffix.
        optimizer: Saved with the model, if given.
    """
    target = Path(path)
    states = {
        WEIGHTS: model.state_dict(),
        **({OPTIMIZER: optimizer.state_dict()} if optimizer is not None else {}),
    }
    writers: dict[str, Writer] = {ending: partial(_save, state) for ending, state in states.items()}
    text = _plan_of(model, list(states))
    writers[PLAN] = lambda place: place.write_bytes(text)
    _written(target, lambda: write_together(target, writers, PLAN))


def _save(state: dict[str, Any], place: Path) -> None:
    paddle.save(state, str(place))


def save_plan(model: paddle.nn.Layer, path: str | os.PathLike[str]) -> None:
    """Write ``path.plan.json`` alone, beside weights that were saved by other code.

    Args:
        model: Cut as a whole, or in a layer of it (the student of a distillation model).
        path: Where to, without a suffix.
    """
    text = _plan_of(model, [])
    finish(Path(path), PLAN)
    _written(Path(path), lambda: write_file(_plan_path(path), lambda place: place.write_bytes(text)))


def _plan_of(model: paddle.nn.Layer, saved_with: list[str]) -> bytes:
    stages = stages_of(model)
    plan = {
        "format": FORMAT if any(stage.reorders for stage in stages) else 1,
        "model": type(model).__name__,
        "stages": [stage.to_json() for stage in stages],
        # An optimizer knows parameters by automatic names, which shift when other networks were built before.
        "parameters": {parameter.name: name for name, parameter in model.named_parameters()},
        **({"saved_with": saved_with} if saved_with else {}),
    }
    return (json.dumps(plan, indent=1) + "\n").encode("utf-8")


def _written(target: Path, write: Callable[[], None]) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        raise InputError(
            f'"{target}" cannot be saved: {error.strerror or error}. What was saved there before is as it was. '
            "Make room, or name another place."
        ) from error


def _plan_path(path: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(path)}{PLAN}")


def stages_of(model: paddle.nn.Layer) -> list[PrunePlan]:
    """What was cut from a model, as a whole or in a layer of it, cut by cut."""
    return [
        stage.inside(name)
        for name, layer in model.named_sublayers(include_self=True)
        for stage in history(layer)
    ]


def has_plan(path: str | os.PathLike[str]) -> bool:
    """Whether the checkpoint ``path`` (without a suffix) is one of a pruned network, with its plan beside it."""
    _settle(path)
    return _plan_path(path).is_file()


def is_cut_as_saved(model: paddle.nn.Layer, path: str | os.PathLike[str]) -> bool:
    """Whether a model has been cut just as the plan beside a checkpoint says."""
    stages = read_plan(path).stages
    return [stage.to_json() for stage in stages_of(model)] == [stage.to_json() for stage in stages]


def cut_as_saved(
    model: paddle.nn.Layer,
    path: str | os.PathLike[str],
    optimizer: paddle.optimizer.Optimizer | None = None,
) -> dict[str, str]:
    """Cut a freshly built original network as the plan beside a checkpoint says; its weights stay its own.

    Args:
        model: The original network; it is left half cut if the plan does not fit, so call this inside `preserved`.
        path: What `save_pruned` or `save_plan` was given.
        optimizer: Its state is cut along.

    Returns:
        The automatic name that each parameter had when the plan was written, to its path in the network.
    """
    return _cut_as(model, read_plan(path), optimizer)


def read_plan(path: str | os.PathLike[str]) -> PlanFile:
    """The plan beside a checkpoint.

    Raises:
        InputError: There is none, or it is damaged.
    """
    _settle(path)
    return PlanFile(_plan_path(path))


def _settle(path: str | os.PathLike[str]) -> None:
    """A save that was killed when all was written is brought to its end first."""
    try:
        finish(Path(path), PLAN)
    except OSError as error:
        raise InputError(
            f'"{path}" was not moved into place when it was saved, and cannot be now: {error.strerror or error}. '
            "Open it once where its folder can be written to."
        ) from error


def _cut_as(
    model: paddle.nn.Layer, plan: PlanFile, optimizer: paddle.optimizer.Optimizer | None
) -> dict[str, str]:
    if history(model):
        raise InputError(
            "This model has been cut already; load_pruned needs the original network, freshly built."
        )
    for stage in plan.stages:
        if _is_there(model, stage):
            note_cut(model, stage)
            continue
        check_fits(model, stage)
        cut(model, stage, optimizer)
        check_widths(model, stage)
    return plan.parameters


def _is_there(model: paddle.nn.Layer, stage: PrunePlan) -> bool:
    """Whether a network was built as this stage leaves it: a recogniser with the shorter dictionary has fewer classes already."""
    tensors = tensors_by_path(model)
    return bool(stage.cuts) and all(
        item.tensor in tensors
        and item.blocks == 1
        and bool(item.removed)
        and item.axis < tensors[item.tensor].ndim
        and tensors[item.tensor].shape[item.axis] == item.size - len(item.removed)
        for item in stage.cuts
    )


def load_pruned(
    model: paddle.nn.Layer,
    path: str | os.PathLike[str],
    optimizer: paddle.optimizer.Optimizer | None = None,
    trusted: bool = False,
) -> paddle.nn.Layer:
    """Cut a freshly built original network as the saved one was, and load its weights.

    Args:
        model: The original network, not cut; it is changed in place. If anything does not fit, it is left as it was.
        path: What `save_pruned` was given.
        optimizer: Gets the saved optimizer state, if given.
        trusted: Read files that hold more than numbers, which may run code of their author; see `read_state`.

    Returns:
        The same model.
    """
    endings = [WEIGHTS, OPTIMIZER] if optimizer is not None else [WEIGHTS]
    plan, states = _read_together(path, endings, trusted)
    state, optimizer_state = states[WEIGHTS], states.get(OPTIMIZER)
    with preserved(model, optimizer, gradients=True) as before:
        saved_names = _cut_as(model, plan, optimizer)
        _put(model, state, optimizer)
        if optimizer is not None and optimizer_state is not None:
            set_optimizer_state(
                optimizer, renamed_state(optimizer_state, saved_names, model), f"{path}.pdopt"
            )
        before.keep()
    return model


def load_checkpoint(model: paddle.nn.Layer, path: str | os.PathLike[str], trusted: bool = False) -> None:
    """Load a state dict into a freshly built network, which is cut first if a plan lies beside the file.

    Args:
        model: Changed in place. If anything does not fit, it is left as it was.
        path: A ``.pdparams`` file, with or without its suffix.
        trusted: See `load_pruned`.

    Raises:
        InputError: There is no such file, or a tensor is missing, left over or of another shape.
    """
    place = os.fspath(path).removesuffix(".pdparams")
    if not Path(f"{place}.pdparams").is_file():
        raise InputError(f'There are no weights "{place}.pdparams" (looked from "{Path.cwd()}").')
    if has_plan(place):
        load_pruned(model, place, trusted=trusted)
        return
    with preserved(model) as before:
        _put(model, _read(Path(f"{place}.pdparams"), trusted))
        before.keep()


def _put(
    model: paddle.nn.Layer, state: dict[str, Any], optimizer: paddle.optimizer.Optimizer | None = None
) -> None:
    """Inside `preserved`: give every tensor of the model its saved value."""
    _check_weights(model, state)
    isolate(model, optimizer)  # weights are written in place
    for name, tensor in model.state_dict().items():
        tensor.set_value(state[name])


def renamed_state(state: dict[str, Any], saved: dict[str, str], model: paddle.nn.Layer) -> dict[str, Any]:
    """Optimizer state under the names that the parameters have in this process.

    Args:
        state: What `read_state` read; its arrays become tensors.
        saved: The automatic name of each parameter when the state was saved, to its path in the network.
        model: The network that the state is for.
    """
    now = {path: parameter.name for path, parameter in model.named_parameters()}
    # Longest first: "conv2d_1.w_0" must not claim what belongs to "conv2d_1.w_0_extra".
    pairs = sorted(
        ((old, now[path]) for old, path in saved.items() if path in now), key=lambda pair: -len(pair[0])
    )

    def renamed(key: str) -> str:
        for old, new in pairs:
            if key == old or key.startswith(f"{old}_"):
                return new + key[len(old) :]
        return key

    def tensor(value: Any) -> Any:
        return paddle.to_tensor(value) if isinstance(value, np.ndarray) else value

    return {
        renamed(key): {renamed(name): tensor(part) for name, part in value.items()}
        if key == "master_weights" and isinstance(value, dict)
        else tensor(value)
        for key, value in state.items()
    }


def set_optimizer_state(
    optimizer: paddle.optimizer.Optimizer, state: dict[str, Any], source: str | os.PathLike[str]
) -> None:
    """Give an optimizer its state, with a sentence where Paddle has an assertion.

    Raises:
        InputError: The state does not fit.
    """
    try:
        optimizer.set_state_dict(state)
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f'The optimizer state in "{source}" does not fit this optimizer: {in_a_sentence(error)}.'
        ) from error


def _read_together(
    path: str | os.PathLike[str], endings: Sequence[str], trusted: bool
) -> tuple[PlanFile, dict[str, dict[str, Any]]]:
    """A plan and the files that belong to it, consistent also while another process replaces them."""
    for _ in range(_READS):
        _settle(path)
        before = _identities(path, endings)
        plan = PlanFile(_plan_path(path))
        states = {ending: _read(Path(f"{os.fspath(path)}{ending}"), trusted) for ending in endings}
        if before == _identities(path, endings) and not is_unfinished(Path(path), PLAN):
            break
    else:
        raise InputError(f'"{path}" is being replaced again and again; load it when that has ended.')
    if OPTIMIZER in endings and plan.saved_with and OPTIMIZER not in plan.saved_with:
        raise InputError(
            f'"{path}" was saved without an optimizer; "{path}{OPTIMIZER}" beside it is of another checkpoint.'
        )
    return plan, states


def _identities(path: str | os.PathLike[str], endings: Sequence[str]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for ending in (PLAN, *endings):
        try:
            status = os.stat(f"{os.fspath(path)}{ending}")
        except FileNotFoundError:
            found.append(())
        else:
            found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def _read(path: Path, trusted: bool) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"There is no file {path}; save_pruned writes it beside the plan.")
    return read_state(path, trusted)


def _check_weights(model: paddle.nn.Layer, state: dict[str, Any]) -> None:
    own = model.state_dict()
    missing = sorted(set(own) - set(state))
    if missing:
        raise InputError(
            f"The saved weights lack '{missing[0]}', which this network has; is it another network?"
        )
    surplus = sorted(set(state) - set(own))
    if surplus:
        raise InputError(
            f"The saved weights have '{surplus[0]}', which this network lacks; is it another network?"
        )
    for name, tensor in own.items():
        check_array(name, state[name], tensor)
        if list(tensor.shape) != list(state[name].shape):
            raise InputError(
                f"The layer '{name.rpartition('.')[0]}' differs: '{name}' has shape {list(tensor.shape)} in this "
                f"network and {list(state[name].shape)} in the saved weights."
            )
