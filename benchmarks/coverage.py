"""Which filters of which networks can be pruned: writes docs/coverage.md.

Run it in each stack; each run replaces its own stack's rows in docs/coverage.json and rewrites the table:

    .venvs/paddle3/bin/python benchmarks/coverage.py
    .venvs/paddle26/bin/python benchmarks/coverage.py

Each network is stored as soon as it is measured; --missing goes on where a run was broken off.

Any other networks, such as those of a checkout:

    PADDLECLAS_HOME=... benchmarks/coverage.py --zoo benchmarks/zoo_checkouts.py

with a file that defines NETWORKS, name to a function that gives a model and its example inputs. Those rows go into
docs/coverage_checkouts.json, and into a second table of docs/coverage.md.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import zoo

import dysens
from dysens import DygraphSensitivity
from dysens.groups import filters_by_path, roles_of

DOCS = Path(__file__).parent.parent / "docs"
DATA, TABLE = DOCS / "coverage.json", DOCS / "coverage.md"
RANDOM_RATIOS = 3  # how often all groups at once are cut by random ratios and compared with their masks


CHECKOUTS = DOCS / "coverage_checkouts.json"
ALL_LAYERS = DOCS / "coverage_all_layers.json"  # of benchmarks/all_layers.py
CPU_LIMIT = 120  # CPU seconds for one network
ROOMS = ("engines", "groups", "model", "pruning")  # of dysens: they decide what can be cut


def measure(name: str) -> dict[str, Any]:
    """One row: what dysens finds, that it holds, and what PaddleSlim finds."""
    model, inputs = zoo.build(name)
    start = time.perf_counter()
    ds = DygraphSensitivity(model, inputs)
    return {
        **described(name, model, ds, time.perf_counter() - start),
        "paddleslim": slim_groups(model, ds._views[0].arguments),
    }


def measure_other(name: str, build: Any, layers: str, zoo_path: Path) -> dict[str, Any]:
    """One row of a network from elsewhere: also that it comes back from disk, is restored, and trains when it is cut."""
    import paddle

    paddle.seed(0)
    model, shape = build()
    alone = settle(model, shape)
    inputs = paddle.randn(shape)
    whole = [t.numpy() for t in tensors_in(model(inputs))]
    start = time.process_time()
    ds = DygraphSensitivity(model, shape, layers=layers)
    seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = {
        **described(name, model, ds, seconds, rounds=1),
        "layers": layers,
        "memory": memory,
        "code": code(),
    }
    if not ds.groups:
        return row
    outcome = ds.prune_vars({group.name: 0.5 for group in ds.groups})
    row["flops_left"] = outcome.flops_after / outcome.flops_before
    row["params_left"] = outcome.params_after / outcome.params_before
    row["reloaded"] = comes_back(name, model, build, inputs, zoo_path)
    row["trains"] = trains(model, shape) if alone else "needs labels"
    ds.restore()
    model.eval()
    row["restored"] = all(bool((a == t.numpy()).all()) for a, t in zip(whole, tensors_in(model(inputs))))
    return row


def code() -> str:
    """A name for the code that decides what can be cut, so that rows of other code are told apart."""
    files = [
        file for room in ROOMS for file in sorted(Path(dysens.__file__).parent.joinpath(room).glob("*.py"))
    ]
    return hashlib.sha1(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def settle(model: Any, shape: Any) -> bool:
    """Give batch norms the statistics of random pictures, and eval mode; whether the training forward takes pictures alone.

    With those of a constructor the values of a deep network grow from layer to layer, up to infinity, where nothing can be
    compared.
    """
    import paddle

    norms = [layer for layer in model.sublayers() if hasattr(layer, "_momentum")]
    before = [norm._momentum for norm in norms]
    model.train()
    try:
        for norm in norms:
            norm._momentum = 0.0
        with paddle.no_grad():
            model(paddle.randn([4, *shape[1:]]))
        return True
    except Exception as error:
        print(f"not settled: {type(error).__name__}: {error}"[:200], file=sys.stderr)
        return False
    finally:
        for norm, momentum in zip(norms, before):
            norm._momentum = momentum
        model.eval()


def tensors_in(outputs: Any) -> list[Any]:
    """The tensors that a network gives."""
    import paddle

    from dysens.model import leaves

    return [leaf for leaf in leaves(outputs) if isinstance(leaf, paddle.Tensor)]


def comes_back(name: str, model: Any, build: Any, inputs: Any, zoo_path: Path) -> bool | str:
    """Whether a cut network that was saved gives the same when it is loaded into a new one; else what went wrong."""
    import tempfile

    from dysens import save_pruned

    cut = [t.numpy() for t in tensors_in(model(inputs))]
    with tempfile.TemporaryDirectory() as folder:
        try:
            save_pruned(model, f"{folder}/cut")
            np.savez(f"{folder}/io.npz", inputs.numpy(), *cut)
            return loads(build, Path(folder))
        except ValueError as error:
            if "name" not in str(error):
                return f"{type(error).__name__}: {error}"[:200]
            # Its parameters have fixed names, and Paddle builds it once in a process.
            command = [sys.executable, __file__, "--load", folder, "--zoo", str(zoo_path), name]
            done = subprocess.run(command, capture_output=True, text=True)
            return (
                "LOADED True" in done.stdout or (done.stderr.strip().splitlines() or ["it differs"])[-1][:200]
            )
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]


def loads(build: Any, folder: Path) -> bool:
    """Whether a new network with the saved cut gives what the cut one gave."""
    import paddle

    from dysens import load_pruned

    inputs, *cut = np.load(folder / "io.npz").values()
    other = load_pruned(build()[0], str(folder / "cut"))
    other.eval()
    answers = tensors_in(other(paddle.to_tensor(inputs)))
    return len(cut) == len(answers) and all(bool((a == t.numpy()).all()) for a, t in zip(cut, answers))


def limited() -> None:
    """In the process of one network: no more than so many CPU seconds."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT + 5))


