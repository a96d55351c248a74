"""Help, misspelt words, exit codes: what holds for every command."""

from __future__ import annotations

import json
import signal

import pytest
from interrupting import interrupts_raise

from dysens import __version__
from dysens.cli import COMMANDS, parser
from dysens.cli._terminal import interrupts_first

EVERY = sorted(COMMANDS)


def example_words(name):
    """What stands after ``dysens`` in the examples of a command."""
    lines = COMMANDS[name].example.replace("\\\n", " ").splitlines()
    words = [line.partition(" | ")[0].split() for line in lines]
    assert all(each[0] == "dysens" for each in words)
    return [each[1:] for each in words]


def test_the_overview_names_every_command_on_one_screen(dysens):
    done = dysens("--help")
    assert done.code == 0
    assert all(f"  {name} " in done.out for name in EVERY)
    assert len(done.out.splitlines()) <= 30
    assert max(map(len, done.out.splitlines())) <= 80


def test_the_commands_are_the_promised_ones():
    promised = "compress watch groups sweep search ratios prune train eval export characters merge show plot report convert demo"
    assert set(promised.split()) == set(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_the_help_of_a_command_fits_a_screen_and_has_an_example(dysens, name):
    done = dysens(name, "--help")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines.index("example:") <= 44
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(f"  dysens {name} ") for line in lines[lines.index("example:") :])
    assert dysens("help", name).out == done.out


@pytest.mark.parametrize("name", EVERY)
def test_every_option_has_a_line_of_help(name):
    own = parser().parse_args(example_words(name)[0]).parser
    assert all(action.help for action in own._actions)


@pytest.mark.parametrize("name", EVERY)
def test_every_example_is_a_command_that_can_be_read(name):
    for words in example_words(name):
        assert words[0] == name
        assert parser().parse_args(words).command == name


def test_the_version(dysens):
    assert dysens("--version").out == f"dysens {__version__}\n"


def test_no_command_shows_the_overview_and_is_a_mistake(dysens):
    done = dysens()
    assert (done.code, done.out) == (2, "")
    assert "usage: dysens COMMAND" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["swep"], 'no command "swep"; did you mean "sweep"?'),
        (["--debug", "show"], "options follow it"),
        (["xyzzy"], 'no command "xyzzy".'),
        (["show", "a.jsonl", "--sotr", "loss"], 'Unexpected argument "--sotr"; did you mean "--sort"?'),
        (["show", "a.jsonl", "--sotr=loss"], 'did you mean "--sort"?'),
        (["show", "a.jsonl", "b.jsonl"], 'Unexpected argument "b.jsonl"; several values'),
        (["show", "a.jsonl", "--sort", "los"], '"los" is not known; did you mean "loss"?'),
        (["show", "a.jsonl", "--loss", "5%%"], '"5%%" is not a number'),
        (["show", "--json"], "required: SENS"),
        (["show", "a.jsonl", "--js"], 'did you mean "--json"?'),
        (["show", "a.jsonl", "-x"], 'Unexpected argument "-x".'),
        (["show", "a.jsonl", "-j"], 'Unexpected argument "-j"; did you mean "--json"?'),
        (["sweep", "net:f", "--ratio", "0.5"], 'did you mean "--ratios"?'),
        (["sweep", "net:f", "--worker", "2"], 'did you mean "--workers"?'),
        (["sweep", "net:f", "--workers", "0"], '"0" is not a whole number of at least 1'),
        (["sweep", "net:f", "--criterion", "fpmg"], 'did you mean "fpgm"?'),
        (["sweep", "net:f", "--input-shape", "1,3,a"], '"1,3,a" is not a shape'),
        (["prune", "net:f", "r.yml", "--flop", "0.5"], 'did you mean "--flops"?'),
        (["prune", "net:f", "--ratios", "r.yml"], 'Unexpected argument "--ratios".'),
        (["merge", "a.jsonl"], "required: -o/--output"),
    ],
)
def test_words_that_make_no_command(dysens, words, said):
    done = dysens(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "--help` lists" in done.err
    assert "Traceback" not in done.err


def test_quiet_has_a_short_form():
    assert parser().parse_args(["show", "a.jsonl", "-q"]).quiet


def test_a_mistake_is_a_sentence_and_debug_shows_where(dysens):
    done = dysens("show", "nowhere.jsonl")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: nowhere.jsonl does not exist, so no sensitivities can be read from it.\n"
    again = dysens("show", "nowhere.jsonl", "--debug")
    assert again.code == 1
    assert "Traceback" in again.err
    assert "error: nowhere.jsonl does not exist" in again.err


def test_json_is_all_there_is_on_standard_output(dysens, journal):
    done = dysens("show", journal, "--json")
    assert done.code == 0
    assert json.loads(done.out)["baseline"] == 0.9


def import_paddle_by_half():
    """As Paddle does: it makes an ImportError of Ctrl-C."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None


def test_an_error_that_ctrl_c_caused_is_an_interruption():
    with interrupts_raise(), pytest.raises(KeyboardInterrupt), interrupts_first():
        import_paddle_by_half()
    with interrupts_raise(), pytest.raises(ImportError), interrupts_first():
        raise ImportError("no such module")
