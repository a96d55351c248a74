"""What both READMEs say of speed, written from the figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from page_sweeps import NAMES, once_running, samples_between

Figures = dict[str, Any]

MARKED = re.compile(r"(<!-- make bench -->).*?(<!-- end of it -->)", re.DOTALL)


def sentences(figures: dict[str, Figures]) -> dict[str, str] | None:
    """By the name of a README, its sentence: a point of a sweep on all cores against PaddleSlim's; None without figures."""
    parts = figures.get("paddle26", {})
    swept = {network: parts.get(f"sweep {name}") for name, network in NAMES.items()}
    found = {network: part for network, part in swept.items() if part and part["reference"] == "slim"}
    if not found:
        return None
    faster = {network: once_running(part).rstrip("x") for network, part in found.items()}
    same = max(map(samples_between, found.values())) < 0.01
    openvino = any(part.get("runtime") == "openvino" for part in found.values())
    english = " and ".join(f"{times} times as fast for {network}" for network, times in faster.items())
    chinese = "，".join(f"{network} 是 {times} 倍" for network, times in faster.items())
    extra = "; with OpenVINO, which the extra `openvino` installs" if openvino else ""
    extra_cn = "；用 OpenVINO，装 extra `openvino` 即可" if openvino else ""
    return {
        "README.md": f"Against PaddleSlim, a point of a sweep on two cores is {english}"
        f"{', with the same losses' if same else ''} ([measured](docs/benchmarks.md){extra}).",
        "README_cn.md": f"双核 CPU 上，扫描一个点的速度与 PaddleSlim 相比，{chinese}{'，测得的损失相同' if same else ''}"
        f"（[测量结果](docs/benchmarks.md){extra_cn}）。",
    }


def write(root: Path, figures: dict[str, Figures]) -> None:
    """Put the sentences between their marks; they stay as they are where there are no figures."""
    for name, sentence in (sentences(figures) or {}).items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        path.write_text(MARKED.sub(lambda m, s=sentence: f"{m[1]}{s}{m[2]}", text), encoding="utf-8")