def trains(model: Any, shape: Any) -> bool | str:
    """Whether a step of training runs; else what it says."""
    import paddle

    model.train()
    try:
        loss = sum(
            t.astype("float32").square().mean() for t in tensors_in(model(paddle.randn([2, *shape[1:]])))
        )
        loss.backward()
        paddle.optimizer.SGD(1e-4, parameters=model.parameters()).step()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return True


def described(
    name: str, model: Any, ds: DygraphSensitivity, seconds: float, rounds: int = RANDOM_RATIOS
) -> dict[str, Any]:
    """What dysens finds in a network, and how far the cut network is from the masked one."""
    filters, roles = filters_by_path(model), roles_of(model)
    depthwise = [
        p for p in filters if (r := roles.get(p.rpartition(".")[0])) is not None and r.kind == "passing"
    ]
    makers = [path for path in filters if path not in depthwise]
    cut = {path for group in ds.groups for path in group.filters}
    weights = {path: int(filters[path].size) for path in makers}
    paths = {tensor.name: path for path, tensor in filters_by_path(model, "all").items()}
    random = np.random.default_rng(0)
    return {
        "network": name,
        "weights": len(filters),
        "depthwise": len(depthwise),
        "groups": len(ds.groups),
        "share": sum(n for path, n in weights.items() if path in cut) / max(1, sum(weights.values())),
        "difference": max(
            ds.verify({group.name: random.uniform(0, 0.9) for group in ds.groups}) for _ in range(rounds)
        )
        if ds.groups
        else 0.0,
        "seconds": seconds,
        "rules": dict(Counter(group.rule for group in ds.groups)),
        "unprunable": {
            reason: [paths[name].rpartition(".")[0] for name in names]
            for reason, names in ds.unprunable.by_reason().items()
        },
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
    text = "\n".join([*lines, "", "## What stays, and what needs balance", "", *reasons, ""])
    return text + (other_table(json.loads(CHECKOUTS.read_text())) if CHECKOUTS.exists() else "")


def other_table(all_rows: list[dict[str, Any]]) -> str:
    """The second table: networks that nobody here wrote; and the third, with all layers."""
    rows = [row for row in all_rows if _which(row)[1] == "filters"]
    everything = [row for row in all_rows if _which(row)[1] == "all"]
    whole = sum(_is_whole(row) for row in rows)
    refused = [row for row in rows if "refused" in row]
    text = [
        "",
        "## Networks of PaddleClas, PaddleSeg and PaddleDetection",
        "",
        "Made by `benchmarks/coverage.py --zoo benchmarks/zoo_checkouts.py` with checkouts of the three, random weights,",
        f"each in a process of its own. {len(rows)} networks ({_by_package(rows)}):",
        f"{whole} with a share of 100 % but for what they return, {len(rows) - whole - len(refused)} with less (why is listed",
        f"below), {len(refused)} not measured, with the reason in",
        "their row. *Half* is what is left of FLOPs and parameters when every group loses half of its units. After that cut a",
        "step of training was run, and the network was restored and compared bit for bit; before it, the cut network was saved",
        "and loaded into a new one, which gave the same outputs where *loaded* says yes. Seconds are of CPU time, for the",
        "analysis, on a busy machine; MiB is the largest memory of its process until then, Paddle (about 400) and the weights",
        f"included. {_states(all_rows)}",
        "",
        *_lines(rows, all_rows),
    ]
    if everything:
        text += [
            "",
            '### With `layers="all"`',
            "",
            "The same for hidden units of linear and recurrent layers, heads of attention and channels of any convolution.",
            "The share is still that of 4-D weights.",
            "",
            *_lines(everything, all_rows),
            "",
            *_layer_norms(everything),
            *_compressed(),
        ]
    text += ["", "### What stays there", ""]
    for row in rows:
        text += [
            f"- {row['network']}: {some(layers)}: {why}" for why, layers in row.get("unprunable", {}).items()
        ]
    return "\n".join([*text, ""])


def _by_package(rows: list[dict[str, Any]]) -> str:
    counts = Counter(row["network"].split()[0] for row in rows)
    return ", ".join(f"{number} of {package}" for package, number in sorted(counts.items()))


def _is_earlier(row: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether a row was measured with other code than the last one."""
    return row.get("code") != rows[-1].get("code")


def _states(rows: list[dict[str, Any]]) -> str:
    """Whether all rows are of the same code."""
    earlier = sum(_is_earlier(row, rows) for row in rows)
    return (
        f"{earlier} rows, with a star, are of an earlier state of dysens."
        if earlier
        else "All rows, also those below, are of the same state of dysens."
    )


def _layer_norms(rows: list[dict[str, Any]]) -> list[str]:
    """What widths under a layer norm would add, and why they are not offered."""
    bound = {
        row["network"]: sum(
            len(layers) for why, layers in row["unprunable"].items() if "by a layer norm" in why
        )
        for row in rows
        if "flops_left" in row
    }
    left = {row["network"]: row["flops_left"] for row in rows if bound.get(row["network"])}
    if not left:
        return []
    figures = ", ".join(
        f"{name.split()[1]} {share:.0%} ({bound[name]} layers)" for name, share in sorted(left.items())
    )
    text = (
        "Widths under a layer norm are listed with that reason, and not offered. If they could be halved too, about 25 % of the "
        "FLOPs would be left. Without them these networks keep, with the number of layers that are bound to a layer norm: "
        f"{figures}. So recognition networks of PP-OCR would gain next to nothing, SVTR_tiny and ConvNeXt about as much again "
        "as hidden units and heads give. But such a width is the sum that all blocks of a stage read and add to: no mask equals "
        "its cut, so neither a sweep, nor the choice of channels, nor folding, nor the proof could look at it, and a network "
        "that is cut there is another one until it is trained again. Build a narrower one instead, and prune hidden units and "
        "heads."
    )
    return [*textwrap.wrap(text, 125), ""]


def _compressed() -> list[str]:
    """What `compress` makes of all layers, beside filters alone."""
    rows = json.loads(ALL_LAYERS.read_text()) if ALL_LAYERS.exists() else []
    text = [
        "`compress` without labels and without training, at equal FLOPs (`benchmarks/all_layers.py`; released weights, 96",
        "generated lines to calibrate on, accuracy on 192 others, one draw):",
        "",
        "| network | layers | groups | FLOPs left | parameters left | accuracy, whole | cut | masked against cut | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: (r["network"], r["budget"], r["layers"] == "all", r["seed"])):
        text.append(
            f"| {row['network']} | {row['layers']} | {row['groups']} | {row['flops_left']:.0%} | {row['params_left']:.0%} | "
            f"{row['whole']:.3f} | {row['score']:.3f} | {row['proof']:.0e} | {row['seconds']:.0f} |"
        )
    return text if rows else []


def _lines(rows: list[dict[str, Any]], all_rows: list[dict[str, Any]]) -> list[str]:
    """A table of networks: by toolbox, the largest share first; with a star where a row is of earlier code."""
    text = [
        "| network | groups | share | FLOPs left, half | parameters left | difference | loaded | trains | restored | CPU s "
        "| MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: (r["network"].split()[0], -r.get("share", -1), r["network"])):
        name = row["network"] + (" *" if _is_earlier(row, all_rows) else "")
        if "refused" in row:
            text.append(f"| {name} | {row['refused']} | | | | | | | | | |")
            continue
        left = (f"{row[key]:.0%}" if key in row else "" for key in ("flops_left", "params_left"))
        answers = (row.get(key, "") for key in ("reloaded", "trains", "restored"))
        said = " | ".join("yes" if answer is True else str(answer) for answer in answers)
        text.append(
            f"| {name} | {row['groups']} | {row['share']:.0%} | {' | '.join(left)} | {row['difference']:.0e} | "
            f"{said} | {row['seconds']:.0f} | {format(row['memory'], '.0f') if 'memory' in row else ''} |"
        )
    return text


def other_networks(path: Path) -> dict[str, Any]:
    """What a file of the user's defines."""
    spec = importlib.util.spec_from_file_location("zoo_of_others", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.NETWORKS)


def measure_others(arguments: argparse.Namespace) -> None:
    """Each network of another zoo in a process of its own, stored as soon as it is measured."""
    networks = other_networks(arguments.zoo)
    rows = json.loads(CHECKOUTS.read_text()) if CHECKOUTS.exists() else []
    known = {_which(row) for row in rows if row.get("code") == code()} if arguments.missing else set()
    for name in [n for n in arguments.networks or networks if (n, arguments.layers) not in known]:
        command = [
            sys.executable,
            __file__,
            "--one",
            "--zoo",
            str(arguments.zoo),
            "--layers",
            arguments.layers,
            name,
        ]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited)
        found = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        why = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1][:300]
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            why = f"not done within {CPU_LIMIT} CPU s"
        row = (
            json.loads(found[0])
            if found
            else {"network": name, "layers": arguments.layers, "refused": why, "code": code()}
        )
        print(
            f"{name}: {row.get('refused') or format(row['share'], '.0%')} {row.get('seconds', 0):.1f} s",
            flush=True,
        )
        rows = [
            r
            for r in (json.loads(CHECKOUTS.read_text()) if CHECKOUTS.exists() else [])
            if _which(r) != (name, arguments.layers)
        ]
        CHECKOUTS.write_text(json.dumps([*rows, row], indent=1) + "\n")
    TABLE.write_text(table(json.loads(DATA.read_text())), encoding="utf-8")


