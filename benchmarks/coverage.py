"""Which filters of which networks can be pruned: writes docs/coverage.md.

Run it in each stack; each run replaces its own stack's rows in docs/coverage.json and rewrites the table:

    .venvs/paddle3/bin/python benchmarks/coverage.py
    .venvs/paddle26/bin/python benchmarks/coverage.py

Each network is stored as soon as it is measured; --missing goes on where a run was broken off.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import zoo

from dysens import DygraphSensitivity
from dysens.groups import filters_by_path, roles_of

DOCS = Path(__file__).parent.parent / "docs"
DATA, TABLE = DOCS / "coverage.json", DOCS / "coverage.md"
RANDOM_RATIOS = 3  # how often all groups at once are cut by random ratios and compared with their masks


def measure(name: str) -> dict[str, Any]:
    """One row: what dysens finds, that it holds, and what PaddleSlim finds."""
    model, inputs = zoo.build(name)
    start = time.perf_counter()
    ds = DygraphSensitivity(model, inputs)
    seconds = time.perf_counter() - start
    filters, roles = filters_by_path(model), roles_of(model)
    depthwise = [
        p for p in filters if (r := roles.get(p.rpartition(".")[0])) is not None and r.kind == "passing"
    ]
    makers = [path for path in filters if path not in depthwise]
    cut = {path for group in ds.groups for path in group.filters}
    weights = {path: int(filters[path].size) for path in makers}
    paths = {tensor.name: path for path, tensor in filters.items()}
    random = np.random.default_rng(0)
    return {
        "network": name,
        "weights": len(filters),
        "depthwise": len(depthwise),
        "groups": len(ds.groups),
        "share": sum(n for path, n in weights.items() if path in cut) / sum(weights.values()),
        "difference": max(
            ds.verify({group.name: random.uniform(0, 0.9) for group in ds.groups})
            for _ in range(RANDOM_RATIOS)
        ),
        "seconds": seconds,
        "rules": dict(Counter(group.rule for group in ds.groups)),
        "unprunable": {
            reason: [paths[name].rpartition(".")[0] for name in names]
            for reason, names in ds.unprunable.by_reason().items()
        },
        "paddleslim": slim_groups(model, ds._views[0].arguments),
    }


def slim_groups(model: Any, arguments: tuple[Any, ...]) -> int | str | None:
    """How many groups PaddleSlim finds whose 40 % cut leaves a forward that runs; None where it is not installed."""
    import paddle

    if not paddle.__version__.startswith("2."):
        return None
    from paddleslim.dygraph import L1NormFilterPruner

    if not all(isinstance(argument, paddle.Tensor) for argument in arguments):
        return "takes no dict inputs"
    try:
        pruner = L1NormFilterPruner(model, list(arguments[0].shape))
    except Exception as error:
        return type(error).__name__
    working = 0
    for collection in pruner.collections:
        plan = None
        try:
            plan = pruner.prune_var(collection.master_name, 0, 0.4)
            with paddle.no_grad():
                model(*arguments)
            working += 1
        except Exception as error:
            print(f"PaddleSlim, {collection.master_name}: {type(error).__name__}", file=sys.stderr)
        finally:
            if plan is not None:
                plan.restore(model)
    return working


def table(rows: list[dict[str, Any]]) -> str:
    """The document."""
    by_network: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_network.setdefault(row["network"], {})[row["stack"]] = row
    lines = [
        "# Coverage",
        "",
        "Made by `benchmarks/coverage.py` in both stacks. A group is offered only after its masked and its cut model gave the",
        "same outputs; *largest difference* is that of all groups cut at once by random ratios (relative to the largest",
        "output, worst of both stacks). *Share* is the part of the non-depthwise 4-D weights whose filters can be cut.",
        "PaddleSlim's number is that of groups that it finds and that still run after a 40 % cut (2.6.0, stack paddle26).",
        "Seconds are those of the slower stack, the quickest run so far on two cores that were busy with other work too.",
        "",
        "| network | 4-D weights | depthwise | groups (paddle3 / paddle26) | share | PaddleSlim | largest difference | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    reasons: list[str] = []
    for name in zoo.NETWORKS:
        stacks = by_network.get(name)
        if not stacks:
            continue
        one = stacks.get("paddle3") or stacks["paddle26"]
        groups = " / ".join(str(stacks[s]["groups"]) if s in stacks else "-" for s in ("paddle3", "paddle26"))
        slim = stacks.get("paddle26", {}).get("paddleslim", "-")
        worst = max(row["difference"] for row in stacks.values())
        lines.append(
            f"| {name} | {one['weights']} | {one['depthwise']} | {groups} | {one['share']:.0%} | {slim} | {worst:.1e} | "
            f"{max(row['seconds'] for row in stacks.values()):.0f} |"
        )
        reasons += [f"- {name}: {some(layers)}: {reason}" for reason, layers in one["unprunable"].items()]
        reasons += [
            f"- {name}: {n} {'groups' if n > 1 else 'group'}: {rule}"
            for rule, n in one["rules"].items()
            if rule != "any channels"
        ]
    return "\n".join([*lines, "", "## What stays, and what needs balance", "", *reasons, ""])


def some(layers: list[str]) -> str:
    """A few of the layers, and how many there are."""
    shown = [f"`{layer}`" for layer in layers[:3]]
    return ", ".join(shown) + (f" and {len(layers) - 3} more" if len(layers) > 3 else "")


def main() -> None:
    import paddle

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", help="only these (default: all)")
    parser.add_argument("--missing", action="store_true", help="only those that this stack has no row of yet")
    parser.add_argument("--one", action="store_true", help="measure one network and print its row as JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print("ROW " + json.dumps(measure(arguments.networks[0])))
        return
    stack = "paddle26" if paddle.__version__.startswith("2.") else "paddle3"
    rows = json.loads(DATA.read_text()) if DATA.exists() else []
    known = {r["network"] for r in rows if r["stack"] == stack} if arguments.missing else set()
    for name in [n for n in arguments.networks or list(zoo.NETWORKS) if n not in known]:
        # A process of its own: names, memory and a crash of PaddleSlim stay there.
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True)
        found = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        if not found:
            print(f"{name}: failed\n{done.stderr[-2000:]}", flush=True)
            continue
        row = {**json.loads(found[0]), "stack": stack}
        print(f"{name}: {row['groups']} groups, {row['share']:.0%}, {row['seconds']:.1f} s", flush=True)
        rows = json.loads(DATA.read_text()) if DATA.exists() else []
        earlier = [r for r in rows if (r["network"], r["stack"]) == (name, stack)]
        # Other work on the machine can only slow a run down.
        row["seconds"] = min([row["seconds"], *(r["seconds"] for r in earlier)])
        rows = [r for r in rows if r not in earlier] + [row]
        DATA.write_text(json.dumps(rows, indent=1) + "\n")
        TABLE.write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
