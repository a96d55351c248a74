"""Several files of sensitivities in one page: other criteria, other weights, other models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from dysens.atomic import write_whole
from dysens.display import short_names
from dysens.errors import InputError, UnreachableError
from dysens.ratios import predicted_loss, ratios_by_flops, scatter
from dysens.report._card_words import in_both
from dysens.report._page import PathLike, about, filled, template
from dysens.report._plot_data import layer_label
from dysens.results import Sensitivities

BUDGETS = tuple(percent / 100 for percent in range(10, 100, 10))
"""Shares of the FLOPs at which predicted losses are compared."""

SHARE = 0.5  # of a layer's channels, at which the table compares losses
MOST = 6  # files: so many lines can be told apart by colour and dashes
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 2")
_WIDE, _HIGH = 860, 280


@dataclass(frozen=True)
class Run:
    """One of the files.

    Attributes:
        label: What to call it: as much of its path as tells it apart.
        sens: What was measured.
        about: See `about`.
        budgets: Share of the FLOPs removed and predicted loss; empty if the costs are not known.
    """

    label: str
    sens: Sensitivities
    about: dict[str, str]
    budgets: tuple[tuple[float, float], ...]


def write_comparison(sources: Sequence[PathLike], path: PathLike) -> Path:
    """Write two to six files of sensitivities as one self-contained HTML page.

    Args:
        sources: The files, see `Sensitivities.load`.
        path: The file to write.

    Returns:
        The file.

    Raises:
        InputError: There are fewer than two files or more than six, or one of them holds no points.
    """
    if not 2 <= len(sources) <= MOST:
        raise InputError(f"A comparison takes 2 to {MOST} files of sensitivities, not {len(sources)}.")
    page = comparison_page([_run(label, source) for label, source in zip(_labels(sources), sources)])
    place = Path(path)
    write_whole(place, page.encode("utf-8", "replace"))
    return place


def comparison_page(runs: Sequence[Run]) -> str:
    """The page, with a line for every run in each picture."""
    heading = in_both("Sensitivities compared", "敏感度对比")
    remarks = "".join(f'<p class="muted">{remark}</p>' for remark in _remarks(runs))
    parts = {
        "title": escape(f"{', '.join(run.label for run in runs)} · dysens"),
        "style": template("report.css") + template("card.css") + template("compare.css"),
        "heading": f"<h1>{heading}</h1>{remarks}",
        "runs": _section("runs", in_both("What is compared", "对比对象"), _runs(runs)),
        "budgets": _budgets(runs),
        "layers": _layers(runs),
        "table": _table(runs),
        "script": template("card.js"),
    }
    return filled("compare.html", parts)


def _run(label: str, source: PathLike) -> Run:
    sens = Sensitivities.load(source)
    if not sens:
        raise InputError(f"{source} holds no points on all data, so there is nothing to compare.")
    return Run(label, sens, about(sens), tuple(_budget_points(sens)))


def _budget_points(sens: Sensitivities) -> list[tuple[float, float]]:
    costs = sens.costs
    if costs is None:
        return []
    known = costs.renamed({path: name for name, path in sens.paths.items()})
    if any(name not in known for name in sens):
        return []
    points = [(0.0, 0.0)]
    for target in BUDGETS:
        try:
            ratios = ratios_by_flops(sens, known, target)
        except UnreachableError:  # and so are all that come after
            break
        loss = math.fsum(predicted_loss(sens[name], ratio) for name, ratio in ratios.items())
        points.append((target, loss))
    return points


def _labels(sources: Sequence[PathLike]) -> list[str]:
    """The names of the files, with as many of their folders as it takes to tell them apart."""
    parts = [Path(source).absolute().parts for source in sources]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{Path(source).name} ({number})" for number, source in enumerate(sources, 1)]  # one file twice


def _remarks(runs: Sequence[Run]) -> list[str]:
    """What to mind when the figures are read beside each other."""
    found = []
    if len({run.about.get("metric") for run in runs}) > 1:
        found.append(
            in_both(
                "The files were scored by different metrics; losses are relative to each file's own baseline.",
                "各文件的评分指标不同；损失均相对各自的基线。",
            )
        )
    if len({frozenset(run.sens.paths.values()) for run in runs}) > 1:
        found.append(
            in_both(
                "The files do not have the same layers: an empty place was not measured in that file.",
                "各文件的层不完全相同：空缺表示该文件未测量。",
            )
        )
    return found


def _key(place: int) -> str:
    style = "dashed" if _DASHES[place] else "solid"
    return (
        f'<span class="key" style="border-top-style: {style}; border-top-color: var(--line-{place})"></span>'
    )


def _runs(runs: Sequence[Run]) -> str:
    heads = [
        in_both("file", "文件"),
        in_both("model", "模型"),
        in_both("metric and data", "指标与数据"),
        in_both("criterion", "准则"),
        in_both("baseline", "基线"),
        in_both("groups", "通道组"),
        in_both("points", "测点"),
        in_both("scatter of a point", "单点离散"),
        in_both("file written", "写入时间"),
    ]
    rows = []
    for place, run in enumerate(runs):
        words = [run.about.get(key, "–") for key in ("model", "metric", "criterion")]
        spread = scatter(run.sens.values())
        baseline = run.sens.baseline
        numbers = [
            "–" if baseline is None else f"{baseline:.4g}",
            str(len(run.sens)),
            str(len(run.sens.points)),
            "–" if spread is None else f"± {spread:.4f}",
            run.about.get("date", "–"),
        ]
        kinds = ["text"] * len(words) + ["number"] * len(numbers)
        cells = "".join(
            f'<td class="{kind}"><small class="head">{head}</small>{escape(cell)}</td>'
            for kind, head, cell in zip(kinds, heads[1:], [*words, *numbers])
        )
        rows.append(f'<tr><th scope="row">{_key(place)}{escape(run.label)}</th>{cells}</tr>')
    note = in_both(
        "Baseline: the score of the whole network. A loss is the share of it that is lost. Scatter: the standard deviation of "
        "one point's loss from noise in the metric, as far as curves fall that should rise.",
        "基线：完整网络的得分，损失是其中失去的比例。单点离散：由指标噪声带来的单个测点损失的标准差，按曲线中本应上升却下降的部分估计。",
    )
    versions = sorted({run.about["versions"] for run in runs})
    table = _table_html(heads, rows, texts=4, stacked=True)
    return f'{table}<p class="muted">{note}</p><p class="muted">{escape("; ".join(versions))}</p>'


def _budgets(runs: Sequence[Run]) -> str:
    if not any(len(run.budgets) > 1 for run in runs):
        return ""
    note = in_both(
        "Predicted loss (sum over layers, before fine-tuning) when this share of the FLOPs is removed where it "
        "costs least. A line ends where the measured ratios can remove no more, or at a loss of 1.",
        "以最小代价减少相应比例的 FLOPs 时的预测损失（各层之和，微调之前）。曲线止于已测剪枝率的极限或损失为 1 处。",
    )
    lines = [[(x, y) for x, y in run.budgets if y <= 1] for run in runs]
    top = max((y for line in lines for _, y in line), default=0.0) or 1.0
    picture = _chart(lines, _round_top(top), _WIDE, _HIGH, "FLOPs")
    heads = [in_both("FLOPs removed", "减少的 FLOPs"), *(escape(run.label) for run in runs)]
    rows = []
    for target in BUDGETS:
        losses = [dict(run.budgets).get(target) for run in runs]
        if any(loss is not None for loss in losses):
            rows.append(_row(f"{target:.0%}", losses))
    return _section(
        "budgets",
        in_both("What a share of the FLOPs costs", "减少 FLOPs 的代价"),
        f'<p class="muted">{note}</p>{picture}{_table_html(heads, rows)}',
    )


def _layers(runs: Sequence[Run]) -> str:
    paths = _paths(runs)
    labels = [layer_label(path) for path in paths]
    curves = [[_curve(run, path) for run in runs] for path in paths]
    losses = [loss for lines in curves for line in lines for _, loss in line]
    top = min(max(losses, default=0.0), 1.0) or 1.0
    shown = []
    for label, short, lines in zip(labels, short_names(labels, 30), curves):
        clipped = [[(x, min(y, top)) for x, y in line] for line in lines]
        picture = _chart(clipped, top, 200, 110)
        shown.append(
            f'<figure><figcaption title="{escape(label)}">{escape(short)}</figcaption>{picture}</figure>'
        )
    note = in_both(
        f"Every panel: share of channels removed from 0 to 1, loss from 0 to {top:.2g}.",
        f"每个小图：横轴为剪掉的通道比例 0 到 1，纵轴为损失 0 到 {top:.2g}。",
    )
    head = in_both("Layer by layer", "逐层对比")
    return _section("layers", head, f'<p class="muted">{note}</p><div class="panels">{"".join(shown)}</div>')


def _table(runs: Sequence[Run]) -> str:
    rows = []
    for path in _paths(runs):
        losses = [_loss_at(run, path, SHARE) for run in runs]
        rows.append(_row(layer_label(path), losses))
    heads = [in_both("layer", "层"), *(escape(run.label) for run in runs)]
    title = in_both(
        f"Predicted loss with {SHARE:.0%} of a layer's channels removed",
        f"剪掉一层 {SHARE:.0%} 通道时的预测损失",
    )
    note = in_both(
        "The largest loss up to that share: a better point further on counts as chance. So it may be more than what the panel "
        "shows there.",
        "取到该比例为止的最大损失：之后偶然的好点不算，因此可能大于小图中该处的测点。",
    )
    return _section("losses", title, f'<p class="muted">{note}</p>{_table_html(heads, rows)}')


def _paths(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.sens.paths.get(name, name) for run in runs for name in run.sens))


def _curve(run: Run, path: str) -> list[tuple[float, float]]:
    name = _name(run, path)
    if name is None:
        return []
    return [(0.0, 0.0), *((ratio, loss) for ratio, loss in run.sens[name].items() if math.isfinite(loss))]


def _loss_at(run: Run, path: str, ratio: float) -> float | None:
    name = _name(run, path)
    loss = math.inf if name is None else predicted_loss(run.sens[name], ratio)
    return loss if math.isfinite(loss) else None


def _name(run: Run, path: str) -> str | None:
    return next((name for name in run.sens if run.sens.paths.get(name, name) == path), None)


def _round_top(top: float) -> float:
    """The end of an axis of five steps that reaches ``top``, so that the steps are round numbers.

    Example:
        >>> _round_top(0.1446), _round_top(0.7)
        (0.15, 0.75)
    """
    size = 10.0 ** math.floor(math.log10(top / 5))
    step = next(each for each in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if each * size >= top / 5 * (1 - 1e-9))
    return round(5 * step * size, 12)


def _chart(
    lines: Sequence[Sequence[tuple[float, float]]],
    top: float,
    wide: float,
    high: float,
    axis: str = "",
) -> str:
    """A line for each run: x from 0 to 1, y from 0 to ``top``."""

    left, right, upper, lower = (64, wide - 30, 14, high - 34) if axis else (4, wide - 4, 4, high - 4)

    def at(x: float, y: float) -> tuple[float, float]:
        return round(left + x * (right - left), 1), round(lower - max(y, 0.0) / top * (lower - upper), 1)

    drawn = []
    for step in range(6 if axis else 0):
        x, y = at(step / 5, 0)[0], at(0, top * step / 5)[1]
        drawn.append(f'<line x1="{x}" x2="{x}" y1="{upper}" y2="{lower}"/>')
        drawn.append(f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
        drawn.append(f'<text x="{x}" y="{lower + 24}" text-anchor="middle">{step * 20}%</text>')
        drawn.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{top * step / 5:.2g}</text>')
    for place, line in enumerate(lines):
        points = [at(x, y) for x, y in line]
        color, dashes = f"var(--line-{place})", _DASHES[place]
        path = " ".join(f"{x},{y}" for x, y in points)
        drawn.append(f'<polyline points="{path}" style="stroke: {color}" stroke-dasharray="{dashes}"/>')
        if axis:
            drawn += [f'<circle cx="{x}" cy="{y}" r="3.5" style="fill: {color}"/>' for x, y in points[1:]]
    return f'<svg class="curves" role="img" aria-label="{axis or "loss"}" viewBox="0 0 {wide} {high}">{"".join(drawn)}</svg>'


def _row(label: str, losses: Sequence[float | None]) -> str:
    cells = "".join(f'<td class="number">{"–" if loss is None else f"{loss:.4f}"}</td>' for loss in losses)
    return f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>'


def _table_html(heads: Sequence[str], rows: Sequence[str], texts: int = 1, stacked: bool = False) -> str:
    """A table whose first columns are texts, and the others numbers; on a phone, cells below each other if ``stacked``."""
    kinds = ["text"] * texts + ["number"] * (len(heads) - texts)
    head = "".join(f'<th scope="col" class="{kind}">{each}</th>' for kind, each in zip(kinds, heads))
    return (
        f'<div class="scroll"><table class="states plain{" stacked" * stacked}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _section(key: str, title: str, content: str) -> str:
    return f'<section class="card" id="{key}"><h2>{title}</h2>{content}</section>'
