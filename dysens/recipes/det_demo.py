"""The PaddleDetection demo: the released page-layout detector, made a quarter smaller, fine-tuned and exported.

Run it with ``make demo-det``, from the repository's root. The pages are drawn; no data set is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from dysens.adapters.det import DetTask, export, load_config, score_exported
from dysens.adapters.exporting import Exported
from dysens.adapters.layout_pages import make_layout_pages
from dysens.latency import Inputs
from dysens.recipes.demo import SEARCH, TEST, TRAIN, Demo, Setting, demo_parser, run_demo
from dysens.recipes.det import DetRecipe
from dysens.recipes.steps import Say


def _draw(folder: Path, count: int, seed: int) -> Path:
    return make_layout_pages(folder, count, seed=seed)


SETTINGS = {
    "layout": Setting(
        config="picodet_lcnet_layout.yml",
        draw=_draw,
        images={TRAIN: 60, SEARCH: 8, TEST: 40},
        grid=(0.3, 0.6),
        # Generous: what is chosen for the FLOPs stays far below it, and a group's curve is known up to there.
        target_loss=0.2,
        flops=0.26,
        overrides=("epoch=2", "TrainReader.batch_size=2", "log_iter=5"),
        quick_overrides=("epoch=1",),
        rounds=20,
    ),
}


class DetDemo(Demo):
    """The story of one PaddleDetection network.

    Args:
        setting: What to do.
        configs: The folder with the configs.
        folder: Where files go.
        say: Gets what a user wants to read.
    """

    framework = "PaddleDetection"

    def __init__(self, setting: Setting, configs: Path, folder: Path, say: Say) -> None:
        super().__init__(setting, folder, say)
        self._path = configs / setting.config
        self._overrides = (
            f"save_dir={folder}",
            f"TrainDataset.dataset_dir={folder / TRAIN}",
            f"TestDataset.dataset_dir={folder / TEST}",  # names the classes of what is exported
            *setting.overrides,
        )

    @cached_property
    def recipe(self) -> DetRecipe:
        """On the pages to train on and to search on."""
        overrides = [*self._overrides, f"EvalDataset.dataset_dir={self._folder / SEARCH}"]
        return DetRecipe(self._path, overrides, self.options, self._say)

    @cached_property
    def held_back(self) -> DetTask:
        """The network with the pages that nothing is chosen by."""
        overrides = [*self._overrides, f"EvalDataset.dataset_dir={self._folder / TEST}", "weights=null"]
        return DetTask(load_config(self._path, overrides))

    @property
    def example_inputs(self) -> Inputs:
        """One page: suppressing boxes takes time, and in noise there are few."""
        return {name: tensor[:1].numpy() for name, tensor in self.held_back.evaluator.first_inputs().items()}

    def export(self, folder: Path) -> Exported:
        """Compared with the live network on pages: in noise there is little to be found."""
        return export(self.recipe.task, folder, self.held_back.evaluator.first_inputs())

    def score_exported(self, folder: Path) -> float:
        """mAP."""
        return score_exported(self.held_back, folder)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    run_demo(demo_parser(__doc__, SETTINGS, "det").parse_args(argv), SETTINGS, DetDemo)


if __name__ == "__main__":
    main()
