"""What a sweep leaves: points, the journal on disk, `Sensitivities`, and files of other tools."""

from dysens.results._files import header_of, losses_by_ratio
from dysens.results._journal import Journal, check_place
from dysens.results._points import Header, Point, same_baseline
from dysens.results._records import Owner, encode
from dysens.results._sensitivities import LossCurve, Sensitivities, curves_of, recounted
from dysens.results._slim import continue_slim_file, is_slim_file, read_slim_file, write_static, write_status
from dysens.results._writing import common_header, write_as

__all__ = [
    "Header",
    "Journal",
    "LossCurve",
    "Owner",
    "Point",
    "Sensitivities",
    "check_place",
    "common_header",
    "continue_slim_file",
    "curves_of",
    "encode",
    "header_of",
    "is_slim_file",
    "losses_by_ratio",
    "read_slim_file",
    "recounted",
    "same_baseline",
    "write_as",
    "write_static",
    "write_status",
]
