"""What becomes of a sweep on a Ray cluster when machines die, and how it scales: the tables of docs/cluster.md.

    sudo python -m benchmarks.cluster            both tables, into docs/cluster.md
    python -m benchmarks.cluster --only scaling  without root

The machines are three network namespaces with addresses, host names and folders of their own, joined by a bridge that leads
nowhere else; making them takes root. A driver in the first of them sweeps a small network on the other two, and is compared with
one process.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import psutil  # type: ignore[import-untyped]
from paddle import nn

import dysens
from dysens.compiled import available_cores
from dysens.errors import DysensError

HOME = Path(__file__).parents[1]
PAGE = HOME / "docs" / "cluster.md"
SHAPE = [2, 3, 6, 6]
RATIOS = [round(0.1 * step, 1) for step in range(1, 10)]
NODES = {"a": "10.77.0.1", "b": "10.77.0.2", "c": "10.77.0.3"}  # the driver's, and two with a worker each
ADDRESS = f"{NODES['a']}:6379"
BLOW_AFTER = 8  # points
PATIENCE = 240.0


# What is swept


def network(seed: int = 0) -> nn.Layer:
    """Four groups of ten channels."""
    random = np.random.default_rng(seed)
    widths = [3, 10, 10, 10, 10]
    with paddle.utils.unique_name.guard():
        convs = [nn.Conv2D(inside, out, 1) for inside, out in zip(widths, widths[1:])]
        model = nn.Sequential(*convs, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(10, 4))
    for tensor in model.state_dict().values():
        tensor.set_value(random.normal(0, 0.4, tensor.shape).astype("float32"))
    model.eval()
    return model


class Power:
    """A score that needs no data but its own, notes what it was asked for, and takes its time."""

    def __init__(self, model: nn.Layer, counts: str | None, seconds: float, scale: float = 1.0) -> None:
        self._model = model
        self._counts = counts
        self._seconds = seconds
        self._scale = scale
        self._x = paddle.to_tensor(np.random.default_rng(1).standard_normal(SHAPE).astype("float32"))

    def __call__(self) -> float:
        """The mean square of the outputs."""
        with paddle.no_grad():
            found = float(1 + np.square(self._model(self._x).numpy()).mean())
        if self._counts is not None:
            descriptor = os.open(self._counts, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, f"{found!r}\n".encode())
            os.close(descriptor)
        time.sleep(self._seconds)
        return found * self._scale


def build(
    counts: str | None = None, seconds: float = 0.0, wrong: str = ""
) -> tuple[nn.Layer, Callable[[], float]]:
    """What each worker builds; on the third machine it may be something else."""
    odd = platform.node() == "node-c"
    model = network(1 if odd and wrong == "weights" else 0)
    return model, Power(model, counts, seconds, 2.0 if odd and wrong == "data" else 1.0)


def _losses(sens: dysens.Sensitivities) -> list[tuple[Any, ...]]:
    return [(point.path, point.ratio, point.metric, point.loss) for point in sens.points]


def drive(folder: Path, wrong: str, seconds: float) -> None:
    """Sweep on the cluster, compare with this process alone, and write down what was seen."""
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # it may have been started where Ctrl-C is ignored
    logging.basicConfig(
        level=logging.INFO, format="%(created).3f %(message)s", filename=folder / "log", force=True
    )
    counts = str(folder / "counts")
    model, evaluate = build()
    ds = dysens.DygraphSensitivity(model, SHAPE)
    alone = ds.sensitive(evaluate, RATIOS, progress=False, fast="off")
    shared = ds.sensitive(
        evaluate,
        RATIOS,
        sen_file=folder / "out" / "sens.jsonl",
        progress=False,
        fast="off",
        workers=2,
        build=partial(build, counts, seconds, wrong),
        executor=dysens.Ray(ADDRESS),
    )
    journal = dysens.Sensitivities.load(folder / "out" / "sens.jsonl")
    equal = _losses(shared) == _losses(alone) == _losses(journal)
    (folder / "result").write_text(json.dumps({"equal": equal, "points": len(alone.points)}))


# The machines


class Machines:
    """Three machines on one, for as long as it is open.

    Args:
        folder: For what the driver writes; the others see an empty one in its place.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._prefix = f"ds{os.getpid()}"
        for name in ("ray", "out"):
            (folder / name).mkdir()
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(os.urandom(24).hex())
        self._env = {
            **os.environ,
            "PYTHONPATH": str(HOME),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
        }

    def __enter__(self) -> Machines:
        switch = self._space("sw")
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        for node, address in NODES.items():
            space = self._space(node)
            _run("ip", "netns", "add", space)
            _run("ip", "-n", space, "link", "set", "lo", "up")
            ends = ["type", "veth", "peer", "name", "eth0", "netns", space]
            _run("ip", "-n", switch, "link", "add", f"v{node}", *ends)
            _run("ip", "-n", switch, "link", "set", f"v{node}", "master", "br0", "up")
            _run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", space, "link", "set", "eth0", "up")
        self.join("a")
        self.wait_for(lambda: _listens(self.folder), "the head")
        for node in "bc":
            self.join(node)
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self._nodes):
            self.leave(node)
        for node in (*NODES, "sw"):
            subprocess.run(["ip", "netns", "del", self._space(node)], check=False)

    def _space(self, node: str) -> str:
        return f"{self._prefix}-{node}"

    def start(self, node: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a program on a machine."""
        own = [f"mount -t tmpfs tmpfs {self.folder / name}" for name in ("ray", "out") if node != "a"]
        script = "; ".join([f"hostname node-{node}", *own, 'exec "$@"'])
        entered = ["ip", "netns", "exec", self._space(node), "unshare", "--mount", "--uts"]
        return subprocess.Popen(
            [*entered, "bash", "-c", script, "node", *words],
            env=self._env,
            cwd=HOME,
            start_new_session=True,
            **options,
        )

    def join(self, node: str) -> None:
        """Start Ray on a machine."""
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        words += [f"--node-ip-address={NODES[node]}", "--object-store-memory=100000000"]
        if node == "a":
            words += ["--head", "--port=6379", "--num-cpus=0", "--include-dashboard=false"]
            words += [f"--temp-dir={self.folder / 'ray'}"]
        else:
            words += [f"--address={ADDRESS}", "--num-cpus=1"]
        with (self.folder / f"node-{node}.log").open("ab") as log:
            self._nodes[node] = self.start(node, *words, stdout=log, stderr=log)

    def leave(self, node: str) -> None:
        """End Ray on a machine, with all that belongs to it."""
        process = self._nodes.pop(node)
        with suppress(psutil.NoSuchProcess):
            family = [*psutil.Process(process.pid).children(recursive=True)]
            process.kill()
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
        process.wait()

    def raylet(self, node: str) -> psutil.Process:
        """The process that makes a machine part of the cluster."""
        family = psutil.Process(self._nodes[node].pid).children(recursive=True)
        return next(process for process in family if process.name() == "raylet")

    def link(self, node: str, state: str) -> None:
        """Pull a machine's cable, or plug it in."""
        _run("ip", "-n", self._space("sw"), "link", "set", f"v{node}", state)

    def wait_for(self, what: Callable[[], Any], name: str) -> Any:
        """Look until something is so."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = what()
            if found:
                return found
            time.sleep(0.1)
        raise DysensError(f"{name} did not come within {PATIENCE:.0f} s; the logs are in {self.folder}.")


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def _listens(folder: Path) -> bool:
    log = folder / "node-a.log"
    return log.exists() and "Ray runtime started" in log.read_text(errors="replace")


# What happens to them


@dataclass
class Row:
    """A line of the table."""

    case: str
    equal: bool
    evaluations: int
    twice: int
    noticed: float | None
    remark: str


class Case:
    """One sweep, and what is done to it.

    Args:
        machines: Where.
        wrong: What the third machine has of its own: "weights", "data", or nothing.
    """

    def __init__(self, machines: Machines, wrong: str = "", seconds: float = 0.5) -> None:
        self.machines = machines
        self.folder = machines.folder
        self._words = [sys.executable, "-m", "benchmarks.cluster", "--drive", str(self.folder)]
        self._words += ["--wrong", wrong, "--seconds", str(seconds)]
        for name in ("log", "counts", "result", "out/sens.jsonl", "out/sens.jsonl.lock"):
            (self.folder / name).unlink(missing_ok=True)
        self.begin()

    def begin(self) -> None:
        """Start the driver; what it finds in the journal it goes on with."""
        with (self.folder / "driver.log").open("ab") as output:
            self.driver = self.machines.start("a", *self._words, stdout=output, stderr=output)

    @property
    def log(self) -> str:
        """What the driver logged."""
        place = self.folder / "log"
        return place.read_text(errors="replace") if place.exists() else ""

    def points(self) -> int:
        """How many points are on disk."""
        journal = self.folder / "out" / "sens.jsonl"
        return journal.read_text().count('"kind": "point"') if journal.exists() else 0

    def under_way(self) -> None:
        """Both workers are ready, and some points are measured."""
        ready = re.compile(r"on node-[bc] \(process \d+\) is ready")
        self.machines.wait_for(lambda: len(ready.findall(self.log)) >= 2, "a worker")
        self.machines.wait_for(lambda: self.points() >= BLOW_AFTER, "a point")

    def worker(self, node: str) -> int:
        """The process of the worker on a machine."""
        return int(re.findall(rf"on node-{node} \(process (\d+)\) is ready", self.log)[-1])

    def noticed(self, words: str, since: float) -> float | None:
        """Seconds from a time until the driver says something; None if it came to its end without."""

        def said() -> list[float]:
            times = [float(line.split()[0]) for line in self.log.splitlines() if words in line]
            return [at for at in times if at > since] or (
                [math.inf] if self.driver.poll() is not None else []
            )

        first = self.machines.wait_for(said, words)[0]
        return first - since if math.isfinite(first) else None

    def row(self, case: str, noticed: float | None, remark: str = "") -> Row:
        """Wait for the end of the sweep."""
        self.driver.wait(PATIENCE)
        found = json.loads((self.folder / "result").read_text())
        counts = Counter((self.folder / "counts").read_text().split())
        counts.pop(repr(build()[1]()), None)  # the whole model
        return Row(
            case, found["equal"], sum(counts.values()), sum(n - 1 for n in counts.values()), noticed, remark
        )


def _actor(machines: Machines) -> Row:
    case = Case(machines, seconds=2.0)
    case.under_way()
    blow = time.time()
    os.kill(case.worker("b"), signal.SIGKILL)
    noticed = case.noticed("is lost", blow)
    ready = case.noticed("is ready", blow)
    return case.row("worker killed", noticed, _after("a new one is ready", ready))


def _raylet(machines: Machines) -> Row:
    case = Case(machines, seconds=4.0)
    case.under_way()
    blow = time.time()
    machines.raylet("c").kill()
    noticed = case.noticed("is lost", blow)
    machines.leave("c")
    machines.join("c")
    back = time.time()
    ready = case.noticed("on node-c", back)
    return case.row(
        "machine killed, and back", noticed, _after("once it is back, its worker is ready", ready)
    )


def _after(what: str, seconds: float | None) -> str:
    return (
        f"{what} after {seconds:.0f} s"
        if seconds is not None
        else "the others were done before it was replaced"
    )


def _cut(machines: Machines) -> Row:
    case = Case(machines, seconds=2.0)
    case.under_way()
    blow = time.time()
    machines.link("c", "down")
    noticed = case.noticed("is lost", blow)
    row = case.row("cable pulled", noticed, "health checks every second, see below")
    machines.link("c", "up")
    machines.leave("c")
    machines.join("c")
    return row


def _driver(machines: Machines, blow: signal.Signals, name: str) -> Row:
    case = Case(machines)
    case.under_way()
    workers = [psutil.Process(case.worker(node)) for node in "bc"]
    since = time.time()
    case.driver.send_signal(blow)
    case.driver.wait(PATIENCE)
    psutil.wait_procs(workers, timeout=PATIENCE)
    gone = time.time() - since
    before = case.points()
    case.begin()
    return case.row(name, gone, f"resumed at {before} points; seconds until no worker was left")


def _wrong(machines: Machines, what: str, remark: str) -> Row:
    case = Case(machines, what)
    row = case.row(f"other {what} on one machine", None, remark)
    refused = "node-c" in case.log and "is refused" in case.log
    if refused != (what == "data"):
        raise DysensError(
            f"With other {what}, the worker was {'' if refused else 'not '}refused; see {case.folder}."
        )
    return row


CASES: dict[str, Callable[[Machines], Row]] = {
    "nothing": lambda machines: Case(machines).row("nothing happens", None),
    "actor": _actor,
    "raylet": _raylet,
    "cut": _cut,
    "driver": lambda machines: _driver(machines, signal.SIGKILL, "driver killed, and resumed"),
    "interrupt": lambda machines: _driver(machines, signal.SIGINT, "Ctrl-C in the driver, and resumed"),
    "weights": lambda machines: _wrong(machines, "weights", "it gets the driver's, and takes part"),
    "data": lambda machines: _wrong(machines, "data", "refused by its host name; the other does all"),
}


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for the names of sockets; kept if something fails."""
    folder = Path(tempfile.mkdtemp(prefix="ds", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def accidents(names: list[str]) -> str:
    """The table of what happens."""
    rows = []
    with short_folder() as folder, Machines(folder) as machines:
        for name in names:
            row = CASES[name](machines)
            print(row, flush=True)
            rows.append(row)
    whole = len(RATIOS) * 4
    lines = [
        f"| what happens, in a sweep of {whole} points | journal as that of one process | evaluations | of those twice | noticed "
        "after | |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        seconds = f"{row.noticed:.1f} s" if row.noticed is not None else ""
        equal = "yes" if row.equal else "NO"
        lines.append(f"| {row.case} | {equal} | {row.evaluations} | {row.twice} | {seconds} | {row.remark} |")
    return "\n".join(lines)


# How it scales


def scaling(seconds: float = 0.25) -> str:
    """The table of sleeping points, by 1, 2 and 4 workers."""
    from dysens.sweep import Executor, Processes

    lines = [
        f"(On {available_cores()} cores, with a load of {os.getloadavg()[0]:.0f} before the first sweep.)",
        "",
        f"| workers | where | seconds until the first point | seconds for {4 * len(RATIOS)} points of {seconds} s | times one | "
        "overhead a point |",
        "|---|---|---|---|---|---|",
    ]
    model, evaluate = build()
    ds = dysens.DygraphSensitivity(model, SHAPE)
    places: dict[str, Executor] = {"processes": Processes(), "Ray": dysens.Ray("local", num_cpus=0.5)}
    for where, executor in places.items():
        one = 0.0
        for workers in (1, 2, 4):
            times: list[float] = []
            begun = time.monotonic()
            ds.sensitive(
                evaluate,
                RATIOS,
                progress=False,
                fast="off",
                workers=workers,
                build=partial(build, None, seconds),
                executor=executor,
                observer=lambda point, times=times: times.append(time.monotonic()),
            )
            # All workers are ready once the first ones of all have answered: the last half of the points tells the speed.
            half = len(times) // 2
            a_point = (times[-1] - times[half]) / (len(times) - 1 - half)
            took = times[-1] - times[0] + seconds
            one = one or took
            overhead = max(0.0, a_point * workers - seconds)
            lines.append(
                f"| {workers} | {where} | {times[0] - begun - seconds:.1f} | {took:.1f} | {one / took:.2f} | "
                f"{1000 * overhead:.0f} ms |"
            )
            print(lines[-1], flush=True)
    return "\n".join(lines)


def write(name: str, table: str) -> None:
    """Put a table where the page says that it belongs."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["accidents", "scaling"], help="one of the tables")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="some accidents")
    parser.add_argument("--print", action="store_true", help="leave docs/cluster.md as it is")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--wrong", default="", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive is not None:
        from benchmarks import cluster  # by its name, which the machines know, and not __main__

        cluster.drive(options.drive, options.wrong, options.seconds)
        return
    tables = {}
    if options.only != "scaling":
        if os.geteuid() != 0:
            raise SystemExit("Making machines takes root; --only scaling does not.")
        tables["accidents"] = accidents(options.cases)
    if options.only != "accidents":
        tables["scaling"] = scaling()
    for name, table in tables.items():
        print(table)
        if not options.print:
            write(name, table)


if __name__ == "__main__":
    main()
