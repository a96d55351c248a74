"""What a new user does wrong on the first day, and what the program answers. Writes the table of docs/mistakes.md.

    .venvs/paddle3/bin/python benchmarks/mistakes.py          # run all, write the page
    .venvs/paddle3/bin/python benchmarks/mistakes.py 16 38    # run these, print what is said

Every mistake is made for real, in a scratch folder, with a small network. Ctrl-C is a real SIGINT, which an evaluation sends, or
which comes as soon as a certain file is there or a certain function of dysens is called; a full disk is a limit on the size of
files, and a package that is not installed is one that Python does not find.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

HOME = Path(__file__).parent.parent
DOCS, CONFIGS = HOME / "docs", HOME / "configs"
PAGE = DOCS / "mistakes.md"
BEGIN, END = "<!-- table: benchmarks/mistakes.py -->", "<!-- end of table -->"

NETWORK = '''
import signal

import paddle

SHAPE = "1,3,16,16"


def build(width=8):
    paddle.seed(0)
    return paddle.nn.Sequential(
        paddle.nn.Conv2D(3, width, 3, padding=1), paddle.nn.ReLU(),
        paddle.nn.Conv2D(width, 16, 3, padding=1), paddle.nn.ReLU(),
        paddle.nn.AdaptiveAvgPool2D(1), paddle.nn.Flatten(), paddle.nn.Linear(16, 4),
    )


def no_model():
    return "a network"


def images():
    paddle.seed(1)
    return [paddle.randn([4, 3, 16, 16]) for _ in range(4)]


def small_images():
    return [paddle.randn([4, 1, 16, 16])]


def nan_images():
    return [paddle.full([4, 3, 16, 16], float("nan"))]


def nothing():
    return []


def score(model):
    paddle.seed(2)
    return 0.5 + float(model(paddle.randn([8, 3, 16, 16])).abs().mean())


def zero(model):
    return 0.0


def nan(model):
    return float("nan")


def forgets(model):
    score(model)


def two_arguments(model, data):
    return 1.0


def press():
    signal.raise_signal(signal.SIGINT)


calls = 0


def interrupted(model):
    """Ctrl-C at the fourth evaluation."""
    global calls
    calls += 1
    if calls % 4 == 0:
        press()
    return score(model)


def once(model):
    """Ctrl-C at the second evaluation."""
    global calls
    calls += 1
    if calls > 1:
        press()
    return score(model)


def interrupted_images():
    yield paddle.randn([4, 3, 16, 16])
    press()


def interrupted_build():
    press()
    return build()
'''

NET = "net:build --input-shape 1,3,16,16"
OCR, DET = "configs/ocr/ch_PP-OCRv3_det.yml", "configs/det/picodet_s_shapes.yml"

# A sweep does not begin where there is no room for this much (`dysens.atomic.probe`).
CROWDED = 64 * 1024


@dataclass(frozen=True)
class Mistake:
    """One of them.

    Attributes:
        what: In words, what is wrong.
        typed: After ``dysens``, as in a shell.
        missing: A package that is not installed, as Python imports it.
        disk: The largest file that can be written, in bytes; None for a disk with room.
        variable: An environment variable that is set, and its value.
        ctrl_c_at: Ctrl-C is pressed as soon as there is such a file (a pattern); else ``net.py`` presses it, or nobody.
        ctrl_c_in: Ctrl-C is pressed as this function is called: its module, and its name in there.
    """

    what: str
    typed: str
    missing: str | None = None
    disk: int | None = None
    variable: tuple[str, str] | None = None
    ctrl_c_at: str | None = None
    ctrl_c_in: tuple[str, str] | None = None

    @property
    def apart(self) -> bool:
        """Whether it needs a process of its own."""
        given = (self.disk, self.variable, self.ctrl_c_at, self.ctrl_c_in, self.missing)
        return any(each is not None for each in given)


MISTAKES = (
    Mistake("no command", ""),
    Mistake("a command misspelt", "comprss mobilenet_v1 --flops 50%"),
    Mistake("an option before the command", "--debug groups mobilenet_v1"),
    Mistake("an option misspelt", "show sens.jsonl --sotr loss"),
    Mistake("values with spaces instead of commas", f"sweep {NET} -e net:score --ratios 0.25 0.5"),
    Mistake("a model misspelt", "groups mobilnet_v1"),
    Mistake("a module that is not there", "groups nte:build --input-shape 1,3,16,16"),
    Mistake("a function misspelt", "groups net:biuld --input-shape 1,3,16,16"),
    Mistake("a function that returns no model", "groups net:no_model --input-shape 1,3,16,16"),
    Mistake("an argument that the function does not take", f"groups {NET} --set depth=3"),
    Mistake("no input shape", "groups net:build"),
    Mistake("a shape that is none", "groups net:build --input-shape 1,3,a"),
    Mistake("a shape with the wrong channels", "groups net:build --input-shape 1,4,16,16"),
    Mistake("a shape without the batch", "groups net:build --input-shape 3,16,16"),
    Mistake("a config that is not there", "groups configs/det.yml"),
    Mistake("a config that is not YAML", "groups broken.yml"),
    Mistake("a config of another program", "groups other.yml"),
    Mistake("a folder without a model", "groups empty"),
    Mistake("no budget", f"compress {NET}"),
    Mistake("a percentage without its sign", f"compress {NET} --flops 50"),
    Mistake("more than everything", f"compress {NET} --flops 150%"),
    Mistake("a budget that is no number", f"compress {NET} --flops half"),
    Mistake("two budgets", f"compress {NET} --flops 50% --params 50%"),
    Mistake("a budget out of reach", f"compress {NET} --data net:images --flops 99%"),
    Mistake("a result that would be overwritten", f"compress {NET} --data net:images --flops 30% -o done"),
    Mistake("a file where a folder should be", f"compress {NET} --data net:images --flops 30% -o sens.jsonl"),
    Mistake("weights that are not there", f"groups {NET} --weights best.pdparams"),
    Mistake("weights of another network", f"groups {NET} --weights wide.pdparams"),
    Mistake("weights that are a text file", f"groups {NET} --weights notes.pdparams"),
    Mistake("weights that would run code", f"groups {NET} --weights hostile.pdparams"),
    Mistake("data with the wrong channels", f"compress {NET} --data net:small_images --flops 50%"),
    Mistake("data with NaN", f"compress {NET} --data net:nan_images --flops 50%"),
    Mistake("no data at all", f"compress {NET} --data net:nothing --flops 50%"),
    Mistake("a sweep without a metric", f"sweep {NET}"),
    Mistake("a metric that returns nothing", f"sweep {NET} -e net:forgets -o a.jsonl"),
    Mistake("a metric that is 0", f"sweep {NET} -e net:zero -o a.jsonl"),
    Mistake("a metric that is NaN", f"sweep {NET} -e net:nan -o a.jsonl"),
    Mistake("a metric with two arguments", f"sweep {NET} -e net:two_arguments -o a.jsonl"),
    Mistake("a ratio of 1 or more", f"sweep {NET} -e net:score -o a.jsonl --ratios 0.5,1.5"),
    Mistake("a criterion misspelt", f"sweep {NET} -e net:score -o a.jsonl --criterion fgpm"),
    Mistake("a layer that is not there", f"sweep {NET} -e net:score -o a.jsonl --only backbone.*"),
    Mistake("a journal of another model", f"sweep {NET} --set width=12 -e net:score -o sens.jsonl"),
    Mistake("a journal that is another file", f"sweep {NET} -e net:score -o notes.pdparams"),
    Mistake("a full disk at the beginning", f"sweep {NET} -e net:score -o full.jsonl --ratios 0.5", disk=0),
    Mistake("a file that is not there", "show sens.json"),
    Mistake("a file of another kind", "show net.py"),
    Mistake("ratios without a target", "ratios sens.jsonl"),
    Mistake("a target out of reach", "ratios sens.jsonl --flops 99%"),
    Mistake("ratios of another model", f"prune {NET} others.yml"),
    Mistake("ratios in percent", f"prune {NET} percent.yml"),
    Mistake("journals of two models", "merge sens.jsonl wide.jsonl -o both.jsonl"),
    Mistake("a result that is there already", "convert sens.jsonl -o done/sens.json"),
    Mistake("a picture of an unknown kind", "plot sens.jsonl -o curves.doc"),
    Mistake("training without a training loop", f"train {NET}"),
    Mistake("an exported model that is not there", f"eval {OCR} --exported out"),
    Mistake(
        "a package that is not installed", f"sweep {NET} -e net:score --visualdl log", missing="visualdl"
    ),
    Mistake(
        "Ray that is not installed",
        f"sweep {NET} -e net:score -o a.jsonl --workers 2 --ray auto",
        missing="ray",
    ),
    Mistake("Paddle that is not installed", "groups mobilenet_v1", missing="paddle"),
    Mistake("Ctrl-C while the model is built", "groups net:interrupted_build --input-shape 1,3,16,16"),
    Mistake("Ctrl-C in a sweep", f"sweep {NET} -e net:interrupted -o cut.jsonl"),
    Mistake("Ctrl-C in a search", f"search {NET} -e net:interrupted -o cut-search.jsonl"),
    Mistake(
        "Ctrl-C while compress reads its data",
        f"compress {NET} --data net:interrupted_images --flops 30% -o cut",
    ),
    Mistake(
        "Ctrl-C while compress scores", f"compress {NET} --data net:images -e net:once --flops 30% -o cut"
    ),
    Mistake(
        "a disk that becomes full during a sweep",
        f"sweep {NET} -e net:score -o crowded.jsonl",
        disk=CROWDED + 1024,
    ),
    Mistake("a key of a config misspelt", f"groups {OCR} --set Globl.use_gpu=true"),
    Mistake("a value where a section is", f"groups {OCR} --set Global=3"),
    Mistake(
        "a label file that is not there",
        f"eval {OCR} --weights null --set Eval.dataset.label_file_list=[labels.txt]",
    ),
    Mistake(
        "a label file with spaces for tabs",
        f"eval {OCR} --weights null --set Eval.dataset.label_file_list=[spaces.txt]",
    ),
    Mistake("a PaddleOCR folder that is none", f"groups {OCR}", variable=("PADDLEOCR_HOME", "empty")),
    Mistake("Ctrl-C in an export", f"export {NET} -o exported", ctrl_c_at=".exported.*/*.pdiparams"),
    Mistake(
        "Ctrl-C while compress exports",
        f"compress {NET} --data net:images --flops 30% --export -o cut-export",
        ctrl_c_at="cut-export/.inference.*/*.pdiparams",
    ),
    Mistake("Ctrl-C in training", f"train {OCR} --weights null", ctrl_c_at="output/*/latest.pdopt"),
    Mistake("an exported model scored by a function", f"eval {NET} -e net:score --exported out"),
    Mistake(
        "OpenVINO that is not installed",
        f"compress {NET} --data net:images --latency 20% --runtime openvino -o timed",
        missing="openvino",
    ),
    Mistake(
        "ONNX Runtime that is not installed",
        f"compress {NET} --data net:images --latency 20% --runtime onnxruntime -o timed",
        missing="onnxruntime",
    ),
    Mistake("paddle2onnx that is not installed", f"export {NET} --onnx -o as-onnx", missing="paddle2onnx"),
    Mistake("PaddleOCR that is not installed", f"groups {OCR}", missing="unstructured_paddleocr"),
    Mistake("PaddleDetection that is not installed", f"groups {DET}", missing="ppdet"),
    *(
        Mistake(
            f"Ctrl-C while compress {doing}",
            f"compress {NET} --data net:images -e net:score --flops 30% -o cut",
            ctrl_c_in=place,
        )
        for doing, place in (
            ("calibrates", ("dysens.compress._compress", "calibrated")),
            ("orders channels", ("dysens.compress._criterion", "Elimination.order")),
            ("decides", ("dysens.compress._decide", "Decider.decide")),
            ("allocates by trial", ("dysens.compress._decide", "curves_by_trial")),
            ("checks the cut", ("dysens.compress._compress", "_checked")),
            ("saves", ("dysens.pipeline._compress", "save_pruned")),
            ("times the result", ("dysens.pipeline._states", "States.time")),
        )
    ),
    Mistake(
        "Ctrl-C while groups are found",
        f"groups {NET}",
        ctrl_c_in=("dysens.engines._analysis", "difference"),
    ),
    Mistake(
        "Ctrl-C while prune saves",
        f"prune {NET} ratios.yml -o cut-pruned",
        ctrl_c_in=("dysens.pruning._checkpoint", "write_together"),
    ),
    Mistake(
        "a disk that becomes full while compress saves",
        f"compress {NET} --data net:images --flops 30% -o crowded",
        disk=2048,
    ),
    Mistake(
        "a disk that becomes full while prune saves", f"prune {NET} ratios.yml -o full/pruned", disk=2048
    ),
    Mistake("a disk that becomes full in an export", f"export {NET} -o full-export", disk=2048),
    Mistake("the same sweep a second time", f"sweep {NET} -e net:score -o sens.jsonl --ratios 0.25,0.5"),
    Mistake("prune a second time, to the same name", f"prune {NET} ratios.yml -o done/pruned"),
    Mistake("export a second time, into the same folder", f"export {NET} -o earlier-export"),
    Mistake("ratios a second time, to the same file", "ratios sens.jsonl --flops 0.2 -o ratios.yml"),
)


def prepare(folder: Path) -> None:
    """Write the files that the mistakes are about."""
    import pickle

    from dysens.cli import main
    from dysens.data import write_scenes

    (folder / "net.py").write_text(NETWORK, encoding="utf-8")
    (folder / "broken.yml").write_text("Global: [1, 2\n", encoding="utf-8")
    (folder / "other.yml").write_text("name: my workflow\n", encoding="utf-8")
    (folder / "notes.pdparams").write_text("remember the milk\n", encoding="utf-8")
    (folder / "others.yml").write_text("backbone.conv1.weight: 0.5\n", encoding="utf-8")
    (folder / "percent.yml").write_text("0.weight: 50\n", encoding="utf-8")
    (folder / "ratios.yml").write_text("0.weight: 0.25\n", encoding="utf-8")
    (folder / "hostile.pdparams").write_bytes(pickle.dumps({"a": _Harmful()}))
    for name in ("empty", "done"):
        (folder / name).mkdir()
    shutil.copytree(CONFIGS, folder / "configs")
    for part in ("det_train", "det_eval"):
        write_scenes(folder / "output" / "text_images" / part, 4, size=(128, 64))
    (folder / "spaces.txt").write_text(
        'a.png [{"transcription": "OPEN", "points": [[0, 0], [9, 0], [9, 9], [0, 9]]}]\n'
    )
    (folder / "done" / "sens.json").write_text("{}", encoding="utf-8")
    (folder / "crowded.jsonl").write_bytes(b"\n" * CROWDED)  # empty lines are skipped
    with _quiet():
        for words in (
            f"sweep {NET} -e net:score -o sens.jsonl --ratios 0.25,0.5",
            f"sweep {NET} --set width=12 -e net:score -o wide.jsonl --ratios 0.25,0.5",
            f"compress {NET} --data net:images --flops 30% -o done --force",
            f"export {NET} -o earlier-export",
        ):
            if main(shlex.split(words)):
                raise SystemExit(f"`dysens {words}` has to work, and did not.")
        import net
        import paddle

        paddle.save(net.build(12).state_dict(), str(folder / "wide.pdparams"))


class _Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo harm",)


@contextlib.contextmanager
def _quiet():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def answer(mistake: Mistake) -> tuple[int, str]:
    """The exit code, and what was said on standard error.

    Args:
        mistake: Is made in the current folder, where `prepare` was.
    """
    words = shlex.split(mistake.typed)
    if mistake.apart:
        return _apart(mistake, words)
    from dysens.cli import main

    said = io.StringIO()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(said),
        mock.patch.object(sys, "argv", ["dysens"]),
    ):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup ignores it
        try:
            code = main(words)
        finally:
            signal.signal(signal.SIGINT, before)
    return code, said.getvalue()


PRESSING = """
import glob, os, signal, threading, time
def press():
    while not glob.glob({0!r}):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=press, daemon=True).start()
