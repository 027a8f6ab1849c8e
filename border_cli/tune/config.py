"""The settings of `border-tune`. All other overrides are settings of every run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.settings.base import Settings, setting


class Sampler(StrEnum):
    """The Optuna sampler that chooses the values of a trial."""

    tpe = "tpe"
    gp = "gp"
    random = "random"


class Score(StrEnum):
    """The way a run's evaluations are reduced to a score."""

    last = "last"  # mean of the last evaluations
    best = "best"  # best evaluation
    auc = "auc"  # mean of all evaluations


@dataclass(kw_only=True)
class TuneConfig(Settings):
    """The settings of a study."""

    study: str = setting("", "directory of the study; an existing study is resumed")
    trials: int = setting(30, "total number of trials; a larger number adds trials", low=1)
    seeds: int = setting(3, "runs per trial, with the seeds 0, 1, …", low=1, high=1000)
    jobs: int | None = setting(None, "runs in parallel; null means one per core", low=1)
    search: str | None = setting(
        None, "search space: a file in conf/search; null means the file named after the agent"
    )
    sampler: Sampler = setting(Sampler.tpe, "Optuna's sampler that chooses the values of a trial")
    score: Score = setting(
        Score.last,
        "score of a run: the mean of its last evaluations, its best evaluation, or the mean of all "
        "evaluations (the area under the curve)",
    )
    last_evals: int = setting(5, "number of evaluations averaged by score=last", low=1)
    rungs: int = setting(3, "number of budgets at which trials are compared", low=1, high=20)
    reduction: int = setting(3, "factor between budgets; top 1/reduction is promoted early", low=2)
    risk: float = setting(
        0.1, "a trial is pruned if P(it is better than the best trial) is lower", low=0, high=1
    )
    max_cost: float = setting(
        0.5,
        "fraction of the cost of all trials at full budget that may be spent; unused with rungs=1",
        above=0,
        high=1,
    )
    fresh_seeds: int = setting(
        5, "number of new seeds for retraining the winner; 0 means none", low=0
    )
    storage: str | None = setting(
        None, "URL of Optuna's storage; null means study.db (SQLite) in the study's directory"
    )
    dry_run: bool = setting(False, "check all settings, print the space and the budgets, and exit")
