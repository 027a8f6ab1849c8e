"""The settings of `border-tune` itself; all else that is typed is a setting of every run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.settings.base import Settings, setting


class Sampler(StrEnum):
    """Which sampler of Optuna chooses the values of a trial."""

    tpe = "tpe"
    gp = "gp"
    random = "random"


class Score(StrEnum):
    """Which evaluations of a run make its score."""

    last = "last"  # the mean of the last ones
    best = "best"  # the highest one
    auc = "auc"  # the mean of all


@dataclass(kw_only=True)
class TuneConfig(Settings):
    """What a study is, and how it goes on."""

    study: str = setting("", "directory of the study; one that is there goes on")
    trials: int = setting(30, "trials in all; a larger number adds some", low=1)
    seeds: int = setting(3, "runs of each trial, with the seeds 0, 1, …", low=1, high=1000)
    jobs: int | None = setting(None, "runs at once; null: as many as there are cores", low=1)
    search: str | None = setting(
        None, "space of the values: a file of conf/search; null: that of the agent's name"
    )
    sampler: Sampler = setting(Sampler.tpe, "Optuna's sampler that chooses the values of a trial")
    score: Score = setting(
        Score.last,
        "what a run is worth: the mean of its last evaluations, the best one, or the mean of all "
        "(the area under its curve)",
    )
    last_evals: int = setting(5, "evaluations that score=last is the mean of", low=1)
    rungs: int = setting(3, "budgets at which trials wait for each other", low=1, high=20)
    reduction: int = setting(3, "factor between two budgets, and of trials that go on", low=2)
    risk: float = setting(
        0.1, "a trial is pruned where its chance to be the better one is lower", low=0, high=1
    )
    max_cost: float = setting(
        0.5, "share of the cost of all trials at the full budget that may be spent", above=0, high=1
    )
    fresh_seeds: int = setting(5, "seeds with which the winner is trained again; 0: none", low=0)
    storage: str | None = setting(
        None, "URL of Optuna's storage; null: study.db (SQLite) in the directory of the study"
    )
    dry_run: bool = setting(False, "checks everything, prints the space and the budgets, and ends")
