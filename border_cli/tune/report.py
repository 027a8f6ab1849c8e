"""A study as `border-plot` shows it: the score of its best trial over what the study had cost by
then, and the importance of hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from border_cli.analysis.curves import RunCurve
from border_cli.tune.space import space_of
from border_cli.tune.store import imported_optuna
from border_cli.tune.trials import Study, TrialRow, ranked

LEAST_TRIALS = 8  # of which an importance can be told
BEST_SHARE = 0.25  # of trials, whose values are compared with those of all


def progress(root: Path, study: Study, rows: Sequence[TrialRow]) -> list[RunCurve]:
    """A curve for each seed, of the best trial so far over the steps of all trials, which come in
    the order in which they ended, those that go on last; empty before there is any score."""
    rows = sorted((row for row in rows if row.scores), key=lambda row: row.ended or "later")
    steps = np.cumsum([float(study.seeds * row.budget) for row in rows])  # [N]
    best = [ranked(rows[: num + 1])[0].scores for num in range(len(rows))]  # [N][S]
    return [
        RunCurve(name=f"seed {seed}", env=study.env, group=str(root), x=steps, y=np.array(scores))
        for seed, scores in enumerate(zip(*best, strict=True))
    ]


def importance(study: Study, rows: Sequence[TrialRow]) -> Mapping[str, float]:
    """The importance of each hyperparameter that all trials have, the largest first, by Optuna's
    names; empty where trials are too few.

    Watanabe, Bansal and Hutter 2023, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance
    in Arbitrary Subspaces". Scores count by their ranks alone, since budgets differ.
    """
    imported_optuna()
    from optuna import create_study
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    if len(rows := ranked(rows)) < LEAST_TRIALS:
        return {}
    space = space_of(study.space, "").without(study.overrides)
    seen = create_study(direction="maximize")
    for rank, row in enumerate(rows):
        seen.enqueue_trial(row.params)
        space.suggest(trial := seen.ask())
        seen.tell(trial, -rank)
    evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    return dict(get_param_importances(seen, evaluator=evaluator))
