"""tools/analysis_prune.py: an exported model and its config, as PaddleSlim's ACT examples have them, to ratios at a loss."""

from __future__ import annotations

import logging
import shlex
import sys
import traceback
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysens.cli._files import kept_in
from dysens.cli._options import add_common
from dysens.cli._program import INTERRUPTED, hush_paddle, interrupted
from dysens.cli._terminal import interrupts_first, number, results_apart
from dysens.cli._tools import ToolParser
from dysens.errors import DysensError, InputError
from dysens.flags import flag, spelled
from dysens.progress import shown_log

if TYPE_CHECKING:
    import numpy as np

EvalFunction = Callable[..., float]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CACHE_BYTES = 2**30


@dataclass(frozen=True)
class AnalysisTool:
    """The program.

    Attributes:
        file: Of the program.
        description: Its docstring.
    """

    file: str
    description: str | None

    def parse(self, words: Sequence[str] | None = None) -> Namespace:
        """The options; ends the program where they make no sense."""
        parser = ToolParser(
            prog=Path(self.file).name,
            description=self.description,
            formatter_class=RawDescriptionHelpFormatter,
        )
        parser.option(
            "config_path", required=True, type=Path, metavar="FILE", help="a config of an ACT example"
        )
        parser.option(
            "analysis_file",
            type=Path,
            default=Path("sensitivity_0.data"),
            metavar="FILE",
            help="PaddleSlim's pickle",
        )
        parser.add_argument(
            "--pruned_ratios",
            nargs="+",
            type=number,
            default=[0.1, 0.2, 0.3, 0.4],
            metavar="R",
            help="0.1 0.2 0.3 0.4",
        )
        parser.option(
            "target_loss", type=number, default=0.2, metavar="L", help="loss that each weight may cost (0.2)"
        )
        parser.option(
            "criterion", default="l1_norm", metavar="NAME", help="l1_norm, geometry_median, bn_scale"
        )
        parser.option("eval_function", metavar="package.module:function", help="scores instead of data_dir")
        add_common(parser)
        options: Namespace = parser.parse_args(words)
        return options

    def main(self, words: Sequence[str] | None = None) -> None:
        """Run the tool; a mistake of the user ends it with a sentence, Ctrl-C with how to go on."""
        options = self.parse(words)
        hush_paddle(options.debug)
        level = logging.WARNING if options.quiet else logging.DEBUG if options.debug else logging.INFO
        try:
            with (
                interrupts_first(),
                results_apart(options.debug) as results,
                redirect_stdout(results),
                shown_log(level),
                spelled(ToolParser.spelling),
            ):
                _analyse(options)
        except KeyboardInterrupt:
            typed = shlex.join(["python", self.file, *(sys.argv[1:] if words is None else words)])
            print(interrupted(typed, kept_in(options.analysis_file)), file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        except DysensError as error:
            if options.debug:
                traceback.print_exc()
            raise SystemExit(f"error: {error}") from error


def _analyse(options: Namespace) -> None:
    import yaml

    settings = act_settings(options.config_path)
    evaluate = _eval_function(options.eval_function or settings.get("eval_function"), settings)
    from dysens.compat import analysis_prune, load_sensitivities

    ratios = analysis_prune(
        evaluate,
        settings["model_dir"],
        settings.get("model_filename"),
        settings.get("params_filename"),
        options.analysis_file,
        options.pruned_ratios,
        options.target_loss,
        criterion=options.criterion,
    )
    for name, curve in load_sensitivities(options.analysis_file).items():
        print(f"{name}: " + ", ".join(f"{ratio:g}: {loss:.4f}" for ratio, loss in sorted(curve.items())))
    pruned = {name: round(ratio, 4) for name, ratio in ratios.items() if ratio > 0}
    chosen = {
        "pruned_ratio": list(pruned.values()),
        "prune_params_name": list(pruned),
        "criterion": options.criterion,
    }
    print(f"\n# Losses of at most {options.target_loss:g} each; for the strategy's config:")
    print(yaml.safe_dump({"ChannelPrune": chosen}, sort_keys=False), end="")


def act_settings(path: Path) -> dict[str, Any]:
    """The section ``Global`` of a config.

    Args:
        path: The YAML file.

    Raises:
        InputError: It cannot be read, or lacks what is needed.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f'The config "{path}" cannot be read: {getattr(error, "strerror", None) or error}.'
        ) from error
    except yaml.YAMLError as error:
        raise InputError(f'"{path}" is not YAML: {" ".join(str(error).split())}.') from error
    settings = content.get("Global") if isinstance(content, Mapping) else None
    if not isinstance(settings, Mapping):
        raise InputError(
            f'"{path}" has no section Global, which says where the model is: model_dir, model_filename ...'
        )
    if not isinstance(settings.get("model_dir"), str):
        raise InputError(
            f'The section Global of "{path}" does not say model_dir, the folder of the exported model.'
        )
    return dict(settings)


def _eval_function(name: Any, settings: Mapping[str, Any]) -> EvalFunction:
    if name is not None:
        from dysens.sweep import imported

        sys.path.insert(0, str(Path.cwd()))
        return imported(str(name), "eval_function")
    if not isinstance(settings.get("data_dir"), str):
        raise InputError(
            "The section Global says no data_dir, a folder with images and val_list.txt; or give "
            f"{flag('eval_function')} package.module:function, which is called with a program, an Executor, the names of the "
            "inputs and the list to fetch."
        )
    return top1_of(
        Path(settings["data_dir"]),
        _whole(settings, "batch_size", 32),
        _whole(settings, "img_size", 224),
        _whole(settings, "resize_size", 256),
    )


def _whole(settings: Mapping[str, Any], name: str, default: int) -> int:
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(
            f"{name} in the section Global is {value!r:.80}; it has to be a whole number of at least 1."
        )
    return value


def top1_of(data_dir: Path, batch_size: int, img_size: int, resize_size: int) -> EvalFunction:
    """What PaddleSlim's example scores by: the share of images whose first answer is right.

    Args:
        data_dir: Holds ``val_list.txt``, with a path and a label in each line.
        batch_size: Images a batch.
        img_size: The middle of an image that is taken.
        resize_size: What the shorter side is made before.
    """
    import numpy as np

    listed = _listed(data_dir)
    kept: list[tuple[np.ndarray, np.ndarray]] = []  # decoding takes longer than many networks do

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if kept:
            yield from kept
            return
        read: list[tuple[np.ndarray, np.ndarray]] = []
        size = len(listed) * 12 * img_size * img_size
        for start in range(0, len(listed), batch_size):
            part = listed[start : start + batch_size]
            images = np.stack([_image(path, img_size, resize_size) for path, _ in part])
            batch = (images, np.array([[label] for _, label in part], "int64"))
            if size <= _CACHE_BYTES:
                read.append(batch)
            yield batch
        if size <= _CACHE_BYTES:
            kept.extend(read)

    def eval_function(program: Any, exe: Any, feed_names: Sequence[str], fetch_list: Sequence[Any]) -> float:
        right = []
        for images, labels in batches():
            feed = dict(zip(feed_names, (images, labels)))
            outputs = exe.run(program, feed=feed, fetch_list=fetch_list)
            if len(feed_names) > 1:  # a network that compares by itself
                right.append(float(np.mean(outputs[0])) * len(labels))
            else:
                right.append(float((np.asarray(outputs[0]).argmax(axis=1) == labels[:, 0]).sum()))
        return sum(right) / len(listed)

    return eval_function


def _listed(data_dir: Path) -> list[tuple[Path, int]]:
    file = data_dir / "val_list.txt"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f'The list of images "{file}" cannot be read: {getattr(error, "strerror", None) or error}.'
        ) from error
    found = []
    for place, line in enumerate(lines, 1):
        path, _, label = line.strip().rpartition(" ")
        if not line.strip():
            continue
        if not path or not label.isdecimal():
            raise InputError(f'Line {place} of "{file}" is not a path and a label: {line!r:.80}.')
        found.append((data_dir / path.strip(), int(label)))
    if not found:
        raise InputError(f'"{file}" lists no images.')
    return found


def _image(path: Path, img_size: int, resize_size: int) -> np.ndarray:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as opened:
            share = resize_size / min(opened.size)
            sides = (round(opened.size[0] * share), round(opened.size[1] * share))
            image = opened.convert("RGB").resize(sides, Image.Resampling.LANCZOS)
    except (OSError, ValueError) as error:
        raise InputError(f'The image "{path}" cannot be read: {error}.') from error
    left, top = ((side - img_size) // 2 for side in sides)
    pixels = np.asarray(image.crop((left, top, left + img_size, top + img_size)), "float32") / 255
    return ((pixels - np.array(_MEAN)) / np.array(_STD)).transpose(2, 0, 1).astype("float32")
