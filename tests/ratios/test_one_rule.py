"""One journal, one loss: every way to choose gives the same ratios. One ratio file: every program takes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from results.common import PATHS, header, point

from dysens import get_ratios_by_loss
from dysens.cli import main
from dysens.ratios import Target, read_ratio_file, write_ratio_file
from dysens.report import sensitivity_curves
from dysens.results import Journal, Sensitivities

LOSS = 0.05
# In the first group a lucky point lies beyond a high loss; the second is whole up to where it crosses the threshold.
LOSSES = {"conv2d_0.w_0": (0.02, 0.1, 0.04, 0.3), "conv2d_1.w_0": (-0.01, 0.0, 0.2, float("inf"))}
CAUTIOUS = {"stem.0.weight": 0.2 + 0.2 * 0.03 / 0.08, "block.conv.weight": 0.4 + 0.2 * 0.05 / 0.2}
PADDLESLIM = {"stem.0.weight": 0.6 + 0.2 * 0.01 / 0.26, "block.conv.weight": 0.4 + 0.2 * 0.05 / 0.2}
RULES = [([], CAUTIOUS), (["--paddleslim-rule"], PADDLESLIM)]
Run = Callable[..., str]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs ``dysens``, which has to succeed, and gives what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> str:
        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        assert code == 0, err
        return out

    return run


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "sens.jsonl"
    with Journal.open(path, header()) as opened:
        for name in PATHS:
            for ratio, loss in zip((0.2, 0.4, 0.6, 0.8), LOSSES[name]):
                opened.append(point(name, ratio, loss))
    return path


def by_path(ratios: dict[str, float]) -> dict[str, float]:
    return {PATHS[name]: ratio for name, ratio in ratios.items()}


@pytest.mark.parametrize(("monotone", "wanted"), [(True, CAUTIOUS), (False, PADDLESLIM)])
def test_python(journal: Path, monotone: bool, wanted: dict[str, float]) -> None:
    sens = Sensitivities.load(journal)
    assert by_path(sens.ratios_by_loss(LOSS, monotone)) == pytest.approx(wanted)
    assert sens.ratios_for(Target(loss=LOSS, monotone=monotone)) == pytest.approx(wanted)


def test_the_cautious_rule_is_the_default_and_paddleslims_functions_keep_theirs(journal: Path) -> None:
    sens = Sensitivities.load(journal)
    assert by_path(sens.ratios_by_loss(LOSS)) == pytest.approx(CAUTIOUS)
    assert sens.ratios_for(Target(loss=LOSS)) == pytest.approx(CAUTIOUS)
    assert by_path(get_ratios_by_loss(sens, LOSS)) == pytest.approx(PADDLESLIM)


@pytest.mark.parametrize(("words", "wanted"), RULES)
def test_dysens_ratios(run: Run, journal: Path, words: list[str], wanted: dict[str, float]) -> None:
    assert yaml.safe_load(run("ratios", journal, "--loss", LOSS, *words)) == pytest.approx(wanted)


@pytest.mark.parametrize(("words", "wanted"), RULES)
def test_dysens_show(run: Run, journal: Path, words: list[str], wanted: dict[str, float]) -> None:
    groups = json.loads(run("show", journal, "--loss", LOSS, *words, "--json"))["groups"]
    assert {group["path"]: group["ratio"] for group in groups} == pytest.approx(wanted)
    table = run("show", journal, "--loss", LOSS, *words)
    last = dict(re.findall(r"^(stem\.0|block\.conv) .* (\S+)$", table, re.MULTILINE))
    assert last == {path[: -len(".weight")]: f"{ratio:.3f}" for path, ratio in wanted.items()}


@pytest.mark.parametrize(("words", "wanted"), RULES)
def test_dysens_plot(run: Run, journal: Path, words: list[str], wanted: dict[str, float]) -> None:
    run("plot", journal, "--loss", LOSS, *words, "-o", "drawn.png")
    figure = sensitivity_curves(Sensitivities.load(journal), LOSS, monotone=not words)
    lines = [list(line.get_xdata()) for axis in figure.axes for line in axis.lines]
    upright = [line[0] for line in lines if len(line) == 2 and line[0] == line[1]]
    assert upright == pytest.approx(list(wanted.values()))
    figure.savefig("wanted.png")
    assert Path("drawn.png").read_bytes() == Path("wanted.png").read_bytes()


def test_the_page(run: Run, journal: Path) -> None:
    """The numbers that the page holds. That a browser shows them is tests/report/test_page.py's."""
    run("report", journal, "-o", "report.html", "--quiet")
    text = Path("report.html").read_text(encoding="utf-8")
    groups = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["groups"]
    for rule, wanted in (("cautious", CAUTIOUS), ("paddleslim", PADDLESLIM)):
        shown = {group["path"]: read_off(group[rule], LOSS) for group in groups}
        assert shown == pytest.approx(wanted)


