"""The PaddleOCR demo: a released network, made half as large, fine-tuned and exported, without any data set.

Run it with ``make demo-ocr`` or, for the recogniser, ``make demo-ocr OCR=rec``, from the repository's root.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dysens.adapters.ocr import OcrTask, load_config
from dysens.data import LABEL_FILE, write_lines, write_scenes
from dysens.demos._story import SEARCH, TEST, TRAIN, Setting, demo_parser, run_demo

QUICK = ("Global.epoch_num=1", "Train.loader.batch_size_per_card=4")
# A released recogniser lacks the weights of the branch that guides training, and what an untrained branch teaches is noise.
# So its loss is left out; and the CTC branch, which leaves the backbone to that guide, has to train it itself.
TRAIN_BY_CTC = (
    "Loss.loss_config_list=[{CTCLoss: null}]",
    "Architecture.Head.head_list.0.CTCHead.Neck.use_guide=false",
)
SETTINGS = {
    "det": Setting(
        config="ch_PP-OCRv3_det.yml",
        draw=write_scenes,
        images={TRAIN: 160, SEARCH: 24, TEST: 80},
        flops=0.5,
        grid=(0.2, 0.4, 0.6, 0.8),
        target_loss=0.1,
        search_flops=0.3,
        overrides=(
            "Global.epoch_num=4",
            "Train.loader.batch_size_per_card=8",
            "Optimizer.lr.learning_rate=0.0005",
        ),
        quick_overrides=QUICK,
    ),
    "rec": Setting(
        config="ch_PP-OCRv4_rec.yml",
        draw=write_lines,
        images={TRAIN: 1600, SEARCH: 24, TEST: 256},
        flops=0.2,
        grid=(0.1, 0.2, 0.3),
        target_loss=0.1,
        search_flops=0.3,
        overrides=(
            "Global.epoch_num=1",
            "Train.loader.batch_size_per_card=16",
            "Optimizer.lr.learning_rate=0.0002",
            "Optimizer.lr.warmup_epoch=0.1",
            *TRAIN_BY_CTC,
        ),
        quick_overrides=QUICK,
        # The released network has no batch norm left that would adapt to what goes.
        criterion="variance",
    ),
}


def make_task(setting: Setting, configs: Path, folder: Path, scored_on: str, released: bool) -> OcrTask:
    """The network of a setting, see `MakeTask`."""
    overrides = [
        *_set_paths("Train", folder / TRAIN),
        *_set_paths("Eval", folder / scored_on),
        f"Global.save_model_dir={folder}",
        *setting.overrides,
    ]
    if not released:
        overrides.append("Global.pretrained_model=null")
    return OcrTask(load_config(configs / setting.config, overrides))


def _set_paths(mode: str, folder: Path) -> list[str]:
    """Overrides that make a config read a set."""
    return [f"{mode}.dataset.data_dir={folder}", f"{mode}.dataset.label_file_list=[{folder}/{LABEL_FILE}]"]


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    run_demo(demo_parser(__doc__, SETTINGS, "ocr").parse_args(argv), SETTINGS, make_task)


if __name__ == "__main__":
    main()
