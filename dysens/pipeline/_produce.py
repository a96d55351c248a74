"""From what was measured to a smaller network: choose ratios, prune, train, score."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dysens.adapters import Task
from dysens.compress import RUINED
from dysens.costs import cost_of
from dysens.criteria import CRITERIA
from dysens.errors import InputError
from dysens.evaluators import Evaluator, evaluate, metric_of, relative_loss
from dysens.flags import flag
from dysens.model import fingerprint, preserved, view_of
from dysens.pipeline._states import ORIGINAL, PRUNED
from dysens.pipeline._subject import VARIANCE, Subject
from dysens.pruning import PruneOutcome, has_plan, is_cut_as_saved, save_pruned, stages_of
from dysens.ratios import RatioFile, Target, by_path
from dysens.results import Sensitivities, header_of

logger = logging.getLogger(__name__)

DEFAULT_CRITERION = "fpgm"
CRITERION_NAMES = (*CRITERIA, VARIANCE)


def choose(
    sens: Sensitivities, target: Target, subject: Subject | None = None, searched: bool = False
) -> dict[str, float]:
    """Ratios by layer path, for what was measured.

    This is the one place where curves become ratios; a joint decision over all groups is another function that
    ends in the same ratios, and `prune` takes those.

    Args:
        sens: What a sweep measured, or the answers of a search.
        target: How much is to be pruned.
        subject: The network: FLOPs and parameters are then counted on it. Without, they are predicted from the costs
            that a journal holds.
        searched: Whether ``sens`` are the answers of a search. FLOPs or parameters are then saved within its ratios, and all
            of these are taken if the target names neither.

    Raises:
        InputError: No target is given, or several; no group may lose anything; or costs are not known.
        UnreachableError: The sensitivities do not reach that far.
    """
    target.check(searched)
    share = target.flops if target.flops is not None else target.params
    if share is not None and subject is not None:
        ds = subject.ds
        budget = ds.ratios_by_flops if target.flops is not None else ds.ratios_by_params
        return by_path(budget(sens, share, target.align), {group.name: group.path for group in ds.groups})
    if share is None and target.loss is None:
        # A search leaves one point per group: its answer.
        return by_path({name: max(curve) for name, curve in sens.items()}, sens.paths)
    return sens.ratios_for(target)


def criterion_of(given: str | None, ratio_file: RatioFile | None = None, journal: Path | None = None) -> str:
    """By which criterion to cut: the one that was given, or the one that ratios are for or losses were measured with.

    Args:
        given: What the user said; None for nothing.
        ratio_file: Where the ratios are from, if from a file. A slim config knows its criterion.
        journal: Where the sensitivities are from; a file that is not there knows nothing.

    Raises:
        InputError: Another one was given than the ratio file is for.
    """
    if ratio_file is not None and given is not None:
        ratio_file.check_criterion(given)
    header = header_of(journal) if journal is not None and journal.is_file() else None
    measured = header.criterion if header is not None else None
    if given is not None and measured is not None and given != measured:
        logger.warning(
            "%s was swept with the criterion %s; what %s cuts may cost more.", journal, measured, given
        )
    known = (ratio_file and ratio_file.criterion) or (measured if measured in CRITERION_NAMES else None)
    if given is None and known is None:
        logger.info(
            "No file says by which criterion to cut: it is %s (%s changes it).",
            DEFAULT_CRITERION,
            flag("criterion"),
        )
    return given or known or DEFAULT_CRITERION


def warn_of_other_weights(subject: Subject, journal: Path) -> None:
    """Losses of other weights may still be a guide, but not in silence."""
    header = header_of(journal)
    if header is not None and header.weights != fingerprint(subject.task.model):
        logger.warning("%s was swept with other weights than these; its losses may not hold.", journal)


@dataclass(frozen=True)
class Scored:
    """What a network is worth, and what it costs; prints as a line."""

    state: str
    indicator: str
    score: float
    flops: int
    params: int

    def __str__(self) -> str:
        return f"{self.state}: {self.indicator} {self.score:.4f}, {self.flops:,} FLOPs, {self.params:,} parameters"


@dataclass(frozen=True)
class Cut:
    """What a cut brought.

    Attributes:
        outcome: Costs and widths before and after.
        difference: How far the masked and the cut network are apart, in parts of the largest output.
        save: Where the weights and the plan are, without an ending.
        scores: Of the original and of the cut network; nothing where they were not scored.
    """

    outcome: PruneOutcome
    difference: float
    save: Path
    scores: tuple[Scored, ...] = ()

    @property
    def remarks(self) -> str:
        """What else there is to know, as two lines."""
        return (
            f"masked and cut network agree within {self.difference:.1e} of the largest output\n"
            f"saved as {self.save}.pdparams with {self.save}.plan.json (load_pruned reads both)"
        )


def prune(subject: Subject, ratios: Mapping[str, float], save: Path, scored: bool = True) -> Cut:
    """Prove the cut, cut the network, save its weights and plan, and score it before and after.

    Args:
        subject: The network; it is cut in place.
        ratios: By layer path or parameter name.
        save: The files' path, without an ending.
        scored: Whether to score it. Where nothing can, a line says so.

    Raises:
        InputError: A ratio names no group, or cannot be.
        ProofError: The cut network does not give the masked network's outputs.
    """
    if not subject.task.has_weights:
        logger.warning(
            "The network has random weights, so the result is only good for a trial: give %s.",
            flag("weights"),
        )
    difference = subject.ds.verify(ratios)
    whole = _original(subject) if scored else None
    outcome = subject.ds.prune_vars(ratios)
    save_pruned(subject.task.network, save)
    if whole is None:
        return Cut(outcome, difference, save)
    left = score(subject, PRUNED)
    loss = relative_loss(whole.score, left.score, subject.higher_is_better)
    if whole.score > 0 and loss > RUINED:
        logger.warning(
            "The cut loses %.0f%% of the score (%.4f -> %.4f). Remove less, or let compress choose: it decides for all groups "
            "together, and folds what goes into what stays.",
            100 * loss,
            whole.score,
            left.score,
        )
    return Cut(outcome, difference, save, (whole, left))


def _original(subject: Subject) -> Scored | None:
    """The score of the whole network; None, and a line, where there is none."""
    if subject.scores_chance:
        return None  # that the weights are random was said
    if not subject.has_evaluator:
        logger.info("The cut is not scored: give %s package.module:function.", flag("evaluator"))
        return None
    try:
        return score(subject, ORIGINAL)
    except InputError as error:
        logger.warning("The cut is not scored. %s", error)
        return None


def train(task: Task, pruned: Path | None = None) -> Path:
    """Hand the network to its framework's training loop; every checkpoint gets the plan of what was cut.

    Args:
        task: Its network is trained as it is, or goes on with a run that was broken off if the task says so.
        pruned: Load this pruned checkpoint first, without an ending; None if the network is cut already.

    Returns:
        The folder with the checkpoints.

    Raises:
        InputError: There is no such checkpoint, or the network is cut in another way; or there is no loop.
    """
    if pruned is not None and not task.resumes:
        _load_pruned(task, pruned)
    return task.train()


def _load_pruned(task: Task, pruned: Path) -> None:
    """Load what was pruned, unless the network's weights are of one that is cut in the same way already."""
    cut_before = bool(stages_of(task.network))
    if not has_plan(pruned) and not cut_before:
        raise InputError(f'There is no pruned checkpoint "{pruned}": run the step prune first.')
    if not cut_before:
        task.load(pruned)
    elif has_plan(pruned) and not is_cut_as_saved(task.network, pruned):
        raise InputError(
            f'The config\'s weights are of a pruned network, and "{pruned}" is of one that is cut in another way: name the '
            f"one to train as the config's weights, and give {flag('save')} another path (or the same)."
        )
    else:
        logger.info("The network is cut already: training begins with its weights as they are.")


def score(subject: Subject, state: str = "network") -> Scored:
    """Score a network as it is now, and count what it costs; it is left unchanged.

    Args:
        subject: Network and evaluator.
        state: What to call the network.
    """
    model, evaluator = subject.task.model, subject.evaluator
    cost = cost_of(model, view_of(subject.task.example_inputs))
    with preserved(model):
        if isinstance(evaluator, Evaluator):
            found = evaluate(model, evaluator)
        else:
            model.eval()
            found = metric_of(evaluator())
    return Scored(state, subject.indicator, found, cost.flops, cost.params)