"""


MISSING = """
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, *given):
        return None if name.partition(".")[0] == {0!r} else self.finder.find_spec(name, *given)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
"""

PRESSING_IN = """
import importlib, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
owner = importlib.import_module({0!r})
*outer, name = {1!r}.split(".")
for each in outer:
    owner = getattr(owner, each)
def pressed(*given, called=getattr(owner, name), **named):
    os.kill(os.getpid(), signal.SIGINT)
    return called(*given, **named)
setattr(owner, name, pressed)
"""


def _apart(mistake: Mistake, words: list[str]) -> tuple[int, str]:
    code = [
        "import sys; sys.argv = ['dysens']",
        PRESSING.format(mistake.ctrl_c_at) if mistake.ctrl_c_at else "",
        "import dysens" if mistake.ctrl_c_in else "",
        PRESSING_IN.format(*mistake.ctrl_c_in) if mistake.ctrl_c_in else "",
        MISSING.format(mistake.missing) if mistake.missing else "",
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
        if mistake.disk is not None
        else "",
        f"from dysens.cli import main; import {'paddle' if mistake.disk is not None else 'sys'}",
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({mistake.disk}, {mistake.disk}))"
        if mistake.disk is not None
        else "",
        f"sys.exit(main({words!r}))",
    ]
    paths = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"TMPDIR": os.getcwd(), "PYTHONPATH": paths}
    if mistake.disk is not None:
        variables["PYTHONDONTWRITEBYTECODE"] = (
            "1"  # what Python compiled would be cut off, and break later runs
        )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables, **dict([mistake.variable] if mistake.variable else [])},
        check=False,
    )
    return done.returncode, done.stderr


def gist(said: str) -> str:
    """The lines that answer the mistake: from the error or the interruption on, on one line."""
    lines = [line.strip() for line in said.strip().splitlines()]
    first = next(
        (place for place, line in enumerate(lines) if line.startswith(("error:", "Interrupted", "usage:"))), 0
    )
    kept = [line for line in lines[first:] if line and "found and proven in" not in line]  # seconds differ
    return " ⏎ ".join(kept[:1] if kept and kept[0].startswith("usage:") else kept[:3])


@contextlib.contextmanager
def scratch():
    """A folder to make mistakes in, which is the current one meanwhile."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        try:
            prepare(folder)
            yield folder
        finally:
            os.chdir(before)
            sys.path.remove(str(folder))
            sys.modules.pop("net", None)


def row(number: int, mistake: Mistake, code: int, said: str, folder: Path) -> str:
    """A line of the table."""
    plain = gist(said).replace(str(folder), "/home/me").replace("|", "\\|").replace("<", "&lt;")
    typed = f"`dysens {mistake.typed}`".replace(" `", "`")
    return f"| {number} | {mistake.what} | {typed} | {code} | {plain} |"


def table(folder: Path, numbers: list[int]) -> list[str]:
    """The rows of these mistakes, each made anew."""
    rows = []
    for number in numbers:
        mistake = MISTAKES[number - 1]
        code, said = answer(mistake)
        rows.append(row(number, mistake, code, said, folder))
    return rows


def main(words: list[str]) -> int:
    """Make the mistakes, and write the page, or print some."""
    numbers = [int(word) for word in words] or list(range(1, len(MISTAKES) + 1))
    with scratch() as folder:
        rows = table(folder, numbers)
    if words:
        print("\n".join(rows))
        return 0
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    head = "| | what is wrong | what is typed | exit code | what is said |\n|---|---|---|---|---|"
    PAGE.write_text("\n".join([f"{before}{BEGIN}", head, *rows, f"{END}{after}"]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
