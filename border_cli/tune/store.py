"""The trials of a study in Optuna's storage, and what its samplers learn from.

A trial is RUNNING from its first step to the last decision about it, also while it waits at a rung.
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
from border_cli.run.sweep_folder import alone
from border_cli.tune.config import Sampler
from border_cli.tune.space import Space

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

CURVES = "curves"  # attribute of a trial: the evaluations of each seed up to its rung, [S][E]
REASON = "reason"  # why it failed or was pruned
NEW = {"direction": "maximize", "load_if_exists": True}
SAMPLERS = {
    Sampler.tpe: "TPESampler",
    Sampler.gp: "GPSampler",
    Sampler.random: "RandomSampler",
}


@dataclass
class TrialStore:
    """The study of one command; used by its main thread."""

    _study: Study

    def trials(self) -> list[FrozenTrial]:
        """All trials, in the order of their numbers."""
        return self._study.get_trials(deepcopy=False)

    def add(self, space: Space, sampler: Sampler) -> None:
        """Adds a trial with values that the sampler chose. It is there with all of them, or not.

        The sampler learns from trials that wait at a rung, too, by their last scores; its draws
        follow from how many trials there are.
        """
        import optuna

        trials = self.trials()
        more = {"multivariate": True, "group": True} if sampler == Sampler.tpe else {}
        with warnings.catch_warnings(action="ignore"):  # of all in Optuna that is young
            made = getattr(optuna.samplers, SAMPLERS[sampler])(seed=len(trials), **more)
            seen = optuna.create_study(direction="maximize", sampler=made)
            seen.add_trials([_seen(each) for each in trials if each.state.name != "FAIL"])
            asked = seen.ask()
            space.suggest(asked)
            self._study.add_trial(seen.trials[asked.number])

    def note(self, trial: FrozenTrial, name: str, value: Any) -> None:
        """Writes an attribute of a trial."""
        self._study._storage.set_trial_user_attr(trial._trial_id, name, value)

    def report(self, trial: FrozenTrial, budget: int, score: float) -> None:
        """Writes the score of a trial at a rung."""
        self._study._storage.set_trial_intermediate_value(trial._trial_id, budget, score)

    def end(self, trial: FrozenTrial, state: str) -> None:
        """A trial is complete with its last score, pruned, or has failed, without one."""
        from optuna.trial import TrialState

        score = _seen(trial).value if state == "complete" else None  # Optuna's own if pruned
        self._study.tell(trial.number, score, state=TrialState[state.upper()])


def _seen(trial: FrozenTrial) -> FrozenTrial:
    """A trial as samplers see it."""
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
def opened(url: str, name: str, root: Path, *, begun: bool) -> Iterator[TrialStore]:
    """The study of this name in a storage, which is made there unless it has `begun`; of all
    commands that work in `root` one at a time does that.

    Raises ConfigError where the storage fails, or has no such study.
    """
    optuna = imported_optuna()
    from sqlalchemy.exc import SQLAlchemyError

    shown = f"storage={url.partition('?')[0].rpartition('@')[2]}"  # without its password
    try:
        with ExitStack() as opened_here:
            with alone(root):
                storage = optuna.storages.RDBStorage(url)
                opened_here.callback(storage.engine.dispose)
                if begun and name not in optuna.get_all_study_names(storage):
                    raise ConfigError(
                        f"{shown} has no study {name!r}: type the one that it was begun with"
                    )
                study = optuna.create_study(study_name=name, storage=storage, **NEW)
            yield TrialStore(study)
    except (SQLAlchemyError, ImportError, optuna.exceptions.OptunaError) as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ConfigError(f"{shown}: {reason}") from error


def imported_optuna() -> Any:
    """Optuna; raises MissingPackage without one of the version that is needed."""
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
    logging.getLogger("alembic").setLevel(logging.WARNING)  # which lists its plug-ins
    return optuna
