"""The trials of a study in Optuna's storage.

Once added, a trial is RUNNING until the last decision about it, even while it waits at a rung.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.errors import ConfigError, MissingPackage
from border_cli.run.sweep_folder import sweep_lock
from border_cli.tune.config import Sampler
from border_cli.tune.space import Space

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

CURVES = "curves"  # attribute of a trial: evaluations of each seed up to its rung, [S][E]
REASON = "reason"  # attribute of a trial: why it failed or was pruned
NEW = {"direction": "maximize", "load_if_exists": True}
SAMPLERS = {
    Sampler.tpe: "TPESampler",
    Sampler.gp: "GPSampler",
    Sampler.random: "RandomSampler",
}


@dataclass
class TrialStore:
    """A study in Optuna's storage; used by the command's main thread."""

    _study: Study

    def trials(self) -> list[FrozenTrial]:
        """Returns all trials, ordered by number."""
        return self._study.get_trials(deepcopy=False)

    def add(self, space: Space, sampler: Sampler) -> None:
        """Adds a trial with values chosen by the sampler, all of them at once.

        The sampler also learns from the last scores of trials that wait at a rung. Its seed is
        the number of trials.
        """
        import optuna

        trials = self.trials()
        options = {"multivariate": True, "group": True} if sampler == Sampler.tpe else {}
        with warnings.catch_warnings(action="ignore"):  # about experimental features
            algorithm = getattr(optuna.samplers, SAMPLERS[sampler])(seed=len(trials), **options)
            scratch = optuna.create_study(direction="maximize", sampler=algorithm)
            scratch.add_trials([_as_complete(old) for old in trials if old.state.name != "FAIL"])
            new_trial = scratch.ask()
            space.suggest(new_trial)
            self._study.add_trial(scratch.trials[new_trial.number])

    def note(self, trial: FrozenTrial, name: str, value: Any) -> None:
        """Writes an attribute of a trial."""
        self._study._storage.set_trial_user_attr(trial._trial_id, name, value)

    def report(self, trial: FrozenTrial, budget: int, score: float) -> None:
        """Writes the score of a trial at a rung."""
        self._study._storage.set_trial_intermediate_value(trial._trial_id, budget, score)

    def end(self, trial: FrozenTrial, state: str) -> None:
        """Ends a trial, with its last score if it is complete."""
        from optuna.trial import TrialState

        # Optuna itself sets the score of a pruned trial
        score = _as_complete(trial).value if state == "complete" else None
        self._study.tell(trial.number, score, state=TrialState[state.upper()])


def _as_complete(trial: FrozenTrial) -> FrozenTrial:
    """Returns a trial as if completed with its last score, so that samplers learn from it."""
    from optuna.trial import TrialState, create_trial

    if not trial.intermediate_values:
        return trial
    return create_trial(
        state=TrialState.COMPLETE,
        value=trial.intermediate_values[max(trial.intermediate_values)],
        params=trial.params,
        distributions=trial.distributions,
        system_attrs=trial.system_attrs,
    )


@contextmanager
def open_store(url: str, name: str, root: Path, *, begun: bool) -> Iterator[TrialStore]:
    """Opens the study `name` in a storage, and creates it unless it has `begun`. Holds the lock of
    `root` only while opening it, not within the block.

    Raises ConfigError if the storage fails or does not contain a study that has begun.
    """
    optuna = import_optuna()
    from sqlalchemy.exc import SQLAlchemyError

    label = f"storage={url.partition('?')[0].rpartition('@')[2]}"  # without the password
    try:
        with ExitStack() as opened_here:
            with sweep_lock(root):
                storage = optuna.storages.RDBStorage(url)
                opened_here.callback(storage.engine.dispose)
                if begun and name not in optuna.get_all_study_names(storage):
                    raise ConfigError(
                        f"{label} has no study {name!r}: use the storage that it was begun with"
                    )
                study = optuna.create_study(study_name=name, storage=storage, **NEW)
            yield TrialStore(study)
    except (SQLAlchemyError, ImportError, optuna.exceptions.OptunaError) as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ConfigError(f"{label}: {reason}") from error


def import_optuna() -> Any:
    """Imports Optuna; raises MissingPackage unless the required version is installed."""
    try:
        import optuna
    except ImportError as error:
        raise MissingPackage("border-tune", "border-cli[tune]") from error
    if not optuna.__version__.startswith("5."):
        raise MissingPackage(
            f"border-tune (Optuna 5, and not {optuna.__version__})",
            "border-cli[tune]",
            "; hydra-optuna-sweeper 1.3 excludes it",
        )
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # its INFO log lists plug-ins
    return optuna
