"""Plots of a study in `border-plot`: the score of the best trial over the cost so far, and the
importance of hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from border_cli.analysis.curves import RunCurve
from border_cli.tune.space import space_of
from border_cli.tune.store import import_optuna
from border_cli.tune.trials import Study, TrialRow, rank_trials

LEAST_TRIALS = 8  # minimum number of trials to estimate the importance
BEST_SHARE = 0.25  # the values of this best fraction of trials are compared with those of all


def progress(root: Path, study: Study, rows: Sequence[TrialRow]) -> list[RunCurve]:
    """Returns a curve per seed: the best trial's score over the steps of all trials so far. Trials
    are ordered by their end, unfinished ones last. A failed trial only adds its steps. Empty if
    there are no scores."""
    rows = sorted((row for row in rows if row.scores), key=lambda row: row.ended or "later")
    steps = np.cumsum([float(study.seeds * row.budget) for row in rows])  # [N]
    ranked = [rank_trials(rows[: num + 1]) for num in range(len(rows))]
    best = [trials[0].scores for trials in ranked if trials]  # [M][S]
    return [
        RunCurve(
            name=f"seed {seed}",
            env=study.env,
            group=str(root),
            x=steps[len(rows) - len(best) :],
            y=np.array(scores),
        )
        for seed, scores in enumerate(zip(*best, strict=True))
    ]


def importance(study: Study, rows: Sequence[TrialRow]) -> Mapping[str, float]:
    """Returns the importance of the hyperparameters common to all trials, the largest first, by
    Optuna's names; empty if there are too few trials.

    Watanabe, Bansal and Hutter 2023, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance
    in Arbitrary Subspaces". Only the ranks of scores are used, since budgets differ.
    """
    import_optuna()
    from optuna import create_study
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    if len(rows := rank_trials(rows)) < LEAST_TRIALS:
        return {}
    space = space_of(study.space, "").without(study.overrides)
    ranking = create_study(direction="maximize")
    for rank, row in enumerate(rows):
        ranking.enqueue_trial(row.params)
        space.suggest(trial := ranking.ask())
        ranking.tell(trial, -rank)
    evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    return dict(get_param_importances(ranking, evaluator=evaluator))
