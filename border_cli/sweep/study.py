"""The study of a search by Optuna's sweeper, kept in a file beside its jobs.

Hydra's sweeper adds `n_trials` trials whenever it is started, and forgets them unless it is given
a storage. Optuna is imported by the functions that use it: only its sweeper brings it.
"""

from __future__ import annotations

import logging
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig

from border_cli.config.overrides import is_sweep
from border_cli.core.errors import ConfigError
from border_cli.core.words import shortest

if TYPE_CHECKING:
    from optuna.study import Study

log = logging.getLogger(__name__)

FILE, NAME = "study.db", "border-train"
SEARCH, AGAIN = "search", "proposed_again"  # attributes of the study: what it was asked for, and
# how many of its trials were told to have failed because they were proposed once more
OPTIONS = {"storage", "study_name", "n_trials"}  # of Optuna's sweeper alone


def keep_study(master: DictConfig, root: Path, *, resumed: bool) -> None:
    """Has Optuna's sweeper keep its study in the directory of the sweep, and complete one that is
    there. Other sweepers, and one with a storage of the user's, are left as they are.

    `master`: the composition of the sweep itself, whose `hydra.sweeper` is changed. `n_trials`
    becomes the number of trials that the study lacks; those that were interrupted come first, with
    the parameters that they had. Raises ConfigError where the study there is not of this search.
    """
    sweeper = master.hydra.sweeper
    if not set(sweeper) >= OPTIONS or sweeper.storage is not None:
        return
    if advice := _unusable():
        log.warning("the study is not kept, a repeat of this command will add trials: %s", advice)
        return
    sweeper.storage, sweeper.study_name = f"sqlite:///{(root / FILE).absolute()}", NAME
    search, here = _search(master), shortest(root)
    study, found = _opened(sweeper.storage, search["directions"])
    if not found:
        study.set_user_attr(SEARCH, search)
        return
    if not resumed:
        raise ConfigError(f"run_dir={here} has the study of a sweep; resume=auto completes it")
    asked = study.user_attrs.get(SEARCH, search)
    if asked != search:
        raise ConfigError(f"run_dir={here}: its study is of {_shown(asked)}, not {_shown(search)}")
    _propose_again(study)
    _complete(sweeper, study)


def _unusable() -> str:
    """Why Optuna cannot keep a study in a file; empty where it can."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # which lists its plug-ins
    import optuna
    import sqlalchemy

    old = optuna.__version__.startswith("2.")
    if not old or sqlalchemy.__version__.startswith("1."):
        return ""
    return (
        f"Optuna {optuna.__version__} needs an older SQLAlchemy "
        "(pip install hydra-optuna-sweeper 'sqlalchemy<2')"
    )


def _search(master: DictConfig) -> dict[str, list[str]]:
    """What a study must have in common with this command: the goal, and what is searched."""
    direction, params = master.hydra.sweeper.direction, master.hydra.sweeper.params
    goals = direction if isinstance(direction, ListConfig) else [direction]
    swept = [f"{key}={value}" for key, value in (params or {}).items()]
    swept += [each for each in map(str, master.hydra.overrides.task) if is_sweep(each)]
    return {
        "directions": [str(each).rpartition(".")[2] for each in goals],
        "overrides": sorted(swept),
    }


def _shown(search: dict[str, list[str]]) -> str:
    goals = ",".join(search["directions"])
    return f"{' '.join(search['overrides'])} (hydra.sweeper.direction={goals})"


def _opened(storage: str, directions: list[str]) -> tuple[Study, bool]:
    """The study, and whether there was one."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it says whenever it opens a study
    if optuna.get_all_study_summaries(storage):
        return optuna.load_study(study_name=NAME, storage=storage), True
    return optuna.create_study(study_name=NAME, storage=storage, directions=directions), False


def _propose_again(study: Study) -> None:
    """Trials that still run in a study which nobody works on were interrupted."""
    from optuna.trial import TrialState

    cut_off = [each for each in study.get_trials() if each.state == TrialState.RUNNING]
    study.set_user_attr(AGAIN, study.user_attrs.get(AGAIN, 0) + len(cut_off))
    for trial in cut_off:
        with warnings.catch_warnings(action="ignore"):  # Optuna 2.10 calls it experimental
            study.enqueue_trial(trial.params)
        study.tell(trial.number, state=TrialState.FAIL)


def _complete(sweeper: DictConfig, study: Study) -> None:
    """Leaves as many trials to the sweeper as the study lacks."""
    trials = study.get_trials()
    num_ended = sum(each.state.is_finished() for each in trials) - study.user_attrs[AGAIN]
    grid: dict[str, list[Any]] | None = trials and trials[0].system_attrs.get("search_space")
    total = math.prod(map(len, grid.values())) if grid else sweeper.n_trials
    sweeper.n_trials = max(0, min(sweeper.n_trials, total) - num_ended)
    if sweeper.sampler.get("seed") is not None:  # else it would draw the first values once more
        sweeper.sampler.seed += len(trials)