def _is_whole(row: dict[str, Any]) -> bool:
    """Whether all can be cut but layers whose channels are the network's outputs."""
    others = [why for why in row.get("unprunable", {}) if "reach the model's output" not in why]
    return row.get("share", 0) > 0.999 or ("unprunable" in row and row["groups"] > 0 and not others)


def _which(row: dict[str, Any]) -> tuple[str, str]:
    return row["network"], row.get("layers", "filters")


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
    parser.add_argument(
        "--missing",
        action="store_true",
        help="only those without a row: of this stack; with --zoo, of this code",
    )
    parser.add_argument("--zoo", type=Path, help="a Python file with other networks")
    parser.add_argument("--layers", default="filters", help="filters, or all: as DygraphSensitivity takes it")
    parser.add_argument("--load", type=Path, help="load what a network was saved as there, and compare")
    parser.add_argument("--page", action="store_true", help="only write the page from what was measured")
    parser.add_argument("--one", action="store_true", help="measure one network and print its row as JSON")
    arguments = parser.parse_args()
    if arguments.page:
        TABLE.write_text(table(json.loads(DATA.read_text())), encoding="utf-8")
        return
    if arguments.load:
        print("LOADED", loads(other_networks(arguments.zoo)[arguments.networks[0]], arguments.load))
        return
    if arguments.one:
        name = arguments.networks[0]
        row = (
            measure_other(name, other_networks(arguments.zoo)[name], arguments.layers, arguments.zoo)
            if arguments.zoo
            else measure(name)
        )
        print("ROW " + json.dumps(row))
        return
    if arguments.zoo:
        measure_others(arguments)
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
