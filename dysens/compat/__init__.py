"""PaddleSlim's dygraph pruners, by its names and arguments, over dysens: an existing script changes one import line.

    from dysens.compat import FPGMFilterPruner  # instead of paddleslim.dygraph

What is different on purpose: filters are scored with the weights as they are when something is pruned, not when the pruner
was made; no call changes the lists that it is given; `sensitive` always returns a dictionary; the cut model's layer attributes
are right. A ``sen_file`` is written in PaddleSlim's format when a sweep is through; meanwhile each point goes to a journal
beside it, ``sen_file`` plus ".jsonl", and an interrupted sweep goes on from there.
"""

from __future__ import annotations

from dysens.compat.pruners import FPGMFilterPruner, L1NormFilterPruner, L2NormFilterPruner

__all__ = ["FPGMFilterPruner", "L1NormFilterPruner", "L2NormFilterPruner"]
