"""A static Program as what the rest works on: a live layer, its groups by the program's parameters, and a cut of the program."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle

from dysens.engines import Analysis, engine_for
from dysens.errors import InputError, nearest
from dysens.groups import ChannelGroup, merge_removals
from dysens.model import tensors_by_path, view_of
from dysens.programs._layer import ProgramLayer
from dysens.programs._load import in_dynamic_mode
from dysens.programs._static_forward import Array, forward_layer, is_old, scope_array
from dysens.programs._static_old import cut_old_program, old_followers, old_shapes
from dysens.programs._static_pir import cut_pir_program, pir_followers, pir_shapes
from dysens.programs._static_plan import ProgramPlan, Shape, program_plan, write_scope
from dysens.pruning import PrunePlan, plan_for

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProgramCut:
    """What a prune removes: for the program, and for the live layer that it was found on."""

    program: ProgramPlan
    live: PrunePlan


def program_shapes(program: Any) -> dict[str, Shape]:
    """The shapes that a program states, by name: at least those of all its parameters."""
    return old_shapes(program) if is_old(program) else pir_shapes(program)


def check_parameters(program: Any, names: Iterable[str]) -> None:
    """Refuse names that a program does not have.

    Raises:
        InputError: One of them, and what it may have been meant for.
    """
    known = list(program_shapes(program))
    if is_old(program):  # which states the shapes of everything that it computes
        known = [name for name in known if program.global_block().var(name).persistable]
    for name in names:
        if name not in known:
            raise InputError(f'"{name}" names no parameter of the program{nearest(str(name), known) or "."}')


def prunable_filters(program: Any) -> list[str]:
    """The filters of all convolutions that have no groups, in the program's order: what PaddleSlim analyses."""
    names = []
    if is_old(program):
        block = program.global_block()
        for op in block.ops:
            if op.type == "conv2d" and op.attr("groups") == 1:
                names += [name for name in op.input("Filter") if block.var(name).persistable]
    else:
        for op in program.global_block().ops:
            if op.name() == "pd_op.conv2d" and op.attrs()["groups"] == 1:
                maker = op.operand_source(op.get_input_names().index("filter")).get_defining_op()
                names += [maker.attrs()["parameter_name"]] if maker.name() == "builtin.parameter" else []
    return list(dict.fromkeys(names))


class StaticNetwork:
    """The forward of a program, its channel groups proven on the weights of a scope.

    Args:
        program: For training, testing or inference.
        scope: Where its weights are.
        fetched: Further outputs, before the program's own.
        example: Inputs to analyse with, by the name of the feed; those that the program asks for are drawn if there are none.

    Attributes:
        model: The live layer.
        analysis: Its groups, and the reasons for the rest.
    """

    def __init__(
        self,
        program: Any,
        scope: Any,
        fetched: Sequence[Any] = (),
        example: Mapping[str, Array] | None = None,
    ) -> None:
        self.program, self.scope = program, scope
        self.model: ProgramLayer = forward_layer(program, scope, fetched)
        drawn = self.model.example_inputs()
        given = example or {}
        arrays = [given.get(feed.name, array) for feed, array in zip(self.model.feeds, drawn)]
        with in_dynamic_mode():
            self.view = view_of(tuple(paddle.to_tensor(array) for array in arrays))
            self.analysis: Analysis = engine_for("auto")(self.model, [self.view])
        tensors = tensors_by_path(self.model)
        self._paths = {tensor.name: path for path, tensor in tensors.items()}

    def group_of(self, name: str) -> ChannelGroup | None:
        """The group that a weight's filters belong to, ranked by this weight and called by its name; None if they stay."""
        path = self._paths.get(name, "")
        for group in self.analysis.groups:
            scored = [each for each in group.scored if each[1].tensor == path]
            if scored:
                others = [each for each in group.scored if each not in scored]
                return replace(
                    group, name=name, path=path, channels=scored[0][0].size, scored=(*scored, *others)
                )
        return None

    def reason(self, name: str) -> str:
        """Why the filters of a weight stay."""
        path = self._paths.get(name, "")
        return self.analysis.reasons.get(
            path, "it is not a filter of a convolution whose channels are the network's own"
        )

    def scales(self) -> dict[str, str]:
        """The path of the scale of the batch norm right behind a convolution, by the path of the convolution's weight."""
        graph = self.model._graph
        readers, found = graph.readers(), {}
        for op in graph.ops:
            key = op.input("filter")
            out = op.output("out", "output")
            norms = [reader for reader in readers.get(out or "", ()) if reader.name == "batch_norm"]
            scale = norms[0].input("scale") if norms else None
            if key in graph.parameters and scale in graph.parameters:
                found[self._paths[graph.parameters[key]]] = self._paths[graph.parameters[scale]]
        return found

    def chosen(self, ratios: Mapping[str, float]) -> list[tuple[ChannelGroup, float]]:
        """The groups that are meant by ratios of weights; of several weights of one group the first decides."""
        found: list[tuple[ChannelGroup, float]] = []
        taken: dict[int, str] = {}
        for name, ratio in ratios.items():
            group = self.group_of(name)
            if group is None:
                logger.warning('"%s" stays whole: %s.', name, self.reason(name))
                continue
            key = id(
                next(iter(group.units.values()))
            )  # groups that differ in their ranking share their units
            if key in taken:
                logger.info('"%s" is cut along with "%s", which comes first.', name, taken[key])
                continue
            taken[key] = name
            found.append((group, ratio))
        return found

    def cut_for(self, units: Iterable[tuple[ChannelGroup, np.ndarray]]) -> ProgramCut:
        """What goes from the program when these units of groups go."""
        removal = merge_removals(group.removal(gone) for group, gone in units)
        live = plan_for(self.analysis.roles, removal, self.model)
        return ProgramCut(program_plan(self.model, live, program_shapes(self.program)), live)


