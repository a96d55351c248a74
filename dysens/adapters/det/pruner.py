"""A ``Pruner`` in the place of ppdet's: PaddleDetection's tools then prune with dysens, also on Paddle 3.

Importing this module registers it. One line at the top of PaddleDetection's ``tools/train.py``, before ppdet is imported,
is all that ``--slim_config`` needs:

    import dysens.adapters.det.pruner
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import paddle

from dysens.adapters.det._data import Size, configured_size, example_inputs, train_inputs
from dysens.adapters.det._ppdet import DetConfig, current_config, import_ppdet
from dysens.adapters.det._task import keep_plans_beside_checkpoints
from dysens.criteria import check_criterion
from dysens.errors import InputError
from dysens.ratios import ratios_of_pruner
from dysens.sensitivity import DygraphSensitivity


class Pruner:
    """What a slim config's section ``Pruner`` builds: called with a model, it cuts that and returns it.

    Unlike ppdet's own it looks at the training forward too, runs at the config's image size, takes layer paths as well as
    parameter names, and sees to it that checkpoints get their plans.

    Args:
        criterion: ``fpgm``, ``l1_norm``, or another of `dysens.criteria`.
        pruned_params: Parameter names or layer paths.
        pruned_ratios: The share of filters to remove, one for each of them.
        print_params: Whether to list what can be pruned, and why the rest cannot.
    """

    def __init__(
        self,
        criterion: str,
        pruned_params: Sequence[str],
        pruned_ratios: Sequence[float],
        print_params: bool = False,
    ) -> None:
        self.criterion = criterion
        self.pruned_params = pruned_params
        self.pruned_ratios = pruned_ratios
        self.print_params = print_params
        section = {"criterion": criterion, "pruned_params": pruned_params, "pruned_ratios": pruned_ratios}
        wanted = ratios_of_pruner(section, "The slim config")
        self._ratios, self._criterion = wanted.ratios, str(wanted.criterion)
        check_criterion(self._criterion)

    def __call__(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        """Cuts the model in place."""
        config, logger = current_config(), _logger()
        size = configured_size(config)
        ds = DygraphSensitivity(
            model,
            example_inputs(size),
            criterion=self._criterion,
            train_inputs=_train_inputs(config, size, logger),
        )
        if self.print_params:
            logger.info("Prunable:\n%s\nnot prunable:\n%s", ds.groups, ds.unprunable)
        logger.info("Pruned at %d x %d by dysens:\n%s", *size, ds.prune_vars(self._ratios))
        keep_plans_beside_checkpoints(model)
        return model


def _train_inputs(config: DetConfig, size: Size, logger: logging.Logger) -> dict[str, Any] | None:
    """For evaluation and export, the training data need not be there."""
    try:
        return train_inputs(config, size)
    except InputError as error:
        logger.warning("Only the eval forward is looked at, since there are no training data: %s", error)
        return None


def _logger() -> logging.Logger:
    """ppdet's logger, so that its tools show these messages."""
    logger: logging.Logger = import_ppdet("utils.logger").setup_logger("ppdet.slim.prune")
    return logger


def _register() -> None:
    workspace = import_ppdet("core.workspace")
    # ppdet refuses a second class of the same name.
    workspace.global_config.pop(Pruner.__name__, None)
    workspace.serializable(workspace.register(Pruner))


_register()
