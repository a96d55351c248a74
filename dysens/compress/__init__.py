"""From measuring to deciding: the best model at a budget, from a few unlabelled samples.

Units are chosen by elimination, what goes is folded into what stays, allocations are decided jointly and checked on the whole.
"""

from dysens.compress._allocate import UNIFORM, Allocator
from dysens.compress._calibrate import Calibration, Reading, calibrate
from dysens.compress._compress import Decision, compress
from dysens.compress._criterion import ELIMINATION, Elimination, ErrorCurves, error_curves
from dysens.compress._decide import RUINED
from dysens.compress._gradients import Answer
from dysens.compress._latency_target import Stopwatch, check_runtime
from dysens.compress._layer_times import timed_cost
from dysens.compress._options import CompressOptions
from dysens.compress._outcome import CompressOutcome, Trial
from dysens.compress._output_error import last_layers
from dysens.compress._samples import Samples, read_samples
from dysens.compress._subject import Subject

__all__ = [
    "ELIMINATION",
    "RUINED",
    "UNIFORM",
    "Allocator",
    "Answer",
    "Calibration",
    "CompressOptions",
    "CompressOutcome",
    "Decision",
    "Elimination",
    "ErrorCurves",
    "Reading",
    "Samples",
    "Stopwatch",
    "Subject",
    "Trial",
    "calibrate",
    "check_runtime",
    "compress",
    "error_curves",
    "last_layers",
    "read_samples",
    "timed_cost",
]
