"""From a task to a smaller network: compress in one call; or sweep or search, ratios, prune, train, score, export.

A `Task` (`dysens.adapters`) says what the network is. Each step is a function, and goes on from what the one before gave or
wrote; ``dysens`` and tools/ are front ends of these functions.

    compress(Subject(task), Compressing(Path("out"), flops=0.5, train=True, export=True))

or step by step

    subject = Subject(task)
    sens = sweep(subject, Measuring(Path("sens.jsonl")))
    prune(subject, choose(sens, Target(flops=0.3), subject), Path("pruned"))
    train(task)
    task.export(task.export_folder)
"""

from dysens.pipeline._card import (
    card_beside,
    card_of_compressed,
    card_of_cut,
    card_with_export,
    card_with_score,
)
from dysens.pipeline._compress import (
    EXPORTED_TO,
    SAVED_AS,
    TRAINED_IN,
    Compressed,
    Compressing,
    RuinedError,
    compress,
)
from dysens.pipeline._measure import Measuring, forecast, result_file, search, search_file, sweep
from dysens.pipeline._produce import (
    Cut,
    Scored,
    choose,
    criterion_of,
    prune,
    score,
    train,
    warn_of_other_weights,
)
from dysens.pipeline._states import (
    EXPORTED,
    ORIGINAL,
    PRUNED,
    TRAINED,
    Row,
    States,
    states_table,
)
from dysens.pipeline._steps import RATIOS_FILE, SAVE, SEN_FILE, STEPS, Say, StepOptions, run_steps
from dysens.pipeline._subject import Subject

__all__ = [
    "EXPORTED",
    "EXPORTED_TO",
    "ORIGINAL",
    "PRUNED",
    "RATIOS_FILE",
    "SAVE",
    "SAVED_AS",
    "SEN_FILE",
    "STEPS",
    "TRAINED",
    "TRAINED_IN",
    "Compressed",
    "Compressing",
    "Cut",
    "Measuring",
    "Row",
    "RuinedError",
    "Say",
    "Scored",
    "States",
    "StepOptions",
    "Subject",
    "card_beside",
    "card_of_compressed",
    "card_of_cut",
    "card_with_export",
    "card_with_score",
    "choose",
    "compress",
    "criterion_of",
    "forecast",
    "prune",
    "result_file",
    "run_steps",
    "score",
    "search",
    "search_file",
    "states_table",
    "sweep",
    "train",
    "warn_of_other_weights",
]
