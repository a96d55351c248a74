"""tools/analysis_prune.py: from a config of an ACT example to ratios."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import yaml
from paddle import nn
from PIL import Image

from dysens.compat import load_sensitivities

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools/analysis_prune.py"))["TOOL"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that tells colours apart by its untrained weights, pictures with the labels that it gives, and a config."""
    home = tmp_path_factory.mktemp("act")
    paddle.seed(0)
    net = nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2D(8, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(),
        nn.Linear(8, 3),
    )  # fmt: skip
    net.eval()
    spec = [paddle.static.InputSpec([None, 3, 16, 16], "float32", "x")]
    paddle.jit.save(paddle.jit.to_static(net, input_spec=spec), str(home / "model/inference"))
    rng = np.random.default_rng(0)
    lines = []
    for number in range(6):
        colour = rng.integers(0, 255, 3, dtype="uint8")
        Image.fromarray(np.tile(colour, (20, 24, 1))).save(home / f"{number}.png")
        pixels = (colour / 255 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
        x = np.tile(pixels.astype("float32").reshape(1, 3, 1, 1), (1, 1, 16, 16))
        lines.append(f"{number}.png {int(net(paddle.to_tensor(x)).argmax())}")
    (home / "val_list.txt").write_text("\n".join(lines), encoding="utf-8")
    program = next(path.name for path in (home / "model").iterdir() if path.suffix in (".json", ".pdmodel"))
    written(
        home, model_dir=str(home / "model"), model_filename=program, params_filename="inference.pdiparams"
    )
    return home


def written(home: Path, name: str = "act.yaml", **settings: Any) -> Path:
    settings = {"data_dir": str(home), "batch_size": 4, "img_size": 16, "resize_size": 18, **settings}
    path = home / name
    path.write_text(yaml.safe_dump({"Global": settings, "Distillation": {"alpha": 1.0}}), encoding="utf-8")
    return path


def test_from_a_config_to_ratios(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sens.data"
    words = ["--config_path", str(home / "act.yaml"), "--analysis_file", str(file), "--quiet"]
    TOOL.main([*words, "--pruned_ratios", "0.25", "0.5", "--target_loss", "0.9"])
    shown = capsys.readouterr().out
    curves = load_sensitivities(file)
    assert len(curves) == 2
    assert all(list(curve) == [0.25, 0.5] for curve in curves.values())
    chosen = yaml.safe_load(shown[shown.index("# Losses") :])["ChannelPrune"]
    assert set(chosen["prune_params_name"]) <= set(curves)
    assert len(chosen["pruned_ratio"]) == len(chosen["prune_params_name"])
    assert all(f"{name}: 0.25: " in shown for name in curves)


def test_a_function_of_ones_own(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scoring_of_mine.py").write_text(
        "import numpy as np\n"
        "def score(program, exe, feed_names, fetch_list):\n"
        "    x = np.ones((2, 3, 16, 16), 'float32')\n"
        "    return 1 / (1 + float(np.abs(exe.run(program, feed={feed_names[0]: x}, fetch_list=fetch_list)[0]).sum()))\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    words = ["--config_path", str(home / "act.yaml"), "--quiet", "--pruned_ratios", "0.5"]
    TOOL.main([*words, "--eval_function", "scoring_of_mine:score"])
    assert "ChannelPrune" in capsys.readouterr().out
    assert Path("sensitivity_0.data").is_file()
    with pytest.raises(SystemExit, match="no function"):
        TOOL.main([*words, "--eval_function", "scoring_of_mine:scores"])


def test_bad_configs(home: Path, tmp_path: Path) -> None:
    model = {"model_dir": str(home / "model")}
    bad = {
        "missing": tmp_path / "none.yaml",
        "no section Global": tmp_path / "bare.yaml",
        "is not YAML": tmp_path / "broken.yaml",
        "does not say model_dir": written(home, "a.yaml"),
        "batch_size": written(home, "b.yaml", **model, batch_size="many"),
        "val_list.txt": written(home, "c.yaml", **model, data_dir=str(tmp_path)),
        "no data_dir": written(home, "d.yaml", **model, data_dir=None),
        "none": written(home, "e.yaml", model_dir=str(home / "none")),
    }
    bad["no section Global"].write_text("Distillation: {}", encoding="utf-8")
    bad["is not YAML"].write_text("Global: [", encoding="utf-8")
    for what, path in bad.items():
        with pytest.raises(SystemExit, match="No such file" if what == "missing" else what) as caught:
            TOOL.main(["--config_path", str(path), "--analysis_file", str(tmp_path / "sens.data"), "--quiet"])
        assert str(caught.value).startswith("error: ")
    assert not (tmp_path / "sens.data").exists()
