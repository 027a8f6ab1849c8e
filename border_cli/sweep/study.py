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

from border_cli.errors import ConfigError
from border_cli.words import shortest

if TYPE_CHECKING:
    from optuna.study import Study

log = logging.getLogger(__name__)

FILE, NAME = "study.db", "border-train"
AGAIN = "proposed_again"  # attribute of the study: trials that failed only to be proposed once more
OPTIONS = {"storage", "study_name", "n_trials"}  # of Optuna's sweeper alone


def keep_study(master: DictConfig, root: Path, *, resumed: bool) -> None:
    """Has Optuna's sweeper keep its study in the directory of the sweep, and complete one that is
    there. Other sweepers, and one with a storage of the user's, are left as they are.

    `master`: the composition of the sweep itself, whose `hydra.sweeper` is changed. `n_trials`
    becomes the number of trials that the study lacks; those that were interrupted come first, with
    the parameters that they had. Raises ConfigError where the study there has another goal.
    """
    sweeper = master.hydra.sweeper
    if not set(sweeper) >= OPTIONS or sweeper.storage is not None:
        return
    if advice := _unusable():
        log.warning("the study is not kept, a repeat of this command will add trials: %s", advice)
        return
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it says whenever it opens a study
    sweeper.storage, sweeper.study_name = f"sqlite:///{(root / FILE).absolute()}", NAME
    if not optuna.get_all_study_summaries(sweeper.storage):
        return  # the sweeper makes it
    if not resumed:
        raise ConfigError(
            f"run_dir={shortest(root)} has the study of a sweep; resume=auto completes it"
        )
    study = optuna.load_study(study_name=NAME, storage=sweeper.storage)
    _refuse_other_goal(sweeper, study, root)
    _propose_again(study)
    _complete(sweeper, study)


def _refuse_other_goal(sweeper: DictConfig, study: Study, root: Path) -> None:
    goals = sweeper.direction if isinstance(sweeper.direction, ListConfig) else [sweeper.direction]
    asked = ",".join(str(each).rpartition(".")[2] for each in goals)
    found = ",".join(each.name.lower() for each in study.directions)
    if asked != found:
        raise ConfigError(
            f"run_dir={shortest(root)}: its study has hydra.sweeper.direction={found}, not {asked}"
        )


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
    grid: Any = trials and trials[0].system_attrs.get("search_space")
    total = math.prod(map(len, grid.values())) if grid else sweeper.n_trials
    sweeper.n_trials = max(0, min(sweeper.n_trials, total) - num_ended)
    if sweeper.sampler.get("seed") is not None:  # else it would draw the first values once more
        sweeper.sampler.seed += len(trials)
