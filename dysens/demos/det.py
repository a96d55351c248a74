"""The PaddleDetection demo: the released page-layout detector, made smaller, fine-tuned and exported.

Run it with ``make demo-det``, from the repository's root. The pages are drawn; no data set is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dysens.adapters.det import DetTask, load_config
from dysens.data import make_layout_pages
from dysens.demos._story import SEARCH, TEST, TRAIN, Setting, demo_parser, run_demo


def _draw(folder: Path, count: int, seed: int) -> Path:
    return make_layout_pages(folder, count, seed=seed)


SETTINGS = {
    "layout": Setting(
        config="picodet_lcnet_layout.yml",
        draw=_draw,
        images={TRAIN: 60, SEARCH: 8, TEST: 40},
        flops=0.4,
        grid=(0.3, 0.6),
        # Generous: what is chosen for the FLOPs stays far below it, and a group's curve is known up to there.
        target_loss=0.2,
        search_flops=0.26,
        overrides=("epoch=2", "TrainReader.batch_size=2", "log_iter=5"),
        quick_overrides=("epoch=1",),
        rounds=20,
    ),
}


def make_task(setting: Setting, configs: Path, folder: Path, scored_on: str, released: bool) -> DetTask:
    """The network of a setting, see `MakeTask`."""
    overrides = [
        f"save_dir={folder}",
        f"TrainDataset.dataset_dir={folder / TRAIN}",
        f"EvalDataset.dataset_dir={folder / scored_on}",
        f"TestDataset.dataset_dir={folder / TEST}",  # names the classes of what is exported
        *setting.overrides,
    ]
    if not released:
        overrides.append("weights=null")
    return DetTask(load_config(configs / setting.config, overrides))


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    run_demo(demo_parser(__doc__, SETTINGS, "det").parse_args(argv), SETTINGS, make_task)


if __name__ == "__main__":
    main()
