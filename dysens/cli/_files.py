"""``dysens show``, ``merge`` and ``convert``: files of sensitivities, and their descriptions in messages."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysens.cli._options import LOSSES, Command, add_json, add_rule, add_sensitivities
from dysens.cli._terminal import CommandParser, Output, number, one_of
from dysens.errors import DysensError, JournalError

if TYPE_CHECKING:
    from dysens.results import Sensitivities

ORDERS = ("model", "loss")
SIDES = ("first", "last")


def kept_in(path: Path) -> str:
    """Describe what an interrupted command leaves in its journal."""
    from dysens.results import Sensitivities

    place = journal_of(path)
    if not (place.is_file() and holds_sensitivities(place)):
        return "nothing was measured yet"
    sens = Sensitivities.load(place)
    points = len(sens.points) + len(sens.partial_points)
    return f"{_counted(points, 'point')} {'is' if points == 1 else 'are'} safe in {place}"


def journal_of(path: Path) -> Path:
    """The journal of a sweep into this file: beside it, if the sweep went on from a PaddleSlim file."""
    beside = Path(f"{path}.jsonl")
    return beside if beside.is_file() else path


def require_written(measured: int, path: Path) -> None:
    """Say at the end of a sweep if its file lacks points, as the disk became full.

    Args:
        measured: How many points there are.
        path: The file that was to hold them.

    Raises:
        JournalError: It holds fewer.
    """
    from dysens.results import Sensitivities

    place = journal_of(path)
    written = len(Sensitivities.load(place).points)
    if written < measured:
        raise JournalError(
            f"{place} holds {written} of {measured} points: it could not be written any more. A warning above says where the "
            f"others are; `dysens merge {place} THAT_FILE -o FILE` joins them. Or make room, and the same command measures "
            "what is missing."
        )


def holds_sensitivities(path: Path) -> bool:
    """Whether a file is of a kind that `Sensitivities.load` reads."""
    from dysens.results import Sensitivities

    try:
        Sensitivities.load(path)
    except DysensError:
        return False
    return True


def _add_show(parser: CommandParser) -> None:
    add_sensitivities(parser)
    parser.option("loss", type=number, metavar="L", help="add the ratio that this loss allows each group")
    add_rule(parser)
    parser.option(
        "sort",
        type=one_of(ORDERS),
        default="model",
        metavar="BY",
        help="model: as in the model; loss: most sensitive first",
    )
    add_json(parser)


def _show(options: Namespace, out: Output) -> None:
    from dysens.cli._tables import summary_of, table_of
    from dysens.results import Sensitivities

    sens = Sensitivities.load(options.sensitivities)
    monotone = not options.paddleslim_rule
    text = table_of(sens, out.width, options.loss, options.sort == "loss", monotone)
    summary = summary_of(sens, options.loss, monotone)
    out.result(f"{_described(options.sensitivities, sens)}\n\n{text}", summary)


def _described(path: Path, sens: Sensitivities) -> str:
    """What was measured, in a line or three."""
    from dysens.results import header_of

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


def _add_writing(parser: CommandParser) -> None:
    """For commands that write a file of sensitivities."""
    parser.option(
        "output",
        type=Path,
        required=True,
        metavar="FILE",
        help=".jsonl (journal), .json, .csv, or .pickle (PaddleSlim)",
    )
    parser.option("overwrite", action="store_true", help="replace a file that is there")


def _add_merge(parser: CommandParser) -> None:
    parser.add_argument("parts", metavar="SENS", nargs="+", type=Path, help="files of one network")
    _add_writing(parser)
    parser.option(
        "prefer", type=one_of(SIDES), metavar="WHICH", help="first or last: who is right where two differ"
    )
    add_json(parser)


def _merge(options: Namespace, out: Output) -> None:
    from dysens.results import Sensitivities, common_header, write_as

    header = common_header(options.parts, options.prefer)
    sens = Sensitivities.merge(options.parts, options.prefer)
    write_as(options.output, sens, header, options.overwrite)
    out.result(*_written(options.output, sens))


def _add_convert(parser: CommandParser) -> None:
    add_sensitivities(parser)
    _add_writing(parser)
    parser.option("static", action="store_true", help="a pickle of PaddleSlim's static sweep, a plain dict")
    add_json(parser)


def _convert(options: Namespace, out: Output) -> None:
    from dysens.results import Sensitivities, header_of, write_as

    sens = Sensitivities.load(options.sensitivities)
    write_as(options.output, sens, header_of(options.sensitivities), options.overwrite, options.static)
    out.result(*_written(options.output, sens))


def _written(path: Path, sens: Sensitivities) -> tuple[str, dict[str, Any]]:
    """The content of a written file, as text and as data."""
    data = {"file": str(path), "points": len(sens.points), "groups": len(sens)}
    return f"{_counted(len(sens.points), 'point')} of {_counted(len(sens), 'group')} are in {path}", data


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


SHOW = Command(
    "show",
    "show a file of sensitivities as a table",
    "SENS [options]",
    "dysens show sens.jsonl --loss 0.05\ndysens show sens.jsonl --sort loss | head",
    _add_show,
    _show,
    columns=LOSSES,
)
MERGE = Command(
    "merge",
    "merge files of sensitivities of one network",
    "SENS [SENS ...] -o FILE [options]",
    "dysens merge monday.jsonl tuesday.jsonl -o sens.jsonl",
    _add_merge,
    _merge,
)
CONVERT = Command(
    "convert",
    "convert to or from PaddleSlim pickles, JSON, CSV, journals",
    "SENS -o FILE [options]",
    "dysens convert sen.pickle -o sens.jsonl\ndysens convert sens.jsonl -o sen.pickle",
    _add_convert,
    _convert,
)
