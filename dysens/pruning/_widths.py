"""Widths that blocks remember: attributes such as ``in_channels`` of layers that only contain others.

A block that fuses its branches later (RepVGG, PP-LCNetV3), or reshapes by its own idea of a width, must learn the new one.
Where all layers inside a block that had the remembered width agree on what it is now, the attribute follows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from paddle import nn

from dysens.groups import Role

Widths = Mapping[str, tuple[int, int]]  # layer path: width before, width after

_ENTRY_NAMES = {
    "in_channels",
    "_in_channels",
    "ch_in",
    "in_ch",
    "inplanes",
    "input_channels",
    "num_in_channels",
}
_EXIT_NAMES = {
    "out_channels",
    "_out_channels",
    "ch_out",
    "out_ch",
    "planes",
    "output_channels",
    "num_out_channels",
}
_GROUP_NAMES = {"groups", "_groups", "num_groups"}

# Beside their weights, Paddle's own layers keep these.
_LAYER_NAMES = {"_num_features", "_num_parameters", "input_size", "hidden_size", "_embedding_dim"}

WIDTH_ATTRIBUTES = frozenset(_ENTRY_NAMES | _EXIT_NAMES | _GROUP_NAMES | _LAYER_NAMES)
"""All that a plan may set."""


def block_attributes(
    model: nn.Layer, roles: Mapping[str, Role], entries: Widths, exits: Widths, groups: Widths
) -> dict[str, dict[str, int]]:
    """New values of the width attributes of blocks, by block path.

    Args:
        model: The live layer.
        roles: Its layers with weights; they know their widths themselves.
        entries: The entry widths that change, by layer path.
        exits: The same for exits.
        groups: The same for numbers of convolution groups.
    """
    changed: dict[str, dict[str, int]] = {}
    around = {parent for layer in {*entries, *exits} for parent in _parents(layer)}
    for path, block in model.named_sublayers(include_self=True):
        if path not in around or path in roles:
            continue
        for names, widths, all_widths in (
            (_ENTRY_NAMES, entries, _entry_widths),
            (_EXIT_NAMES, exits, _exit_widths),
            (_GROUP_NAMES, groups, _conv_groups),
        ):
            for name in names & block.__dict__.keys():
                now = _agreed(block.__dict__[name], all_widths(roles, path), widths)
                if now is not None:
                    changed.setdefault(path, {})[name] = now
    return changed


def _parents(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition(".")[0]
        yield path


def _agreed(remembered: object, before: Mapping[str, int], changes: Widths) -> int | None:
    """The one width that all layers of the remembered width have now, if it is another."""
    if isinstance(remembered, bool) or not isinstance(remembered, int):
        return None
    now = {
        changes[path][1] if path in changes else width
        for path, width in before.items()
        if width == remembered
    }
    return now.pop() if len(now) == 1 and now != {remembered} else None


def _inside(roles: Mapping[str, Role], block: str) -> Iterable[Role]:
    """The layers that make or take in channels; norms follow them, and count only where there is nothing else."""
    found = [role for path, role in roles.items() if not block or path.startswith(f"{block}.")]
    return [role for role in found if not role.is_norm] or found


def _entry_widths(roles: Mapping[str, Role], block: str) -> dict[str, int]:
    return {role.path: role.inputs.size for role in _inside(roles, block) if role.inputs is not None}


def _exit_widths(roles: Mapping[str, Role], block: str) -> dict[str, int]:
    return {role.path: role.outputs.size for role in _inside(roles, block) if role.outputs is not None}


def _conv_groups(roles: Mapping[str, Role], block: str) -> dict[str, int]:
    found = {role.path: getattr(role.layer, "_groups", 1) for role in _inside(roles, block)}
    return {path: number for path, number in found.items() if number > 1}
