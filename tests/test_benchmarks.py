"""The page of benchmarks says what its figures say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs" / "benchmarks.json", ROOT / "docs" / "benchmarks.md"


@pytest.fixture(scope="module")
def page():
    return loaded("page")


@pytest.fixture(scope="module")
def readme():
    return loaded("readme")


def loaded(name):
    """A module of the benchmark."""
    folder = ROOT / "benchmarks" / "speed"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))  # it imports its neighbours
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def curve(*beyond):
    """Losses beyond the target at some ratios, or from a single one on."""
    ratios = [round(0.1 * step, 1) for step in range(1, 10)]
    if len(beyond) == 1:
        beyond = [ratio for ratio in ratios if ratio >= beyond[0]]
    return {str(ratio): 0.03 if ratio in beyond else 0.01 for ratio in ratios}


def point(group, **cpu):
    return {"group": group, "ratio": 0.5, "cpu": cpu, "loss": dict.fromkeys(cpu, 0.1)}


@pytest.fixture
def figures():
    """Round ones."""
    points = {
        "images": 200,
        "baseline": 0.9,
        "points": [point(name, slim=8.0, eager=4.0, function=2.0, fast=1.0) for name in ("a", "b")],
        "breakdown": {"load": 1.0, "forward": 3.0, "measure": 0.5},
    }
    sample = [{"seconds": seconds, "loss": 0.1, "fast_loss": 0.1} for seconds in (7.0, 9.0)]
    common = {
        "reference": "slim",
        "images": 200,
        "baseline": 0.9,
        "groups": 4,
        "points": 36,
        "sample": sample,
    }
    ratios = {
        **common,
        "images": 597,
        "seconds": 7.4,
        "passes": 8.0,
        "answers": {"a": 0.3, "b": 0.0, "c": 0.9, "d": 0.5},
    }
    return {
        "paddle26": {
            "points mobilenet": points,
            "sweep mobilenet": {**common, "seconds": 37.0, "point_seconds": 28.8},
            "grid mobilenet": {
                "seconds": 37.0,
                "estimate": {"rank_correlation": 0.75, "seconds": 3.7},
                "losses": {"a": curve(0.4), "b": curve(0.1), "c": curve(), "d": curve(0.3, 0.7, 0.8, 0.9)},
            },
            "ratios mobilenet": ratios,
        }
    }


def test_the_readmes_say_how_fast_sweeps_are(readme, figures, tmp_path):
    for name in ("README.md", "README_cn.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert len(readme.MARKED.findall(text)) == 1
        (tmp_path / name).write_text(text, encoding="utf-8")
    readme.write(tmp_path, figures)  # 36 points of 8 seconds, in 28.8 seconds
    english, chinese = (
        (tmp_path / name).read_text(encoding="utf-8") for name in ("README.md", "README_cn.md")
    )
    assert "is 10.0 times as fast for MobileNetV1, with the same losses ([measured]" in english
    assert "MobileNetV1 是 10.0 倍" in chinese
    readme.write(tmp_path, {})
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == english


def test_ratios_not_seconds(page, figures):
    text = page.rendered(figures)
    assert "| MobileNetV1, Paddle 2.6 | PaddleSlim | 2.0x | 4.0x | 8.0x | 0.00 |" in text
    assert "| MobileNetV1 | 22% | 67% | 11% | 6.0x | 50% |" in text
    assert (
        "| MobileNetV1, Paddle 2.6 | PaddleSlim | 4 x 9 | 200 | not measured | 8.0x | not measured | 10.0x | 0.00 |"
        in text
    )
    # PaddleSlim takes 0.3, 0, 0.9, 0.6; a cautious user 0.3, 0, 0.9, 0.2.
    assert (
        "| MobileNetV1, Paddle 2.6 | PaddleSlim | 4 x 9 | 40.0x | 8.0 of 36 | 100% | 75% | 3 of 4 | 0.00 |"
        in text
    )
    assert "597 images for MobileNetV1" in text
    assert "0.75, in 1/10 of the time" in text


def test_without_paddleslim_the_live_model_is_the_reference(page, figures):
    for row in figures["paddle26"]["points mobilenet"]["points"]:
        del row["cpu"]["slim"]
    text = page.rendered({"paddle3": figures["paddle26"]})
    assert "| MobileNetV1, Paddle 3 | dysens, live model | 1.0x | 2.0x | 4.0x | 0.00 |" in text


def test_differences_are_told_in_samples(page, figures):
    points = figures["paddle26"]["points mobilenet"]
    points["points"][1]["loss"]["fast"] += 1 / 200 / 0.901  # one image of two hundred
    assert page.samples_apart(points, "fast", "slim") == pytest.approx(1.0)


def test_how_near_two_cores_come_to_what_they_could_do(page, figures):
    sweep = figures["paddle26"]["sweep mobilenet"]
    told = {"network": "MobileNetV1", "runtime": "openvino"}
    told |= {"forward_seconds": 27.0, "measure_seconds": 9.0, "score_seconds": 0.0}
    told |= {"all_groups": 14, "analysis_seconds": 4.0, "slim_analysis_seconds": 2.0}
    figures["paddle26"]["sweep mobilenet"] = {**sweep, **told, "point_seconds": 24.0}
    figures["paddle26"]["sweep mobilenet, one core"] = {**sweep, **told, "point_seconds": 40.0}
    text = page.rendered(figures)
    row = "| MobileNetV1, Paddle 2.6 | openvino, openvino | 68% | 22% | 0% | 10% | 75% | 4 |"
    assert row in text
    assert "| MobileNetV1, Paddle 2.6 | 14 | 0.50 | 2.0x |" in text


def test_paddle_3_against_the_point_of_paddleslim(page, figures):
    """Only where both measured the same images; what was wanted is then told against PaddleSlim, too."""
    sweep = figures["paddle26"]["sweep mobilenet"]
    new = {**sweep, "reference": "eager", "point_seconds": 14.4}
    new["sample"] = [{**row, "seconds": 4.0} for row in sweep["sample"]]
    figures["paddle3"] = {"sweep mobilenet": new}
    text = page.rendered(figures)
    assert "| MobileNetV1 | not measured | 20.0x |" in text
    assert "| MobileNetV1 | 25x | 10.0x | 20.0x |" in text
    new["images"] = 100
    text = page.rendered(figures)
    assert "| MobileNetV1 | not measured | 20.0x |" not in text
    assert "| MobileNetV1 | 25x | 10.0x | 10.0x |" in text


def test_what_measuring_in_processes_gave(page, figures):
    test_how_near_two_cores_come_to_what_they_could_do(page, figures)
    assert "was not tried" in page.rendered(figures)
    ways = {"in the thread": 3.0, "1 processes": 2.0, "2 processes": 4.0}
    part = {way: {"seconds": seconds} for way, seconds in ways.items()}
    figures["paddle3"] = {"pool ocr": {"network": "PP-OCRv3 det", **part}}
    assert "PP-OCRv3 det, Paddle 3: 1.50x with 1 and 0.75x with 2" in page.rendered(figures)


def test_runtimes_are_compared_core_by_core(page):
    passes = {"paddle, 1": 6.0, "paddle, 2": 4.0, "openvino, 1": 4.0, "openvino, 2": 2.0}
    part = {way: {"ran": way.split(",")[0], "seconds": s, "baseline": 0.9} for way, s in passes.items()}
    part["paddle, 2"]["baseline"] = 0.8
    figures = {"paddle3": {"runtimes ocr": {"network": "PP-OCRv3 det", "images": 20, **part}}}
    row = "| PP-OCRv3 det, Paddle 3 | 1.50x | 2.00x | 1.50x | 2.00x | 2.00 |"
    assert row in page.rendered(figures)
    del figures["paddle3"]["runtimes ocr"]["openvino, 2"]
    assert "| PP-OCRv3 det, Paddle 3 | 1.50x | not run | 1.50x | not run | 2.00 |" in page.rendered(figures)


def test_memory_of_both_stacks(page):
    peaks = {"model alone": 400.0, "slim": None, "fast": 600.0, "search": 500.0}
    text = page.rendered({"paddle3": {"memory v4 rec": peaks}})
    assert "| PP-OCRv4 rec, Paddle 3 | not run | 1.50x | 1.25x |" in text


def test_what_old_code_measured_says_so(page, figures):
    assert "has not been measured again" in page.rendered(figures)
    figures["paddle26"]["ratios mobilenet"]["version"] = "0.2.0"
    assert "has not been measured again" not in page.rendered(figures)


def test_each_part_is_told_in_a_line(page, figures):
    ratios = {**figures["paddle26"]["ratios mobilenet"], "network": "MobileNetV1"}
    assert page.told("ratios mobilenet", ratios) == "MobileNetV1: 40.0x PaddleSlim, 8.0 passes"
    sweep = {**figures["paddle26"]["sweep mobilenet"], "network": "MobileNetV1", "runtime": "openvino"}
    told = page.told("sweep mobilenet", sweep)
    assert told == "MobileNetV1: a point 10.0x, the whole 8.0x PaddleSlim, 0.00 samples apart, openvino"


def test_nothing_measured_is_a_page_without_sections(page):
    assert "##" not in page.rendered({})


@pytest.mark.skipif(not DATA.exists(), reason="`make bench` has not been run yet")
class TestPublished:
    def test_the_page_shows_the_figures(self, page):
        assert PAGE.read_text(encoding="utf-8") == page.rendered(json.loads(DATA.read_text()))

    def test_losses_agree_within_one_sample(self, page):
        parts = [p for stack in json.loads(DATA.read_text()).values() for p in stack.items()]
        for part in (p for name, p in parts if name.startswith("points")):
            for way in ("eager", "function", "fast"):
                assert page.samples_apart(part, way, page.reference_of(part)) <= 1.0 + 1e-6
        for part in (p for name, p in parts if name.startswith(("sweep", "ratios"))):
            assert page.samples_between(part) <= 1.0 + 1e-6


@pytest.fixture(scope="module")
def ocr_v5():
    """The benchmark of PP-OCRv5, which needs what it measures with."""
    pytest.importorskip("onnxruntime")
    spec = importlib.util.spec_from_file_location("benchmark_ocr_v5", ROOT / "benchmarks" / "ocr_v5.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


class TestOcrV5:
    def test_the_pages_show_the_figures(self, ocr_v5):
        for place, words in ocr_v5.PAGES.items():
            assert ocr_v5.page(ocr_v5.known(), words) in place.read_text(encoding="utf-8")

    def test_every_row_has_a_title_in_both_languages(self, ocr_v5):
        assert set(ocr_v5.known()) <= set(ocr_v5.ROWS)
        for words in ocr_v5.PAGES.values():
            assert list(words.titles) == list(ocr_v5.ROWS)

    def test_times_of_a_busy_machine_are_marked(self, ocr_v5):
        row = {"score": 0.5, "flops": 1000, "bytes": 2048, "ms": 7.0}
        for load, shown in ((0.5, "| 7.0 |"), (1.5, "| 7.0* |"), (None, "| 7.0* |")):
            rows = {"rec-whole": row if load is None else {**row, "load": load}}
            assert shown in ocr_v5.page(rows, ocr_v5.ENGLISH)

    def test_a_machine_without_the_chinese_font_is_refused(self, ocr_v5, tmp_path, monkeypatch):
        """Its rows would be of other pictures than those of the page."""
        from dysens.data import Fonts, find_fonts

        other = Fonts(find_fonts().latin, (tmp_path / "NotoSansCJK.ttc",))
        monkeypatch.setattr(ocr_v5, "find_fonts", lambda: other)
        with pytest.raises(SystemExit, match=r"wqy-microhei\.ttc, which is not installed"):
            ocr_v5.Bench(tmp_path).drawn("chinese", "test")
