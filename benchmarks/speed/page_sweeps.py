"""The sections of the page on whole sweeps, on the search, and on the first look."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from grid import TARGET, largest_of_all, last_before_the_first_beyond, steps_between
from page_table import table

Figures = dict[str, Any]
LABELS = {"slim": "PaddleSlim", "eager": "dysens, live model"}
NAMES = {
    "mobilenet": "MobileNetV1",
    "ocr": "PP-OCRv3 det",
    "v4 det": "PP-OCRv4 det",
    "v4 rec": "PP-OCRv4 rec",
    "layout": "PicoDet layout",
}
STACKS = ("Paddle 2.6", "Paddle 3")


def reference_seconds(part: Figures) -> float:
    """What the reference would take for all points of a part and the baseline, going by its sampled points."""
    return float(np.mean([row["seconds"] for row in part["sample"]])) * (part["points"] + 1)


def once_running(part: Figures | None) -> str:
    """How much faster a point is, without what is paid once a sweep."""
    return "not measured" if part is None else f"{point_speed(part):.1f}x"


def point_speed(part: Figures) -> float:
    """A point of the reference against one of the sweep."""
    reference = float(np.mean([row["seconds"] for row in part["sample"]]))
    return reference * part["points"] / float(part["point_seconds"])


def samples_between(part: Figures) -> float:
    """How many samples the largest difference of a loss is worth, over the sampled points."""
    gap = max(abs(row["loss"] - row["fast_loss"]) for row in part["sample"])
    return gap * (part["baseline"] + 1e-3) * part["images"]


def sweeps(slim: Figures, new: Figures) -> str:
    """How much faster a whole sweep is."""
    rows = []
    for stack, parts in zip(STACKS, (slim, new)):
        for name, network in NAMES.items():
            ways = [parts.get(f"sweep {name}{cores}") for cores in (", one core", "")]
            measured = [part for part in ways if part is not None]
            if measured:
                rows.append(
                    [
                        f"{network}, {stack}",
                        LABELS[measured[0]["reference"]],
                        f"{measured[0]['groups']} x 9",
                        " and ".join(sorted({str(part["images"]) for part in measured})),
                        *(
                            f"{reference_seconds(p) / p['seconds']:.1f}x" if p else "not measured"
                            for p in ways
                        ),
                        *(once_running(part) for part in ways),
                        f"{max(samples_between(part) for part in measured):.2f}",
                    ]
                )
    if not rows:
        return ""
    header = ["network", "reference", "groups x ratios", "images", "one core", "two cores"]
    sampled = " or ".join(
        sorted(
            {str(len(p["sample"])) for each in (slim, new) for n, p in each.items() if n.startswith("sweep")}
        )
    )
    header += ["a point, one core", "a point, two cores", "samples apart"]
    return f"""## A whole sweep

`ds.sensitive(evaluator, sen_file=...)` over groups spread over those that PaddleSlim finds too, nine ratios each, with everything
in it: the baseline, compiling and comparing with the live model, ranking the filters, the journal. The reference would take many
minutes for each, so **its time is the mean of {sampled} of its points**, spread over groups and ratios, half of them measured
before and half after the sweep in the same process, **times the number of points** (and one more for the baseline). Wall time.
What is paid once weighs the more, the fewer groups are swept.