def read_off(segments: list[list[float | None]], threshold: float) -> float:
    loss, ratio, next_loss, next_ratio = [each for each in segments if each[0] <= threshold][-1]
    share = (threshold - loss) / (next_loss - loss)
    return (1 - share) * ratio + share * next_ratio


def test_paddleslims_rule_goes_with_a_loss(
    journal: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(journal.parent)
    assert main(["ratios", str(journal), "--flops", "0.5", "--paddleslim-rule"]) == 1
    assert "goes with --loss only" in capfd.readouterr().err


class TestEveryWriterAndReader:
    """The same ratios in every kind of file end in the same cut."""

    MODEL = ("sweep.sweeping:made", "--input-shape", "2,3,6,6")

    @pytest.fixture
    def swept(self, run: Run) -> Path:
        words = ("--ratios", "0.2,0.4,0.6", "--only", "convs.0.*,convs.1.*", "--fast", "off", "--quiet")
        run("sweep", *self.MODEL, *words)
        return Path("sens.jsonl")

    @pytest.mark.parametrize("file", ["r.yml", "r.json", "r.slim.yml", "r.page.yml"])
    def test_dysens_prune_takes_it(self, run: Run, swept: Path, file: str) -> None:
        sens = Sensitivities.load(swept)
        loss = 1.1 * max(min(curve.values()) for curve in sens.values())  # each group may lose something
        ratios = sens.ratios_for(Target(loss=loss))
        if file.endswith("slim.yml"):
            write_ratio_file(file, ratios, "slim", "fpgm", "whole.pdparams")
        elif file.endswith(
            "page.yml"
        ):  # JSON strings for names; the page itself is tests/report/test_page.py's
            lines = [f"{json.dumps(path)}: {ratio}\n" for path, ratio in ratios.items()]
            Path(file).write_text("".join(lines))
        else:
            run("ratios", swept, "--loss", loss, "-o", file)
        assert read_ratio_file(file).ratios == pytest.approx(ratios, abs=1e-9)
        cut = json.loads(run("prune", *self.MODEL, file, "-o", "from_file", "--json"))
        wanted = json.loads(run("prune", *self.MODEL, swept, "--loss", loss, "-o", "from_loss", "--json"))
        assert cut["groups"] == wanted["groups"] != []
        assert cut["flops_after"] == wanted["flops_after"] < cut["flops_before"]

    def test_dysens_prune_ranks_as_a_slim_config_says(
        self, run: Run, capfd: pytest.CaptureFixture[str]
    ) -> None:
        write_ratio_file("slim.yml", {"convs.0.weight": 0.5}, "slim", "l1")
        run("prune", *self.MODEL, "slim.yml", "-o", "as_it_says")
        run("prune", *self.MODEL, "slim.yml", "--criterion", "l1", "-o", "l1")
        assert Path("as_it_says.plan.json").read_bytes() == Path("l1.plan.json").read_bytes()
        assert main(["prune", *self.MODEL, "slim.yml", "--criterion", "fpgm"]) == 1
        assert "give --criterion l1" in capfd.readouterr().err
