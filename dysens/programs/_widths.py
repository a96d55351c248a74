"""Numbers in a program that are widths of channels: ``reshape([-1, 2, 58, 28, 28])``, ``x[:, :58]``, ``split([32, 96])``.

In a network's own code such numbers are mostly computed from ``x.shape``; an export has them written down. Where what an
operation reads is narrower than the program says, they follow in proportion. Whether that was right is for the proof to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dysens.errors import InputError


class CannotFollowError(InputError):
    """The numbers have no whole counterpart at this width."""


def changed(whole: Sequence[int], now: Sequence[int]) -> bool:
    """Whether sides that the program states are different now; those that may vary (-1) don't count."""
    return len(whole) == len(now) and any(w > 0 and n > 0 and w != n for w, n in zip(whole, now))


def scaled(number: int, whole: int, now: int) -> int:
    """A bound or section along an axis of ``whole`` channels, when there are ``now``.

    Raises:
        CannotFollowError: It would not be whole.
    """
    if number <= 0 or whole <= 0 or now <= 0 or number > whole:
        return number
    if number * now % whole:
        raise CannotFollowError(
            f"The program takes {number} of {whole} channels, which is not a whole number of {now}."
        )
    return number * now // whole


def expanded(target: Sequence[int], whole: Sequence[int], now: Sequence[int]) -> list[int]:
    """The target of an expansion of something that had the shape ``whole``: sides that are kept follow."""
    result = list(target)
    for behind in range(1, min(len(whole), len(target)) + 1):
        if result[-behind] == whole[-behind] > 1 and now[-behind] > 0:
            result[-behind] = now[-behind]
    return result


def reshaped(target: Sequence[int], whole: Sequence[int], now: Sequence[int]) -> list[int]:
    """The target of a reshape (with -1 for what is not known) of something that had the shape ``whole``.

    Raises:
        CannotFollowError: The channels that are left cannot be laid out so.
    """
    result = [whole[i] if t == 0 and i < len(whole) else t for i, t in enumerate(target)]
    for source, made in _runs(list(whole), result):
        if not changed([whole[i] for i in source], [now[i] for i in source]):
            continue
        wanted = prod(now[i] for i in source)
        for j in sorted(made, key=lambda j: -result[j]):
            others = prod(result[k] for k in made if k != j)
            if wanted % others == 0:
                result[j] = wanted // others
                break
        else:
            raise CannotFollowError(
                f"The program lays channels out as {[result[j] for j in made]}, which {wanted} of them cannot be."
            )
    return [0 if t == 0 else r for t, r in zip(target, result)]


def _runs(whole: list[int], target: list[int]) -> list[tuple[list[int], list[int]]]:
    """Runs of axes with as many entries on both sides, from the left and from the right up to what is unknown."""
    left = _run(whole, target, list(range(len(whole))), list(range(len(target))))
    sources = {i for source, _ in left for i in source}
    made = {j for _, axes in left for j in axes}
    right = _run(
        whole,
        target,
        [i for i in reversed(range(len(whole))) if i not in sources],
        [j for j in reversed(range(len(target))) if j not in made],
    )
    return left + right


def _run(
    whole: list[int], target: list[int], sources: list[int], made: list[int]
) -> list[tuple[list[int], list[int]]]:
    found: list[tuple[list[int], list[int]]] = []
    while sources and made:
        if whole[sources[0]] < 0 and target[made[0]] < 0:
            sources, made = sources[1:], made[1:]
            continue
        pair = _equal_runs(whole, target, sources, made)
        if pair is None:
            break
        found.append(pair)
        sources, made = sources[len(pair[0]) :], made[len(pair[1]) :]
    return found


def _equal_runs(
    whole: list[int], target: list[int], sources: list[int], made: list[int]
) -> tuple[list[int], list[int]] | None:
    """The fewest axes of each side that hold as many entries as those of the other."""
    here, there = 1, 1
    while here <= len(sources) and there <= len(made):
        a, b = sources[:here], made[:there]
        sides = [whole[i] for i in a] + [target[j] for j in b]
        if min(sides) < 0:
            return None
        one, other = prod(whole[i] for i in a), prod(target[j] for j in b)
        if one == other:
            return a, b
        if one < other:
            here += 1
        else:
            there += 1
    return None
