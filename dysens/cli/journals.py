"""Files of sensitivities, as commands speak of them and write them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysens.errors import DysensError

if TYPE_CHECKING:
    from dysens.results.points import Header
    from dysens.results.sensitivities import Sensitivities


def kept(path: Path) -> str:
    """In words, what an interrupted command leaves in its journal."""
    from dysens.results.sensitivities import Sensitivities

    beside = Path(f"{path}.jsonl")  # where a sweep goes on that was given a PaddleSlim file
    place = beside if beside.is_file() else path
    if not (place.is_file() and holds_sensitivities(place)):
        return "nothing was measured yet"
    sens = Sensitivities.load(place)
    points = len(sens.points) + len(sens.partial_points)
    return f"{_counted(points, 'point')} {'is' if points == 1 else 'are'} safe in {place}"


def written(path: Path, sens: Sensitivities) -> tuple[str, dict[str, Any]]:
    """What a file that was written holds: in words, and as data."""
    data = {"file": str(path), "points": len(sens.points), "groups": len(sens)}
    return f"{_counted(len(sens.points), 'point')} of {_counted(len(sens), 'group')} are in {path}", data


def holds_sensitivities(path: Path) -> bool:
    """Whether a file is of a kind that `Sensitivities.load` reads."""
    from dysens.results.sensitivities import Sensitivities

    try:
        Sensitivities.load(path)
    except DysensError:
        return False
    return True


def header_in(path: Path) -> Header | None:
    """What a journal says it was measured on; None for any other file."""
    from dysens.results.loading import header_of

    return header_of(path) if holds_sensitivities(path) else None


def described(path: Path, sens: Sensitivities) -> str:
    """What was measured, in a line or three."""
    from dysens.results.loading import header_of

    baseline = "unknown" if sens.baseline is None else f"{sens.baseline:.6g}"
    header = header_of(path)
    lines = [f"{_counted(len(sens.points), 'point')} of {_counted(len(sens), 'group')}, baseline {baseline}"]
    if header is not None:
        better = "" if header.higher_is_better else ", lower is better"
        lines.insert(0, f"{header.model}, criterion {header.criterion}, scored by {header.evaluator}{better}")
    if sens.costs is not None:
        lines.append(f"{sens.costs.whole_flops:,.0f} FLOPs, {sens.costs.whole_params:,} parameters")
    if sens.partial_points:
        lines.append(
            f"{_counted(len(sens.partial_points), 'point')} of a search saw part of the data only: not shown"
        )
    return "\n".join(lines)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
