"""Workers as actors of a Ray cluster: any number of machines, and no folder that they share."""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dysens.errors import InputError, MissingExtraError
from dysens.ratios import checked_number
from dysens.sweep._executors import (
    Answer,
    Executor,
    Factory,
    StartWorker,
    Worker,
    WorkerFailedError,
    WorkerLostError,
    answer_of,
    made_from,
    pickled,
    settle,
)
from dysens.sweep._processes import LINES_TO_SHOW, threads

logger = logging.getLogger(__name__)

_SECONDS_TO_READ_A_LOG = 10.0


class Ray(Executor):
    """Workers on a Ray cluster.

    Args:
        address: "auto" for the cluster that this machine belongs to, or one on this machine alone if there is none; or the
            address of a cluster, such as "10.0.0.1:6379" or "ray://head:10001".
        num_cpus: CPU threads of each worker.
        num_gpus: GPUs of each worker; Ray says which.
        runtime_env: What Ray gives the workers, such as {"working_dir": "."} to bring them your code.
        options: Anything else that ``ray.init`` takes.

    Raises:
        InputError: A number cannot be used.

    Example:
        >>> Ray("10.0.0.1:6379", num_cpus=4)
        Ray('10.0.0.1:6379', num_cpus=4, num_gpus=0)
    """

    def __init__(
        self,
        address: str = "auto",
        num_cpus: float = 1,
        num_gpus: float = 0,
        runtime_env: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(address, str) or not address:
            raise InputError(
                f'The address has to be "auto" or the address of a Ray cluster, not {address!r:.80}.'
            )
        for name, number in (("num_cpus", num_cpus), ("num_gpus", num_gpus)):
            if not checked_number(name, number) >= 0:
                raise InputError(f"{name} has to be 0 or more, not {number}.")
        self._address = address
        self._num_cpus = num_cpus
        self._num_gpus = num_gpus
        self._runtime_env = dict(runtime_env or {})
        self._options = options

    def __repr__(self) -> str:
        """As it was made, without what may be long or secret."""
        return f"Ray({self._address!r}, num_cpus={self._num_cpus:g}, num_gpus={self._num_gpus:g})"

    @contextmanager
    def opened(self, factory: Factory, workers: int) -> Iterator[StartWorker]:
        """Connect, and put what all workers make into the cluster once."""
        ray = _ray()
        told = pickled(factory)
        started: list[_Actor] = []
        ours = self._connect(ray)
        try:
            why = self.why_waiting()
            if why:
                logger.warning("%s", why)
            actor = ray.remote(_Host).options(
                num_cpus=self._num_cpus,
                num_gpus=self._num_gpus,
                # While Ray restarts an actor, calls to it fail at once, so that it could not be waited for: a new one is started.
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
                runtime_env=self._environment(),
            )
            folder = None if "working_dir" in self._runtime_env else os.getcwd()
            paths = [path or os.getcwd() for path in sys.path]
            place = ray.put(told)

            def start(slot: int) -> Worker:
                started.append(_Actor(slot, actor.remote(place, folder, paths)))
                return started[-1]

            yield start
        finally:
            for worker in started:
                worker.end()
            if ours:
                ray.shutdown()

    def _connect(self, ray: Any) -> bool:
        """Be connected; whether this made the connection."""
        if ray.is_initialized():
            return False
        options = {"logging_level": logging.WARNING, "log_to_driver": False, **self._options}
        # Ray looks up the token of its own cluster for "auto" only, not for the address that stands for it.
        address = self._address if self._address != "auto" or _running_cluster() else None
        if address is None or address == "local":
            logger.info("A Ray cluster is started on this machine, for this run.")
            start_alone(ray, **options)
            return True
        try:
            ray.init(address=address, **options)
        except ConnectionError as error:
            raise InputError(
                f"No Ray cluster answers at {address}: {error}. Is it running, and can this machine reach it?"
            ) from error
        return True

    def _environment(self) -> dict[str, Any]:
        # Said outright: Ray leaves an OMP_NUM_THREADS that it inherits as it is, and Paddle sets it to 1.
        said = self._runtime_env.get("env_vars", {})
        return {**self._runtime_env, "env_vars": {**threads(max(1, int(self._num_cpus))), **said}}

    def why_waiting(self) -> str:
        """Whether any machine of the cluster is large enough for a worker."""
        wanted = {"CPU": self._num_cpus, "GPU": self._num_gpus}
        nodes = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
        if any(all(node.get(kind, 0) >= count for kind, count in wanted.items()) for node in nodes):
            return ""
        largest = {kind: max((node.get(kind, 0) for node in nodes), default=0) for kind in wanted}
        return (
            f"A worker needs {self._num_cpus:g} CPUs and {self._num_gpus:g} GPUs, and no machine of the cluster has as many "
            f"(at most {largest['CPU']:g} and {largest['GPU']:g}): it waits for one that has."
        )


def _running_cluster() -> str | None:
    """The cluster that this machine belongs to; None if there is none.

    Ray's own "auto" would also take what another program has started for itself, and which ends with it.
    """
    from ray._private import services

    address: str | None = os.environ.get("RAY_ADDRESS") or services.find_bootstrap_address(None)
    return address


def start_alone(ray: Any, **options: Any) -> None:
    """Start a cluster that no other machine can reach, with usage reports off.

    Args:
        ray: The package.
        options: For ``ray.init``.
    """
    from ray._private import ray_constants

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = ray_constants.ENABLE_RAY_CLUSTER
    # As on Windows and macOS: Ray listens on the loopback only, whereas elsewhere it turns 127.0.0.1 into an outer address.
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init(address="local", **{"include_dashboard": False, **options})
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        old = " Ray needs Python 3.10 or later." if sys.version_info < (3, 10) else ""
        raise MissingExtraError(f'Ray is not installed: pip install "dysens[ray]"{old or "."}') from error
    return ray


class _Actor(Worker):
    """A Ray actor that was started."""

    def __init__(self, slot: int, actor: Any) -> None:
        self.slot = slot
        self._actor = actor
        self._logs = actor.logs.remote()

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Ask the actor."""
        answer: Future[Any] = Future()

        def pass_on(done: Future[Any]) -> None:
            error = done.exception()
            if error is not None:
                answer.set_exception(_translated(error))
            else:
                settle(answer, done.result())

        self._actor.call.remote(method, arguments).future().add_done_callback(pass_on)
        return answer

    def end(self) -> None:
        """Kill the actor; Ray ends its process."""
        ray = _ray()
        with suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self._actor, no_restart=True)

    def last_words(self) -> str:
        """The end of its log, read on its machine."""
        ray = _ray()
        try:
            if not ray.wait([self._logs], timeout=0)[0]:
                return ""
            node, files = ray.get(self._logs)
            if node == ray.get_runtime_context().get_node_id():
                return _end_of(files)
            there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            read = ray.remote(_end_of).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
            return str(ray.get(read.remote(files), timeout=_SECONDS_TO_READ_A_LOG))
        except ray.exceptions.RayError:  # its machine is gone
            return ""


def _translated(error: BaseException) -> Exception:
    """What went wrong with an actor, in the words of executors."""
    exceptions = _ray().exceptions
    words = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, exceptions.ActorDiedError) and "creation task" in str(error):
        return WorkerFailedError(f"Ray cannot start it: {words[-1] if words else error}", str(error))
    if isinstance(
        error,
        (exceptions.RayTaskError, exceptions.RuntimeEnvSetupError, exceptions.ActorUnschedulableError),
    ):
        return WorkerFailedError(f"Ray cannot start it: {words[-1] if words else error}", str(error))
    return WorkerLostError(f"Ray says: {' '.join(words)[:400]}")


class _Host:
    """What runs in an actor: makes the object at the first call, and passes calls on to it.

    Args:
        told: What `pickled` gave.
        folder: The driver's folder, entered if there is such a folder here.
        paths: Where the driver finds modules; they are looked for there too, after this machine's own places.
    """

    def __init__(self, told: bytes, folder: str | None, paths: Sequence[str]) -> None:
        if folder is not None and os.path.isdir(folder):
            os.chdir(folder)
        sys.path.extend(path for path in paths if path not in sys.path and os.path.exists(path))
        self._told: bytes | None = told
        self._made: Any = None

    def logs(self) -> tuple[str, list[str]]:
        """The machine, and the files that what is printed goes to."""
        links = [f"/proc/self/fd/{number}" for number in (1, 2)] if platform.system() == "Linux" else []
        return _ray().get_runtime_context().get_node_id(), [os.readlink(link) for link in links]

    def call(self, method: str, arguments: tuple[Any, ...]) -> Answer:
        """Whether it raised something, and the answer or what was raised in words."""
        return answer_of(lambda: self._called(method, arguments))

    def _called(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if self._told is not None:
            self._made = made_from(self._told)
            self._told = None
        return getattr(self._made, method)(*arguments)


def _end_of(files: list[str]) -> str:
    texts = [
        Path(file).read_text(encoding="utf-8", errors="replace") for file in files if os.path.isfile(file)
    ]
    lines = [line for text in texts for line in text.splitlines()]
    return "\n".join(lines[-LINES_TO_SHOW:])