{table(header, rows)}
"A point": the mean over the sweep's points of the seconds that the journal gives them, against the mean of the reference's; it
leaves out what is paid once: the baseline, the copies. "Samples apart": the largest difference between the reference's
loss and dysens's at the sampled points, in images.
{_across(slim, new)}{_wanted(slim, new)}"""


def _against_slim(slim: Figures, part: Figures | None, name: str, cores: str) -> float | None:
    """A point of PaddleSlim on Paddle 2.6 against one of a sweep, of the same images; None if one was not measured."""
    theirs = slim.get(f"sweep {name}{cores}")
    if part is None or theirs is None or theirs["reference"] != "slim" or theirs["images"] != part["images"]:
        return None
    seconds = float(np.mean([row["seconds"] for row in theirs["sample"]]))
    return seconds * part["points"] / part["point_seconds"]


def _across(slim: Figures, new: Figures) -> str:
    """Paddle 3 against PaddleSlim, which does not run there."""
    rows = []
    for name, network in NAMES.items():
        ways = [
            _against_slim(slim, new.get(f"sweep {name}{cores}"), name, cores) for cores in (", one core", "")
        ]
        if any(ways):
            rows.append([network, *(f"{way:.1f}x" if way else "not measured" for way in ways)])
    if not rows:
        return ""
    return f"""
PaddleSlim does not run on Paddle 3. Its seconds a point on Paddle 2.6 against those of dysens on Paddle 3, on the same
machine and images:

{table(["network", "a point, one core", "a point, two cores"], rows)}"""


# How many times as fast as the reference a point was to be, on two cores.
WANTED = {"ocr": 15, "v4 rec": 15, "mobilenet": 25}


def _wanted(slim: Figures, new: Figures) -> str:
    """What was wanted, and what was reached."""
    rows = []
    for name, wanted in WANTED.items():
        cells = []
        for parts in (slim, new):
            part = parts.get(f"sweep {name}")
            speed = _against_slim(slim, part, name, "") or (point_speed(part) if part else None)
            cells.append(f"{speed:.1f}x" if speed else "not measured")
        rows.append([NAMES[name], f"{wanted}x", *cells])
    return f"""
What was wanted of a point on two cores, and what was reached: against PaddleSlim's point where PaddleSlim runs the network, else
against the live model of the same stack.

{table(["network", "wanted", *STACKS], rows)}"""


def limits(slim: Figures, new: Figures) -> str:
    """Where the time of a point goes, and how far it is from what exact points can take at least."""
    rows = []
    for stack, parts in zip(STACKS, (slim, new)):
        for name, network in NAMES.items():
            one, two = parts.get(f"sweep {name}, one core"), parts.get(f"sweep {name}")
            if one is None or two is None or "forward_seconds" not in one or one["images"] != two["images"]:
                continue
            spent = [one[f"{what}_seconds"] for what in ("forward", "measure", "score")]
            limit = sum(spent) / one["points"] / 2
            rows.append(
                [
                    f"{network}, {stack}",
                    f"{one['runtime']}, {two['runtime']}",
                    *(f"{seconds / one['point_seconds']:.0%}" for seconds in spent),
                    f"{1 - sum(spent) / one['point_seconds']:.0%}",
                    f"{limit / (two['point_seconds'] / two['points']):.0%}",
                    str(math.ceil(sum(spent) / spent[1])),
                ]
            )
    if not rows:
        return ""
    header = [
        "network",
        "runtime on one core, on two",
        "forward",
        "post-process and matching",
        "score",
        "rest",
    ]
    header += ["of the limit, two cores", "measuring fills one core from"]
    return f"""## Where the time of a compiled point goes

Shares of the seconds of a point in the sweep on one core. A point takes at least its forward, its measuring and its score; two
cores that never wait take half of what one core takes for them. "Of the limit": how near a point on two cores comes to that.

