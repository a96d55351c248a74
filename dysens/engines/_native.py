"""The native engine: probe the live layer, then offer only what proves itself.

Layers that choose their way by values are found first: what they might run on some other input, no trial has seen.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import paddle

from dysens.engines._analysis import Analysis, Forwards, Proof
from dysens.engines._resolver import GroupResolver
from dysens.errors import ForwardError
from dysens.flags import flag
from dysens.groups import FILTERS, ChannelGroup, candidates, channel_graph
from dysens.model import View, eagerly, give_memory_back, leaves, preserved, tensors_by_path
from dysens.progress import at_work

logger = logging.getLogger(__name__)

_PROOF_SIDE = 128

_CONVERSIONS = ("__bool__", "__int__", "__float__", "__index__", "__array__", "item", "numpy", "tolist")
_PADDLE = str(Path(paddle.__file__).parent)


def without_blind_choices(
    model: paddle.nn.Layer, view: View, found: Analysis, called: Iterable[str]
) -> Analysis:
    """Leave out groups in layers that choose their way by values and have a way that was never taken.

    Args:
        model: The live layer.
        view: A forward that runs.
        found: What is offered so far.
        called: The layers with weights that ran on some input.
    """
    never = set(found.roles) - set(called)
    reasons = dict(found.reasons)
    kept = found.groups
    for chooser in sorted(_choosers(model, view)) if never and kept else ():
        hidden = next((path for path in sorted(never) if _is_choice(chooser, path, found, never)), None)
        if hidden is None:
            continue
        why = (
            f"layer '{chooser}' branches on values, and layer '{hidden}' inside it did not run for any input that was tried"
            if chooser
            else f"the forward branches on values, and layer '{hidden}' did not run for any input that was tried"
        )
        concerned = [g for g in kept if any(_inside(port.layer, chooser) for port in g.units)]
        reasons.update({path: why for group in concerned for path in group.filters})
        kept = [group for group in kept if group not in concerned]
    return replace(found, groups=kept, reasons=reasons)


def _is_choice(chooser: str, path: str, found: Analysis, never: set[str]) -> bool:
    """Whether a layer belongs to a part of the branching layer of which nothing ran: another branch."""
    if not _inside(path, chooser):
        return False
    rest = path[len(chooser) + 1 :] if chooser else path
    part = f"{chooser}.{rest.split('.')[0]}" if chooser else rest.split(".")[0]
    return all(each in never for each in found.roles if _inside(each, part))


def _inside(path: str, layer: str) -> bool:
    return not layer or path == layer or path.startswith(f"{layer}.")


def _choosers(model: paddle.nn.Layer, view: View) -> set[str]:
    """The layers whose own code turns a tensor into a Python value."""
    paths = {id(layer): path for path, layer in model.named_sublayers(include_self=True)}
    seen: set[str] = set()

    def note() -> None:
        frame = sys._getframe(2)
        if frame.f_code.co_filename.startswith(_PADDLE):
            return  # sizes that an operator was given as a tensor
        while frame is not None:
            path = paths.get(id(frame.f_locals.get("self")))
            if path is not None:
                seen.add(path)
                return
            frame = frame.f_back  # type: ignore[assignment]

    with preserved(model), _watched(note), paddle.no_grad():
        for layer in model.sublayers(include_self=True):
            layer.__dict__["training"] = view.training
        model(*view.fresh())
    return seen


@contextmanager
def _watched(note: Callable[[], None]) -> Iterator[None]:
    """Record when a tensor becomes a Python value, within this context."""
    kind = type(paddle.zeros([1]))
    before = {name: kind.__dict__[name] for name in _CONVERSIONS if name in kind.__dict__}

    def watching(original: Any) -> Callable[..., Any]:
        def convert(*given: Any, **named: Any) -> Any:
            note()
            return original(*given, **named)

        return convert

    try:
        for name, original in before.items():
            setattr(kind, name, watching(original))
        yield
    finally:
        for name, original in before.items():
            setattr(kind, name, original)


_UNTRIED = (
    "The training forward was not tried, because it does not take the inputs that were given: {}. "
    "Give train_inputs before you train the cut model, and it is proven as well."
)


def native_engine(model: paddle.nn.Layer, views: Sequence[View], layers: str = FILTERS) -> Analysis:
    """Find all groups that can be cut, and say why every other filter cannot.

    Args:
        model: The live layer; it is left unchanged.
        views: The ways in which it is run; a group has to survive in all of them.
        layers: "filters" for 4-D weights, "all" for linear layers and convolutions of any rank as well.

    Raises:
        ForwardError: If the model does not run with the given inputs.
    """
    # Whatever a forward writes to, weights included, is the user's.
    at_it = at_work(f"finding the groups of {type(model).__name__}")
    with at_it, preserved(model, weights_too=True), eagerly(model, views) as eager_views:
        found = _analyse(model, eager_views, layers)
    give_memory_back()
    return found


def _analyse(model: paddle.nn.Layer, views: Sequence[View], layers: str) -> Analysis:
    forwards = Forwards(model)
    ran = [_called(forwards, view) for view in views]
    small = _smaller(forwards, views)
    base = (small or views)[0]
    implied: list[View] = []
    heads: list[View] = []
    untried = ""
    if not views[-1].training:
        training = replace(base, training=True, implied=True)
        try:
            # Auxiliary heads that only run in training take in channels too.
            in_training = forwards.called(training)
            heads = [training] if in_training - ran[0] else []
            ran.append(in_training)
            implied = [training]
        except ForwardError as error:
            untried = _UNTRIED.format(error)
    found, probed = _analyse_at(model, [*(small or views), *heads], layers)
    others = forwards.others(base)
    ran.append(probed)
    ran += [forwards.called(view) for view in others] if set(found.roles) - set().union(*ran) else []
    found = without_blind_choices(model, base, found, set().union(*ran))
    proof = Proof(model, *_proven_at(forwards, views, ran), others, implied)
    failure = proof.failure(found, found.groups)
    if failure is not None and proof.large:
        logger.info("with smaller pictures %s; proving at the given size", failure)
        proof = Proof(model, views, (), others, implied)
        failure = proof.failure(found, found.groups)
    if failure is not None and small is not None:
        logger.info("At the given input size %s; probing again at that size", failure)
        found, probed = _analyse_at(model, [*views, *heads], layers)
        ran.append(probed)
        found = without_blind_choices(model, base, found, set().union(*ran))
        failure = proof.failure(found, found.groups)
    return replace(found if failure is None else proof.provable(found), untried=untried)


def _called(forwards: Forwards, view: View) -> set[str]:
    """The layers that run with the inputs that were given; an error says which inputs these were."""
    try:
        return forwards.called(view)
    except ForwardError as error:
        given = [list(leaf.shape) for leaf in leaves(view.arguments) if isinstance(leaf, paddle.Tensor)]
        shapes = " and ".join(map(str, given)) or "no tensors"
        option = flag("train_inputs" if view.training else "input_shape")
        sentence = str(error).rstrip(". ")
        raise ForwardError(
            f"{sentence}. Its inputs were {shapes}; if the network takes others, change {option}."
        ) from error


def _smaller(forwards: Forwards, views: Sequence[View], least: int = 64) -> list[View] | None:
    """All views with smaller pictures, if the model takes them: structure does not depend on size, time does."""
    for smaller in zip(*(view.smaller(least) for view in views)):
        if all(map(forwards.runs, smaller)):
            return list(smaller)
    return None


def _proven_at(
    forwards: Forwards, views: Sequence[View], ran: Sequence[set[str]]
) -> tuple[Sequence[View], Sequence[View]]:
    """The views that every cut is proven in, and those that one cut is proven in.

    A large picture takes minutes where a small one takes seconds. Where both run the same layers, the small one proves the
    channels; that the given size of the forward that is deployed makes no difference is then seen on one cut.
    """
    # Larger than for a probe: batch norms over the few places of a tiny map blow up what is only rounding.
    small = _smaller(forwards, views, _PROOF_SIDE)
    if small is None:
        return views, ()
    pairs = [
        (view, each if forwards.called(each) == layers else view)
        for view, each, layers in zip(views, small, ran)
    ]
    return [each for _, each in pairs], [
        view for view, each in pairs if each is not view and not view.training
    ]


def _analyse_at(model: paddle.nn.Layer, views: Sequence[View], layers: str) -> tuple[Analysis, set[str]]:
    """What can be cut, not yet proven; and the layers that ran in some probe."""
    with preserved(model):
        graph = channel_graph(model, views, layers)
        tensors = tensors_by_path(model)
        suggested = candidates(graph, tensors)
        groups, reasons = GroupResolver(model, graph, tensors).settle(suggested.groups, suggested.doubts)
    analysis = Analysis(groups, _of_others({**suggested.reasons, **reasons}, groups, tensors), graph.roles)
    return analysis, graph.called


def _of_others(
    reasons: Mapping[str, str], groups: Sequence[ChannelGroup], tensors: Mapping[str, paddle.Tensor]
) -> dict[str, str]:
    """The reasons of 4-D weights that are in no group, in model order."""
    cut = {path for group in groups for path in group.filters}
    return {path: reasons[path] for path in tensors if path in reasons and path not in cut}
