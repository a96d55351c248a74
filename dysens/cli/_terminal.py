"""Input and output of the program: argparse with help that fits a screen; results on standard output, messages on error."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout
from itertools import chain
from pathlib import Path
from threading import Thread, Timer, current_thread, main_thread
from types import FrameType
from typing import Any, ClassVar, NoReturn, TextIO

from dysens.errors import nearest
from dysens.flags import DYSENS, Spelling


class Output:
    """What a command says.

    Args:
        results: Gets results and nothing else.
        as_json: Results are JSON.
        quiet: Only results, warnings and errors are shown.
    """

    def __init__(self, results: TextIO, as_json: bool = False, quiet: bool = False) -> None:
        self._results = results
        self.as_json = as_json
        self.quiet = quiet

    @property
    def width(self) -> int | None:
        """Columns of the terminal that shows the results; None if it is a file or another program."""
        return shutil.get_terminal_size().columns if self._results.isatty() else None

    def result(self, text: str, data: Any) -> None:
        """What was asked for: as text, or as data with ``--json``."""
        self._results.write((json_text(data) if self.as_json else text) + "\n")
        self._results.flush()

    def printing(self) -> AbstractContextManager[TextIO]:
        """For what prints its results itself."""
        return redirect_stdout(self._results)

    def say(self, text: str) -> None:
        """Print a message for the user to standard error."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def say_replaced(self, path: Path | None) -> None:
        """Nothing is overwritten without a word.

        Args:
            path: What is about to be written; None for nothing.
        """
        if path is not None and path.exists():
            self.say(f"{path} is there from an earlier run; it is replaced.")


def json_text(data: Any) -> str:
    """Strict JSON; what is no finite number is null."""
    return json.dumps(_strict(data), allow_nan=False, ensure_ascii=False, indent=1)


