"""How a network that has its weights already goes on learning, so that a short training does not undo what it knows.

Two things do. Within some steps batch norms take over the statistics of a few batches: where these are of other images than the
network was trained with, or of very few, that alone can cost more than the cut did. And released models lack the branches that
only training runs (the thresholds of a detector, the branch that guides a recogniser): these begin with random values,
and the gradients that they send back into the network are noise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import paddle
from paddle import nn

from dysens.adapters._norms import BATCH_NORMS, FREEZE, frozen_norms, norms_of, statistics_fit
from dysens.adapters.ocr._config import takes_labels
from dysens.adapters.ocr._data import Batches
from dysens.adapters.ocr._weights import idle_layers
from dysens.model import leaves, map_leaves

if TYPE_CHECKING:
    from dysens.adapters.ocr._task import OcrTask

logger = logging.getLogger(__name__)

LINES = 32  # of a batch, to compare statistics of batch norms on


@dataclass(frozen=True)
class FineTuning:
    """What is looked after while a network trains on.

    Attributes:
        new_branches: Paths of branches that begin with random values: they learn from the network, and teach it nothing.
        frozen_norms: Whether batch norms keep their statistics; those of new branches never do.
    """

    new_branches: tuple[str, ...] = ()
    frozen_norms: bool = False

    @contextmanager
    def applied(self, network: nn.Layer) -> Iterator[None]:
        """The network trains in this way inside."""
        with ExitStack() as stack:
            if self.frozen_norms:
                stack.enter_context(frozen_norms(norms_of(network, self.new_branches)))
            if self.new_branches:
                layers = dict(network.named_sublayers())
                stack.enter_context(_learning_only([layers[path] for path in self.new_branches]))
                stack.enter_context(_unguided(network))
            yield


def fine_tuning_of(task: OcrTask) -> FineTuning:
    """How a task's network is to be trained on; with random weights or several networks, just as the config says."""
    if not task.has_weights or task.submodel is not None:
        return FineTuning()
    branches = _new_branches(task)
    if branches:
        logger.warning(
            "The weights have nothing for the branch that only training runs (%s): it begins with random values, and what it "
            "would teach the rest is noise. It learns in this training, and the rest learns without it; a training that begins "
            "with the weights of this one is guided by it.",
            " and ".join(branches),
        )
    given = task.config["Global"].get(FREEZE)
    if given is not None:
        return FineTuning(branches, bool(given))
    return FineTuning(branches, _statistics_fit(task, branches))


def _new_branches(task: OcrTask) -> tuple[str, ...]:
    """Parts of the head that only training runs and that were never trained.

    A released model has no weights for them. Once the network was saved, pruned or not, their norms still tell.
    """
    network = task.network
    head = getattr(network, "head", None)
    if head is None or task.weights is None:
        return ()
    idle = tuple(idle_layers(network, task.example_inputs))
    only_training = {
        f"head.{name}": branch
        for name, branch in head.named_children()
        if branch.state_dict() and all(f"head.{name}.{each}".startswith(idle) for each in branch.state_dict())
    }
    new = {
        path
        for path, branch in only_training.items()
        if {f"{path}.{each}" for each in branch.state_dict()} <= set(task.weights.untouched)
        or _norms_are_new(branch)
    }
    # Those without norms belong to the ones that have some: both came, or did not come, with the weights.
    return tuple(path for path in only_training if path in new or (new and not _norms(only_training[path])))


def _norms(branch: nn.Layer) -> list[nn.Layer]:
    return [layer for layer in branch.sublayers() if isinstance(layer, (*BATCH_NORMS, nn.LayerNorm))]


def _norms_are_new(branch: nn.Layer) -> bool:
    """Whether all norms of a branch scale by one, as they do before the first step, and there are some."""
    scales = [layer.weight for layer in _norms(branch) if layer.weight is not None]
    return bool(scales) and all(bool((scale == 1).all()) for scale in scales)


def _statistics_fit(task: OcrTask, branches: Sequence[str]) -> bool:
    """Whether batch norms fit the training images better than the batches do."""
    network, loss = task.network, task.loss()
    with_labels = takes_labels(task.config, training=True)

    def loss_of(batch: Any) -> Any:
        outputs = network(batch[0], batch[1:]) if with_labels else network(batch[0])
        return loss(outputs, batch)["loss"]

    # A stock recogniser's batch has 128 lines, whose loss takes minutes without a GPU.
    loader = ([each[:LINES] for each in batch] for batch in Batches(task.train_dataloader()))
    return statistics_fit(
        network, norms_of(network, branches), loader, loss_of, task.seed, f"+Global.{FREEZE}"
    )


@contextmanager
def _learning_only(branches: Sequence[nn.Layer]) -> Iterator[None]:
    """No gradient leaves these branches, except from one of them into another."""
    theirs: list[
        paddle.Tensor
    ] = []  # what they gave in this forward; kept, so that no other object has its id

    def cut(value: Any) -> Any:
        if not isinstance(value, paddle.Tensor) or any(value is each for each in theirs):
            return value
        return value.detach()

    def before(_layer: nn.Layer, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map_leaves(cut, list(inputs)))

    def after(_layer: nn.Layer, _inputs: object, outputs: Any) -> None:
        theirs[:] = [each for each in leaves(outputs) if isinstance(each, paddle.Tensor)]

    hooks = [branch.register_forward_pre_hook(before) for branch in branches]
    hooks += [branch.register_forward_post_hook(after) for branch in branches]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        theirs.clear()


@contextmanager
def _unguided(network: nn.Layer) -> Iterator[None]:
    """The CTC loss reaches the backbone: ``use_guide`` would leave that to the branch that is new."""
    guided = [layer for layer in network.sublayers(include_self=True) if getattr(layer, "use_guide", False)]
    try:
        for layer in guided:
            layer.use_guide = False
        yield
    finally:
        for layer in guided:
            layer.use_guide = True