@dataclass(frozen=True)
class Pruned:
    """What a prune gives.

    Attributes:
        program: At the new widths.
        values: What the scope held before, by name.
        shapes: What the program said before, by name.
    """

    program: Any
    values: dict[str, Array]
    shapes: dict[str, Shape]


def apply_cut(
    program: Any,
    scope: Any,
    cut: ProgramCut,
    model: ProgramLayer | None = None,
    place: Any = None,
    lazy: bool = False,
    only_graph: bool = False,
) -> Pruned:
    """Prune a program and its scope, both or neither.

    Args:
        program: A program of Paddle 2's kind is copied, one of Paddle 3's is changed itself.
        scope: Where its values are.
        cut: What goes.
        model: The layer that was made of this program; it may be cut.
        place: Where values are put.
        lazy: Zero what would go; shapes stay.
        only_graph: Leave the scope alone.
    """
    plan, old = cut.program, is_old(program)
    if lazy:
        follows = {name: name for name in plan.cuts}
        pruned, shapes = (program.clone() if old else program), {}
    elif old:
        follows = old_followers(program, plan)
        pruned = cut_old_program(program, plan, follows)
        shapes = {name: plan.whole[owner] for name, owner in follows.items() if "@GRAD" not in name}
    else:
        follows = pir_followers(program, plan)
        shapes = {name: plan.whole[owner] for name, owner in follows.items()}
        pruned = program
    if not old and not lazy and model is None:
        model = _blank(program, plan)
    new: dict[str, Array] = {}
    for name, owner in follows.items() if not only_graph else ():
        values = scope_array(scope, name)
        if values is not None and values.shape == plan.whole[owner]:
            new[name] = plan.zeroed(owner, values) if lazy else plan.without(owner, values)
    before = write_scope(scope, new, place)
    if not old and not lazy:
        try:
            cut_pir_program(program, plan, follows, model, cut.live if model is not None else None)
        except BaseException:
            write_scope(scope, before)
            raise
    return Pruned(pruned, before, shapes)


class _AnyValues:
    """Stands for a scope: holds zeros of the shapes that a program states."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes

    def find_var(self, name: str) -> Any:
        tensor = (
            paddle.base.core.DenseTensor()
            if hasattr(paddle.base.core, "DenseTensor")
            else paddle.base.core.LoDTensor()
        )
        tensor.set(np.zeros(self._shapes[name], "float32"), paddle.CPUPlace())
        return _Variable(tensor)


@dataclass(frozen=True)
class _Variable:
    tensor: Any

    def get_tensor(self) -> Any:
        return self.tensor


def _blank(program: Any, plan: ProgramPlan) -> ProgramLayer:
    """The program as a layer whose scope was cut already: only shapes are asked of it."""
    return forward_layer(program, _AnyValues(pir_shapes(program)))