def _strict(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _strict(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_strict(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data


# What Paddle's C++ prints to standard output, and a user of a command cannot act on.
_REMARKS = re.compile(rb"\w*CheckIfOneDNNSupport\s*$|.*No ccache found")


@contextmanager
def results_apart(debug: bool = False) -> Iterator[TextIO]:
    """Standard output for results alone: what anybody else prints, in Python or in C++, goes to standard error.

    Args:
        debug: Show Paddle's own remarks too.
    """
    results = sys.stdout
    try:
        kept = os.dup(1)
    except OSError:  # it is closed
        with redirect_stdout(sys.stderr):
            yield results
        return
    results.flush()
    reading, writing = os.pipe()
    passing = Thread(target=_pass_on, args=(reading, debug), daemon=True)
    passing.start()
    try:
        os.dup2(writing, 1)
        os.close(writing)
        with ExitStack() as opened, redirect_stdout(sys.stderr):
            if _is_descriptor(results, 1):
                # A terminal that knows only ASCII gets escapes for names beyond it, rather than nothing.
                settings: dict[str, Any] = {"encoding": results.encoding, "errors": "backslashreplace"}
                results = opened.enter_context(os.fdopen(os.dup(kept), "w", **settings))
            yield results
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        passing.join(timeout=1)  # a process that outlives the command may still hold the other end


@contextmanager
def interrupts_first() -> Iterator[None]:
    """Raise KeyboardInterrupt for an error that came after Ctrl-C: Paddle, as it is imported, makes an ImportError of it."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.default_int_handler(number, frame)

    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) != signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield
    except Exception as error:
        if pressed:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def loading_said(shown: bool) -> Iterator[None]:
    """Say on a terminal that Paddle is being loaded, where that takes so long that one wonders.

    Args:
        shown: Whether anything is to be said.
    """

    def say() -> None:
        spec = getattr(sys.modules.get("paddle"), "__spec__", None)
        if getattr(spec, "_initializing", False):  # as Python marks a module whose import is under way
            print("Loading Paddle ...", file=sys.stderr, flush=True)

    timer = Timer(_PATIENCE, say)
    timer.daemon = True
    if shown and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _pass_on(reading: int, debug: bool) -> None:
    """Write what comes through a pipe to standard error, line by line, without Paddle's remarks."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if debug or not _REMARKS.match(line):
                os.write(2, line)


def _is_descriptor(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (AttributeError, OSError, ValueError):  # it is no file: a test's or a notebook's
        return False


WIDTH = 80
_PATIENCE = 1.0  # seconds
USAGE_ERROR = 2


class CommandParser(argparse.ArgumentParser):
    """The options of one command of ``dysens``, or, as a subclass, of one of tools/.

    Attributes:
        spelling: How the program writes the names of options.
        aliases: Other spellings of an option, by its name in Python.
        repeats: Whether the values of a list stand behind each other, and not only with commas.
    """

    spelling: ClassVar[Spelling] = DYSENS
    aliases: ClassVar[Mapping[str, Sequence[str]]] = {
        "sen_file": ["-o"],
        "output": ["-o"],
        "evaluator": ["-e"],
        "skip_vars": ["--skip"],
        "quiet": ["-q"],
    }
    repeats: ClassVar[bool] = False

    def __init__(self, **settings: Any) -> None:
        settings = {"formatter_class": _OneLineEach, **settings}
        # Without abbreviations: what works today must not become ambiguous with a new option.
        super().__init__(allow_abbrev=False, add_help=False, **settings)
        self.add_argument("-h", "--help", action="help", help="show this")

    def option(self, name: str, **settings: Any) -> None:
        """Add an option.

        Args:
            name: Its name in Python; the program spells it.
            settings: As `argparse.ArgumentParser.add_argument` takes them.
        """
        flags = [*self.aliases.get(name, ()), self.spelling.flag(name)]
        flags.sort(key=lambda flag: flag.startswith("--"))
        self.add_argument(*flags, dest=name, **settings)

    def list_option(self, name: str, read: Callable[[str], list[Any]], **settings: Any) -> None:
        """Add an option with several values, which may also be given several times."""
        nargs = {"nargs": "+"} if self.repeats else {}
        self.option(name, type=read, action=_ExtendAll, **nargs, **settings)

    def reject(self, unknown: Sequence[str]) -> NoReturn:
        """End the program: there is no such option."""
        known = [name for action in self._actions for name in action.option_strings]
        word = unknown[0].partition("=")[0]
        if len(word) == 2 and word.startswith(
            "-"
        ):  # any two letters with a dash are alike: suggest by the letter
            known = [name for name in known if name.startswith(f"-{word}")]
            hint = f'; did you mean "{known[0]}"?' if len(known) == 1 else "."
        elif word.startswith("-"):
            hint = nearest(word, known) or "."
        else:
            hint = "; several values of an option are written with commas: --ratios 0.25,0.5"
        self.error(f'unexpected argument "{word}"{hint}')

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The options; ends the program with a sentence if there is one that does not exist."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.reject(unknown)
        return options

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 for invalid usage."""
        sentence = message[:1].upper() + message[1:]  # argparse's own begin small
        self.exit(USAGE_ERROR, f"error: {sentence}\n`{self.prog} --help` lists the options.\n")


class _ExtendAll(argparse.Action):
    """Concatenate the lists of an option that is given several times."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Called once for every time that the option is given."""
        lists = values if self.nargs == "+" else [values]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), *chain.from_iterable(lists)])


class _OneLineEach(argparse.RawDescriptionHelpFormatter):
    """An option with its value on the line of its help, and the same on every terminal, so that 80 columns are enough."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=WIDTH)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """An argument that is one of these names; ``choices`` of argparse would not suggest one."""

    def read(text: str) -> str:
        if text not in names:
            hint = nearest(text, names) or f"; there are {', '.join(names)}."
            raise argparse.ArgumentTypeError(f'"{text}" is not known{hint}')
        return text

    return read


def number(text: str) -> float:
    """A number, or a share in percent: 50% is 0.5."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number.') from None


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number of at least 1.')
    return int(text)


def numbers(text: str) -> list[float]:
    """Numbers with commas or spaces between them."""
    return [number(part) for part in names(text)]


def names(text: str) -> list[str]:
    """Names with commas or spaces between them."""
    return [part for part in re.split(r"[,\s]+", text) if part]


def shape(text: str) -> list[int]:
    """A shape such as ``1,3,224,224``."""
    try:
        return [int(side) for side in text.replace("x", ",").split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a shape such as 1,3,224,224.') from None
