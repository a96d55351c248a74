"""A group in words: what moves together, and why."""

from __future__ import annotations

from collections.abc import Iterable

from dysens.groups.candidates import FREE
from dysens.groups.group import ChannelGroup


def explain_group(group: ChannelGroup, asked: str) -> str:
    """Say which layers a group ties together, and what each of them has to do with it.

    Args:
        group: The group.
        asked: The weight that was asked for, by path.
    """
    makers = _layers(group, "out")
    lines = [f"{asked} can be pruned: {group.channels} channels, group {group.name} ({group.path})."]
    if len(makers) > 1:
        lines.append(
            f"{_listed(makers)} make the same channels: their outputs are added, multiplied or otherwise "
            "joined channel by channel, so they lose the same ones."
        )
    else:
        lines.append(
            f"{_listed(makers)} makes the channels." if makers else "A bare parameter makes the channels."
        )
    for side, words in (
        ("through", "The channels pass through {}, which have weights along them."),
        ("own", "The bare parameters {} run along the channels."),
        ("in", "The channels end in {}: what these take in shrinks, what they make does not."),
    ):
        layers = _layers(group, side)
        if layers:
            lines.append(words.format(_listed(layers)))
    if group.rule != FREE:
        lines.append(
            f"They cannot go one by one: something on the way (a split, a shuffle, a grouped convolution) needs balance. "
            f"What can go: {group.rule}; that makes {group.size} units."
        )
    lines.append("Masking and cutting were compared on this model, and gave the same outputs.")
    return "\n".join(lines)


def _layers(group: ChannelGroup, side: str) -> list[str]:
    return list(dict.fromkeys(port.layer for port in group.units if port.side == side))


def _listed(names: Iterable[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    if len(quoted) > 8:
        quoted = [*quoted[:7], f"{len(quoted) - 7} more"]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