{table(header, rows)}
Forwards run beside the measuring of earlier batches, except with Paddle 3's own predictor, and measuring runs in one thread.
"Measuring fills one core from": by these shares, with so many cores the forwards take no longer than it, and more cores gain
nothing. {_pools(slim, new)}
"""


def _pools(slim: Figures, new: Figures) -> str:
    """What was seen of measuring in processes of its own."""
    told = []
    for stack, parts in zip(STACKS, (slim, new)):
        for name in ("ocr", "v4 det"):
            part = parts.get(f"pool {name}")
            if part is not None:
                plain = part["in the thread"]["seconds"]
                ways = [
                    f"{plain / part[way]['seconds']:.2f}x with {way.split()[0]}"
                    for way in ("1 processes", "2 processes")
                ]
                told.append(f"{part['network']}, {stack}: {' and '.join(ways)}")
    if not told:
        return "Measuring in several processes was not tried."
    return (
        "Measuring in processes of its own (outputs handed over one batch at a time) was tried on two cores, against a pass "
        f"as it is: {'; '.join(told)}."
    )


def runtimes(slim: Figures, new: Figures) -> str:
    """OpenVINO beside Paddle's predictor."""
    rows = []
    for stack, parts in zip(STACKS, (slim, new)):
        for name, network in NAMES.items():
            part = parts.get(f"runtimes {name}")
            if part is None:
                continue
            cells = []
            for cores in (1, 2):
                ways = [part.get(f"{way}, {cores}") for way in ("paddle", "openvino")]
                both = all(way is not None and way["ran"] != "live" for way in ways)
                cells.append(f"{ways[0]['seconds'] / ways[1]['seconds']:.2f}x" if both else "not run")
            for way in ("paddle", "openvino"):
                one, two = part.get(f"{way}, 1"), part.get(f"{way}, 2")
                cells.append(f"{one['seconds'] / two['seconds']:.2f}x" if one and two else "not run")
            scores = [way["baseline"] for way in part.values() if isinstance(way, dict)]
            cells.append(f"{(max(scores) - min(scores)) * part['images']:.2f}")
            rows.append([f"{network}, {stack}", *cells])
    if not rows:
        return ""
    header = ["network", "OpenVINO against Paddle, one core", "two cores"]
    header += ["Paddle on two cores against one", "OpenVINO on two against one", "scores apart, in samples"]
    return f"""## OpenVINO beside Paddle's predictor

A pass over all data with nothing removed, measuring included: the shortest of several. Paddle 3's predictor keeps Python's lock,
so that it computes one batch at a time on two threads, and nothing is measured meanwhile.

{table(header, rows)}"""


def told(name: str, part: Figures) -> str:
    """One part in a line, for whoever watches the run."""
    if name.startswith("sweep"):
        return (
            f"{part['network']}: a point {once_running(part)}, the whole {reference_seconds(part) / part['seconds']:.1f}x "
            f"{LABELS[part['reference']]}, {samples_between(part):.2f} samples apart, {part['runtime']}"
        )
    if name.startswith("ratios"):
        speed = reference_seconds(part) / part["seconds"]
        return f"{part['network']}: {speed:.1f}x {LABELS[part['reference']]}, {part['passes']:.1f} passes"
    plain = {
        key: value for key, value in part.items() if key not in ("losses", "points", "common", "version")
    }
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in plain.items()
    )


def analysis(slim: Figures, new: Figures) -> str:
    """What finding the groups takes, and what compressing takes."""
    rows = []
    for stack, parts in zip(STACKS, (slim, new)):
        for name, network in NAMES.items():
            part = parts.get(f"sweep {name}")
            if part is None or "analysis_seconds" not in part:
                continue
            other = part["slim_analysis_seconds"]
            points = part["analysis_seconds"] / np.mean([row["seconds"] for row in part["sample"]])
            rows.append(
                [
                    f"{network}, {stack}",
                    str(part["all_groups"]),
                    f"{points:.2f}",
                    f"{part['analysis_seconds'] / other:.1f}x" if other else "not run",
                ]
            )
    if not rows:
        return ""
    header = ["network", "groups", "in points of the reference", "against PaddleSlim's own analysis"]
    text = f"""## The analysis itself

Finding the groups, and proving each of them by a cut; PaddleSlim proves nothing.

{table(header, rows)}"""
    lines = [
        [f"{network}, {stack}", f"{figures['seconds'] / figures['evaluation']:.1f}"]
        for stack, parts in zip(STACKS, (slim, new))
        for network, figures in parts.get("compress", {}).items()
        if network != "version"
    ]
    if not lines:
        return text
    return f"""{text}
`ds.compress(evaluator, flops=0.5)`, analysis not counted, in evaluations of the live model (processor seconds):

{table(["network", "evaluations"], lines)}"""


