"""From a task to a smaller network: sweep or search, ratios, prune, train, score, export.

A `Task` (`dysens.adapters`) says what the network is. Each step is a function, and goes on from what the one before gave or
wrote; ``dysens`` and tools/ are front ends of these functions.

    subject = Subject(task)
    sens = sweep(subject, Measuring(Path("sens.jsonl")))
    prune(subject, choose(sens, Target(flops=0.3), subject), Path("pruned"))
    train(task)
    task.export(task.export_folder)
"""

from dysens.pipeline._measure import Measuring, result_file, search, search_file, sweep
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
from dysens.pipeline._steps import RATIOS_FILE, SAVE, SEN_FILE, STEPS, Say, StepOptions, run_steps
from dysens.pipeline._subject import Subject

__all__ = [
    "RATIOS_FILE",
    "SAVE",
    "SEN_FILE",
    "STEPS",
    "Cut",
    "Measuring",
    "Say",
    "Scored",
    "StepOptions",
    "Subject",
    "choose",
    "criterion_of",
    "prune",
    "result_file",
    "run_steps",
    "score",
    "search",
    "search_file",
    "sweep",
    "train",
    "warn_of_other_weights",
]
