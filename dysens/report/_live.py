"""A page that follows a run: served on this machine only, and updated as points or states come."""

from __future__ import annotations

import json
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

from dysens.errors import DysensError, InputError
from dysens.report._card import card_page
from dysens.report._card_data import CARD_JSON, read_card
from dysens.report._page import report_page
from dysens.results import Owner, Sensitivities

HOST = "127.0.0.1"
SECONDS = 2.0  # between two looks, of the browser and of the server
_GRACE = 3  # so many looks after the end, a browser has seen the last page
_QUIET = 120.0  # seconds after which a journal that nobody claims points in counts as done
_CLOSED = "default-src 'none';"
_POLL = """<style>
#live { position: fixed; right: .6rem; bottom: .6rem; padding: .2rem .7rem; border-radius: 1rem; }
#live { color: #fff; background: #1d6f42; font: 13px system-ui, sans-serif; }
#live.over { background: #555; }
@media print { #live { display: none; } }
</style><p id="live" role="status"></p><script>
(function () {
  const shown = %s, root = document.documentElement, find = (id) => document.getElementById(id);
  const words = {en: ["live", "the run is over"], zh: ["实时", "运行已结束"]};
  let missed = 0;
  function tell() {
    const over = missed > 1;
    find("live").textContent = words[root.lang.startsWith("zh") ? "zh" : "en"][over ? 1 : 0];
    find("live").classList.toggle("over", over);
  }
  let kept = {};  // what the reader has set stays set when the page loads itself anew
  try { kept = JSON.parse(sessionStorage.getItem("dysens")) ?? {}; } catch { /* storage is turned off */ }
  if (kept.lang && kept.lang !== root.lang) find("language")?.click();
  if (kept.theme && kept.theme !== root.dataset.theme) find("theme")?.click();
  const exact = find("exact");
  if (exact && kept.exact) {
    exact.value = kept.exact;
    for (const kind of ["input", "change"]) exact.dispatchEvent(new Event(kind));
  }
  for (const id of ["slider", "exact"]) find(id)?.addEventListener("input", () => { kept.exact = exact.value; });
  find("language")?.addEventListener("click", () => { kept.lang = root.lang; tell(); });
  find("theme")?.addEventListener("click", () => { kept.theme = root.dataset.theme; });
  function reload() {
    try { sessionStorage.setItem("dysens", JSON.stringify(kept)); } catch { /* storage is turned off */ }
    location.reload();
  }
  setInterval(async () => {
    try {
      const answer = await fetch("/version", {cache: "no-store"});
      missed = 0;
      if (answer.ok && (await answer.text()) !== shown) reload();
    } catch { /* the run is over, and so is the server: the page stays */
      missed += 1;
    }
    tell();
  }, %d);
  tell();
})();
</script>
"""
_WAITING = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>dysens</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
</head><body style="font: 16px system-ui, sans-serif; margin: 3rem">
<p>Waiting for the first result … 等待第一个结果……</p></body></html>"""


class Watched:
    """What is watched: a journal that points are appended to, or the folder of a compressed model with its card.

    Args:
        path: The journal, or the folder; it need not be there yet.
    """

    def __init__(self, path: str | Path) -> None:
        given = Path(path)
        self.path = given / CARD_JSON if given.is_dir() or not given.suffix else given
        self._known = ("", "")  # version and page
        self._lock = Lock()

    @property
    def is_card(self) -> bool:
        """Whether it is a card, and not a journal."""
        return self.path.name == CARD_JSON

    def version(self) -> str:
        """Another one whenever the file is another one."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return "none"
        return f"{found.st_mtime_ns}-{found.st_size}"

    def page(self) -> str:
        """The page of the file as it is now; it asks for another one when there is one."""
        with self._lock:
            version = self.version()
            if self._known[0] != version:
                self._known = version, _live(self._page(), version)
            return self._known[1]

    def _page(self) -> str:
        if not self.path.is_file():
            return _WAITING
        try:
            if self.is_card:
                return card_page(read_card(self.path))
            sens = Sensitivities.load(self.path)
            return report_page(sens, budgets=False) if sens or sens.partial_points else _WAITING
        except DysensError:
            return _WAITING  # it is just being begun: a header without points, a line without its end

    def is_running(self) -> bool:
        """Whether a process on this machine goes on with it, as far as the file tells."""
        if not self.path.is_file():
            return False
        if self.is_card:
            try:
                return read_card(self.path).running
            except InputError:
                return True
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not any('"claim"' in line for line in lines):  # a search claims nothing: is it still written to?
            return time.time() - self.path.stat().st_mtime < _QUIET
        return any(owner.is_local and owner.is_alive() for owner in _owners(lines))