def within_one_step(part: Figures, expected: dict[str, float]) -> str:
    """For how many groups the search came to the expected ratio, or to one next to it."""
    steps = [steps_between(ratio, expected[name]) for name, ratio in part["answers"].items()]
    return f"{np.mean([step <= 1 for step in steps]):.0%}"


_OLD_SEARCH = """
These figures were measured with a search that took part of the data at its word. Since then a decision also allows for
losses that sit in few samples or in whole batches (`benchmarks/search_confidence.py`), and takes more data; the section
has not been measured again, so take it as a bound: a search is slower than this now.
"""


def search(slim: Figures, new: Figures) -> str:
    """How much faster ratios are found than by the reference's whole grid."""
    rows, images, old = [], {}, False
    for stack, parts in zip(STACKS, (slim, new)):
        for name, network in NAMES.items():
            part, grid = parts.get(f"ratios {name}"), parts.get(f"grid {name}")
            if part is None or grid is None:
                continue
            images[network] = part["images"]
            old = old or "version" not in part
            rows.append(
                [
                    f"{network}, {stack}",
                    LABELS[part["reference"]],
                    f"{part['groups']} x 9",
                    f"{reference_seconds(part) / part['seconds']:.1f}x",
                    f"{part['passes']:.1f} of {part['points']}",
                    *(
                        within_one_step(
                            part, {name: choice(losses) for name, losses in grid["losses"].items()}
                        )
                        for choice in (largest_of_all, last_before_the_first_beyond)
                    ),
                    f"{sum(ratio > 0 for ratio in part['answers'].values())} of {part['groups']}",
                    f"{samples_between(part):.2f}",
                ]
            )
    if not rows:
        return ""
    header = ["network", "reference", "groups x ratios", "search", "passes over the data"]
    header += ["near PaddleSlim's choice", "near the cautious choice", "answers above 0", "samples apart"]
    sets = " and ".join(f"{count} images for {network}" for network, count in images.items())
    return f"""## Ratios for a loss of {TARGET}

`ds.search(evaluator, target_loss={TARGET})` against the reference's whole grid of nine ratios, everything included
(compiling, the baseline, spot checks). A search can stop early only where there is something to stop
before: {sets}. The reference's time is again the mean of its sampled points
times the number of points.

{table(header, rows)}
Groups are spread over the network; wall time on two cores. "Near": the share of groups whose ratio is at
most one step (0.1) from the one that the whole grid gives. Where losses do not rise throughout, a grid allows more than
one choice: PaddleSlim takes the largest ratio of all that lose no more than {TARGET}, a cautious user the last one
before the first that loses more. That grid was measured by dysens; "samples apart" says how far it is from PaddleSlim's
at the sampled points. "Answers above 0": a group that may lose nothing at all is found out soon.
{_OLD_SEARCH if old else ""}"""


def estimate(slim: Figures, new: Figures) -> str:
    """How well the first look orders the points."""
    found = [
        (stack, part["estimate"]["rank_correlation"], part["seconds"] / part["estimate"]["seconds"])
        for stack, parts in zip(STACKS, (slim, new))
        if (part := parts.get("grid mobilenet")) is not None and part.get("estimate")
    ]
    if not found:
        return ""
    told = "; ".join(f"{stack}: {rank:.2f}, in 1/{times:.0f} of the time" for stack, rank, times in found)
    return f"""## A first look

`ds.estimate`, one pass with gradients over 64 images of MobileNetV1. Its rank correlation (Spearman) with the losses of
the whole compiled grid, over all groups and ratios: {told}.
"""
