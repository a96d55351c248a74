"""Loading a detector's weights, with a sentence where they do not fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import paddle

from dysens.adapters.det.onnx_weights import load_onnx_weights
from dysens.adapters.det.ppdet_import import INSTALL, import_ppdet
from dysens.errors import InputError, MissingExtraError
from dysens.live import preserved
from dysens.pruning._weights_file import check_array, read_state
from dysens.pruning.checkpoint import cut_as_saved, has_plan, stages_of

logger = logging.getLogger("dysens.adapters.det")

PACKAGE_SCHEME = "package://"


def load_weights(
    model: paddle.nn.Layer, source: str | Path, example_inputs: Mapping[str, paddle.Tensor]
) -> None:
    """Loads weights into a live detector; all of its parameters must be found, in their shapes.

    A checkpoint with a plan beside it (`dysens.save_pruned`, or one that a Trainer of `DetTask` wrote) is of a pruned
    network: a whole one is cut in the same way first. If anything does not fit, the network stays as it was.

    Args:
        model: The network, as it was built.
        source: A ``.pdparams`` file (its ending may be left out, as in PaddleDetection's configs), an address that
            ppdet's own downloader fetches, an ``.onnx`` export of the same network, or
            ``package://<package>/<path>`` for such a file inside an installed Python package.
        example_inputs: What the model is called with; runs it once where layers are matched by order (``.onnx``).

    Raises:
        InputError: There is no such file, or it does not fit the network.
        MissingExtraError: The Python package is not installed.
    """
    path = _local_path(str(source))
    if path.suffix == ".onnx":
        load_onnx_weights(model, path, example_inputs)
    else:
        _load_state(model, path)
    logger.info("Weights of %s loaded from %s", type(model).__name__, source)


def _local_path(source: str) -> Path:
    if source.startswith(PACKAGE_SCHEME):
        return _path_in_package(source)
    checkpoint = import_ppdet("utils.checkpoint")
    if checkpoint.is_url(source):
        return Path(checkpoint.get_weights_path(source))
    path = Path(source)
    # model_final.pdparams is written model_final in configs; with_suffix would eat the "5" of "v2.5".
    return path if path.suffix in (".pdparams", ".onnx") else path.with_name(path.name + ".pdparams")


def _path_in_package(source: str) -> Path:
    package, _, inside = source[len(PACKAGE_SCHEME) :].partition("/")
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f'The weights {source} are in the Python package "{package}", which is not installed. '
            f"Install it with: {INSTALL}"
        )
    return Path(spec.submodule_search_locations[0]) / inside


def _load_state(model: paddle.nn.Layer, path: Path) -> None:
    if not path.is_file():
        raise InputError(
            f"There are no weights at {path}. Give a .pdparams file with weights=path, or weights=null for a "
            "network that is yet to be trained."
        )
    state = read_state(path)
    checkpoint = str(path).removesuffix(".pdparams")
    with preserved(model) as before:
        if has_plan(checkpoint) and not stages_of(model):
            cut_as_saved(model, checkpoint)
        wanted = model.state_dict()
        _check_fit(wanted, state, path)
        model.set_state_dict({name: state[name] for name in wanted})
        before.keep()
    unused = [name for name in state if name not in wanted]
    if unused:
        logger.info("%d entries of %s are not used by the network, first %s", len(unused), path, unused[0])


def _check_fit(wanted: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> None:
    missing = [name for name in wanted if name not in state]
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} of the network's {len(wanted)} parameters, first {missing[0]}; "
            "it was saved from another network than the config describes."
        )
    for name, value in wanted.items():
        check_array(name, state[name], value)
        if list(state[name].shape) != list(value.shape):
            raise InputError(
                f"{name} has the shape {list(state[name].shape)} in {path}, and {list(value.shape)} in the network "
                "that the config describes. The plan of a pruned network (.plan.json) has to be beside its weights."
            )