def _owners(lines: Iterable[str]) -> set[Owner]:
    """The processes that have said in a journal that they compute a point which is not there yet."""
    found: dict[tuple[str, float], Owner] = {}
    for line in lines:
        try:
            fields = json.loads(line)
            kind = fields.get("kind")
            if kind == "point":
                found.pop((fields["param"], fields["ratio"]), None)
            elif kind in ("claim", "release"):
                owner = Owner(str(fields["host"]), int(fields["pid"]), float(fields["started"]))
                if kind == "claim":
                    found[fields["param"], fields["ratio"]] = owner
                else:
                    found = {key: other for key, other in found.items() if other != owner}
        except (ValueError, AttributeError, KeyError, TypeError):
            continue  # a line of another kind, or one that is just being written
    return set(found.values())


def _live(page: str, version: str) -> str:
    opened = page.replace(_CLOSED, f"{_CLOSED} connect-src 'self';", 1)
    before, body, after = opened.rpartition("</body>")
    return f"{before}{_POLL % (json.dumps(version), round(1000 * SECONDS))}{body}{after}"


def _handler(watched: Watched) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Two addresses, for this machine only."""

        # Browsers connect before they ask. Such a connection would be answered after the end, and the page reloaded from nowhere.
        timeout = SECONDS / 4

        def do_GET(self) -> None:
            # A name of another site that leads here (DNS rebinding) gets nothing.
            if self.headers.get("Host", "").rpartition(":")[0] not in (HOST, "localhost"):
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path == "/":
                self._answer(watched.page(), "text/html; charset=utf-8")
            elif self.path == "/version":
                self._answer(watched.version(), "text/plain; charset=utf-8")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, text: str, kind: str) -> None:
            data = text.encode("utf-8", "replace")
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody wants to read of every look."""

    return Handler


def watch(
    path: str | Path,
    port: int = 0,
    opened: bool = False,
    say: Callable[[str], None] = print,
    seconds: float = SECONDS,
) -> None:
    """Serve the page of a run until the run ends; without a run, until Ctrl-C.

    Args:
        path: A journal, or the folder of a compressed model.
        port: Where to serve; 0 for any that is free.
        opened: Whether to open a browser.
        say: Gets what a user wants to read.
        seconds: Between two looks at whether the run goes on.

    Raises:
        InputError: The port is taken.
    """
    watched = Watched(path)
    with _serving(watched, port) as address:
        say(f"{watched.path} is shown at {address} (this machine only).")
        if opened:
            webbrowser.open(address)
        if not watched.is_running():
            say(
                "No process on this machine is writing to it. Waiting for a run to begin and end; Ctrl-C stops."
            )
        _wait(watched, seconds)
        say("The run is over.")


@contextmanager
def shown_live(
    path: str | Path, opened: bool = True, say: Callable[[str], None] = print, seconds: float = SECONDS
) -> Iterator[str]:
    """Serve the page of a run that this process is about to do, for as long as the block lasts.

    Args:
        path: See `watch`.
        opened: Whether to open a browser.
        say: See `watch`.
        seconds: How long to wait at the end, so that a browser has seen the last page.
    """
    watched = Watched(path)
    with _serving(watched, 0) as address:
        say(f"{watched.path} is shown at {address} (this machine only) while this runs.")
        if opened:
            webbrowser.open(address)
        yield address
        time.sleep(1.25 * seconds)


@contextmanager
def _serving(watched: Watched, port: int) -> Iterator[str]:
    """The address at which the page is served, on this machine only."""
    try:
        server = ThreadingHTTPServer((HOST, port), _handler(watched))
    except (OSError, OverflowError) as error:
        raise InputError(
            f"The port {port} cannot be used ({error}): leave it out, and a free one is taken."
        ) from error
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    serving.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def _wait(watched: Watched, seconds: float) -> None:
    """Until a run that was seen has ended, and browsers had time to see its last page."""
    seen, over = False, 0
    while over < _GRACE:
        running = watched.is_running()
        seen = seen or running
        over = 0 if running or not seen else over + 1
        time.sleep(seconds)
