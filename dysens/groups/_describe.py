"""Groups and reasons for display: tables, names that users give, and a group described in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import pandas as pd

from dysens.display import table_html
from dysens.errors import InputError, nearest
from dysens.flags import flag
from dysens.groups._candidates import FREE
from dysens.groups._group import ChannelGroup, checked_ratio

_NOTHING = "nothing: every 4-D weight is in a group"
# What varies between reasons of the same form: names in quotes, and numbers in messages of Paddle.
_VARYING = re.compile(r"'[^' ]*'|\d+")


class GroupList(list[ChannelGroup]):
    """Groups in parameter order; prints as a table, and shows as one in a notebook."""

    def to_frame(self) -> pd.DataFrame:
        """One row a group."""
        return pd.DataFrame(
            [
                {
                    "param": group.name,
                    "path": group.path,
                    "channels": group.channels,
                    "units": group.size,
                    "layers": len(group.layers),
                    "rule": group.rule,
                }
                for group in self
            ],
            columns=["param", "path", "channels", "units", "layers", "rule"],
        )

    def __str__(self) -> str:
        return self.to_frame().to_string(index=False) if self else "no groups"

    def _repr_html_(self) -> str:
        return table_html(self.to_frame(), [] if self else ["no groups"])


class Unprunable(dict[str, str]):
    """Parameter name to the reason why its filters stay. Prints every reason once, with the parameters that share it."""

    def by_reason(self) -> dict[str, list[str]]:
        """The parameters that share a reason; where reasons differ only in names or numbers, those are left out."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, reason in self.items():
            alike.setdefault(tuple(_VARYING.split(reason)), []).append(name)
        return {_common([self[name] for name in names]): names for names in alike.values()}

    def __str__(self) -> str:
        lines = [f"{', '.join(names)}:\n    {reason}" for reason, names in self.by_reason().items()]
        return "\n".join(lines) or _NOTHING

    def _repr_html_(self) -> str:
        rows = [(", ".join(names), reason) for reason, names in self.by_reason().items()]
        return table_html(pd.DataFrame(rows, columns=["param", "reason"]), [] if self else [_NOTHING])


def _common(reasons: Sequence[str]) -> str:
    """One sentence for reasons of the same form: what differs between them becomes dots."""
    texts = _VARYING.split(reasons[0])
    found = zip(*(_VARYING.findall(reason) for reason in reasons))
    parts = [
        each[0] if len(set(each)) == 1 else "'...'" if each[0].startswith("'") else "..." for each in found
    ]
    return "".join(text + part for text, part in zip(texts, [*parts, ""]))


def matching(patterns: str | Iterable[str] | None, known: Mapping[str, str], what: str) -> set[str]:
    """The layer paths of parameters that names, paths or glob patterns of either stand for.

    Args:
        patterns: What a user wrote.
        known: Parameter name to path.
        what: What the patterns are called, for the message about one that fits nothing.
    """
    found: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else (patterns or ()):
        hits = {path for name, path in known.items() if _fits(pattern, name) or _fits(pattern, path)}
        if not hits:
            hint = (
                nearest(str(pattern), [*known, *known.values()])
                or f"; {flag('ds.groups')} lists what there is."
            )
            raise InputError(f'"{pattern}" in {flag(what)} names no parameter of this model{hint}')
        found |= hits
    return found


class GroupNames:
    """The groups of a model by name: any weight that makes a group's channels stands for it.

    Args:
        groups: The groups.
        known: Parameter name to path, for every 4-D weight.
        unprunable: Parameter name to the reason why it is in no group.
    """

    def __init__(
        self, groups: Sequence[ChannelGroup], known: Mapping[str, str], unprunable: Mapping[str, str]
    ) -> None:
        self._groups = groups
        self._known = known
        self._unprunable = unprunable
        self._names = {piece.tensor: group.name for group in groups for _, piece in group.scored}
        self._names.update({name: self._names[path] for name, path in known.items() if path in self._names})

    def selected(
        self, target_vars: str | Iterable[str] | None, skip_vars: str | Iterable[str] | None
    ) -> list[ChannelGroup]:
        """The groups that are to be swept.

        Args:
            target_vars: Names, paths or patterns of those wanted; None for all.
            skip_vars: Of those to leave out.

        Raises:
            InputError: A name fits nothing, or no group is left.
        """
        skipped = groups_with(self._groups, matching(skip_vars, self._known, "skip_vars"))
        targets = self._groups
        if target_vars is not None:
            targets = groups_with(self._groups, matching(target_vars, self._known, "target_vars"))
        chosen = [group for group in targets if group not in skipped]
        if not chosen:
            raise InputError(
                f"{flag('target_vars')} and {flag('skip_vars')} leave no group to sweep; {flag('ds.groups')} lists what there is."
            )
        return chosen

    def ratios(self, ratios: Mapping[str, float]) -> dict[str, float]:
        """Ratios by group name.

        Args:
            ratios: By parameter name or layer path.

        Raises:
            InputError: A name is of no group, a ratio is none, or two for one group differ.
        """
        chosen: dict[str, float] = {}
        for name, ratio in ratios.items():
            if name not in self._names:
                raise InputError(self._why_not(name))
            group, value = self._names[name], checked_ratio(ratio, name)
            if chosen.setdefault(group, value) != value:
                raise InputError(f'"{name}" is cut together with "{group}", but their ratios differ.')
        return chosen

    def _why_not(self, name: str) -> str:
        by_path = {path: parameter for parameter, path in self._known.items()}
        reason = self._unprunable.get(by_path.get(name, name))
        if reason is not None:
            return f'"{name}" cannot be pruned: {reason}.'
        hint = nearest(str(name), self._names) or f"; {flag('ds.groups')} lists them."
        return f'"{name}" names no group of this model{hint}'


def _fits(pattern: object, name: str) -> bool:
    return isinstance(pattern, str) and (pattern == name or fnmatchcase(name, pattern))


def groups_with(groups: Sequence[ChannelGroup], paths: set[str]) -> list[ChannelGroup]:
    """The groups of which one of these weights loses filters."""
    return [group for group in groups if paths & set(group.filters)]


def skip_reasons(groups: Sequence[ChannelGroup], skipped: set[str]) -> dict[str, str]:
    """Why the filters of these groups stay, by path: they are skipped themselves, or cut together with one that is."""
    reasons = {}
    for group in groups:
        named = next(path for path in group.filters if path in skipped)
        layer = named.rpartition(".")[0]
        for path in group.filters:
            own = path.rpartition(".")[0]
            reasons[path] = (
                f"layer '{own}' is in skip_vars"
                if path in skipped
                else f"it is cut together with layer '{layer}', which is in skip_vars"
            )
    return reasons


def explain_group(group: ChannelGroup, asked: str) -> str:
    """Describe which layers a group ties together, and the role of each.

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
            "They cannot go one by one: something on the way (a split, a shuffle, a grouped convolution, the hidden size of a "
            "recurrent layer) needs balance. "
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
