"""Results as tables for a terminal of any width, and as data for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dysens.display import SHORTEST_LABEL, WIDE, loss_text, table_text, taken, wrapped
from dysens.report import layer_label, loss_table

if TYPE_CHECKING:
    from dysens.groups import GroupList, Unprunable
    from dysens.pruning import PruneOutcome
    from dysens.results import Sensitivities
    from dysens.sweep import SearchResult


def table_of(
    sens: Sensitivities,
    width: int | None,
    loss: float | None = None,
    by_loss: bool = False,
    monotone: bool = True,
) -> str:
    """Losses: layers down, ratios across.

    Args:
        sens: What was measured.
        width: Columns of the terminal; None for as many as it takes. Where they are too few, some ratios are left out.
        loss: Show, last, the ratio that this loss allows each layer.
        by_loss: The most sensitive layer first, instead of the model's order.
        monotone: See `Sensitivities.ratios_by_loss`.
    """
    table = loss_table(sens)
    if by_loss:
        table = table.loc[table.mean(axis=1).sort_values(ascending=False).index]
    allowed = _allowed(sens, loss, monotone)
    labels = [str(label) for label in table.index]
    ratios = [float(ratio) for ratio in table.columns]
    last = [] if loss is None else [[f"<= {loss:g}", *(_ratio(allowed.get(label)) for label in labels)]]
    for digits, gap in ((3, 2), (2, 1)):  # the second where a terminal is too narrow for the first
        columns = {r: [f"{r:g}", *(loss_text(value, digits) for value in table[r])] for r in ratios}
        room = (width or WIDE) - max(map(len, ["layer", *labels])) - taken(last, gap)
        if taken(columns.values(), gap) <= room:
            break
    shown = _fitting(columns, (width or WIDE) - SHORTEST_LABEL - taken(last, gap), gap)
    text = table_text(["layer", *labels], [*(columns[r] for r in shown), *last], width, gap)
    if len(shown) < len(ratios):
        text += f"\n({len(shown)} of {len(ratios)} ratios: a wider terminal, or | less -S, shows all)"
    return text


def summary_of(sens: Sensitivities, loss: float | None = None, monotone: bool = True) -> dict[str, Any]:
    """The same as data."""
    chosen = {} if loss is None else sens.ratios_by_loss(loss, monotone)
    groups = []
    for name, curve in sens.items():
        group = {"param": name, "path": sens.paths.get(name), "losses": dict(curve)}
        groups.append(group if loss is None else {**group, "ratio": chosen.get(name, 0.0)})
    return {"baseline": sens.baseline, "higher_is_better": sens.higher_is_better, "groups": groups}


def groups_text(groups: GroupList, unprunable: Unprunable, width: int | None) -> str:
    """What can be pruned, and why the rest cannot."""
    table = _groups_table(groups, width) if groups else "no groups"
    lines = [table, "", "not prunable:"]
    if not unprunable:
        lines.append(str(unprunable))
    for reason, names in unprunable.by_reason().items():
        lines += wrapped(", ".join(names) + ":", width) + wrapped(reason, width, "    ")
    return "\n".join(lines)


def _groups_table(groups: GroupList, width: int | None) -> str:
    from dysens.groups import FREE

    labels = ["layer", *(layer_label(group.path) for group in groups)]
    frame = groups.to_frame()
    columns = [[name, *map(str, frame[name])] for name in frame.columns if name not in ("path", "rule")]
    rules = ["rule", *(group.rule for group in groups)]
    table = table_text(labels, [*columns, rules], width)
    if width is None or max(map(len, table.splitlines())) <= width:
        return table
    # Rules can be long: each below its group, if it says more than the usual.
    rows = table_text(labels, columns, width).splitlines()
    notes = [[] if rule in ("rule", FREE) else wrapped(rule, width, "    ") for rule in rules]
    return "\n".join(line for row, note in zip(rows, notes) for line in (row, *note))


def found_text(found: SearchResult, width: int | None) -> str:
    """What a search found."""
    answers = found.groups
    columns = [
        ["ratio", *(f"{group.ratio:g}" for group in answers)],
        ["loss there", *(loss_text(group.loss, 3) for group in answers)],
        ["too much", *("-" if group.beyond is None else f"{group.beyond:g}" for group in answers)],
        ["data seen", *(f"{group.share:.0%}" for group in answers)],
    ]
    labels = ["layer", *(layer_label(group.path) for group in answers)]
    notes = [line for text in found.summary.splitlines() for line in wrapped(text, width)]
    return "\n".join([table_text(labels, columns, width), *notes])


def outcome_text(outcome: PruneOutcome, width: int | None) -> str:
    """What a cut brought."""
    columns = [
        ["before", *(str(before) for _, _, before, _ in outcome.widths)],
        ["after", *(str(after) for _, _, _, after in outcome.widths)],
    ]
    labels = ["channels of", *(layer_label(path) for _, path, _, _ in outcome.widths)]
    return f"{table_text(labels, columns, width)}\n{outcome.totals}"


def _allowed(sens: Sensitivities, loss: float | None, monotone: bool) -> dict[str, float]:
    """The ratio by label."""
    if loss is None:
        return {}
    chosen = sens.ratios_by_loss(loss, monotone)
    return {layer_label(sens.paths.get(name, name)): ratio for name, ratio in chosen.items()}


def _fitting(columns: dict[float, list[str]], room: int, gap: int) -> list[float]:
    """The ratios that there is room for, spread evenly if there are too many; at least one."""
    ratios = list(columns)
    for count in range(len(ratios), 1, -1):
        spread = [ratios[round(step * (len(ratios) - 1) / (count - 1))] for step in range(count)]
        if taken((columns[ratio] for ratio in spread), gap) <= room:
            return spread
    return [ratios[len(ratios) // 2]]


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"
