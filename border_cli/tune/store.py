"""The trials of a study in Optuna's storage, and what its samplers learn from.

A trial is RUNNING from its first step to the last decision about it, also while it waits at a rung.
What Optuna has no word for stands in one attribute, which is written whole. Optuna is imported by
the functions that use it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.errors import ConfigError, MissingPackage
from border_cli.run.sweep_folder import alone
from border_cli.tune.config import Sampler
from border_cli.tune.space import Space

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

PROGRESS = "progress"  # the attribute of a trial
NEW = {"direction": "maximize", "load_if_exists": True}
SAMPLERS = {
    Sampler.tpe: "TPESampler",
    Sampler.gp: "GPSampler",
    Sampler.random: "RandomSampler",
    Sampler.cmaes: "CmaEsSampler",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trial is."""

    settings: list[str]  # the overrides that its values make
    rung: int = 0  # that it is trained to, or waits at
    curves: list[list[float]] = field(default_factory=list)  # [S][E], of each seed, up to a rung
    reason: str = ""  # why it failed


class TrialStore:
    """The study of one command; used by its main thread."""

    def __init__(self, study: Study) -> None:
        self._study = study

    def trials(self) -> list[FrozenTrial]:
        """All trials, in the order of their numbers."""
        return self._study.get_trials(deepcopy=False)

    def add(self, space: Space, sampler: Sampler) -> FrozenTrial:
        """A new trial with values that the sampler chose. It is there with all of them, or not.

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
            chosen = seen.trials[asked.number]
            progress = Progress(settings=space.overrides(chosen.params))
            self._study.add_trial(_like(chosen, user_attrs={PROGRESS: asdict(progress)}))
        return self.trials()[-1]

    def update(self, trial: FrozenTrial, **changes: Any) -> None:
        """Writes what has changed about a trial since it was read."""
        progress = asdict(replace(progress_of(trial), **changes))
        self._study._storage.set_trial_user_attr(trial._trial_id, PROGRESS, progress)

    def report(self, trial: FrozenTrial, budget: int, score: float) -> None:
        """Writes the score of a trial at a rung."""
        self._study._storage.set_trial_intermediate_value(trial._trial_id, budget, score)

    def end(self, trial: FrozenTrial, state: str, score: float | None = None) -> None:
        """A trial is COMPLETE with a score, PRUNED with its last one, or has FAILed."""
        from optuna.trial import TrialState

        self._study.tell(trial.number, score, state=TrialState[state])


def progress_of(trial: FrozenTrial) -> Progress:
    """How far a trial is."""
    return Progress(**trial.user_attrs[PROGRESS])


def _seen(trial: FrozenTrial) -> FrozenTrial:
    """A trial as samplers see it."""
    from optuna.trial import TrialState

    if not trial.intermediate_values:
        return trial
    score = trial.intermediate_values[max(trial.intermediate_values)]
    return _like(trial, state=TrialState.COMPLETE, value=score)


def _like(trial: FrozenTrial, **others: Any) -> FrozenTrial:
    """A new trial with the values of another one."""
    from optuna.trial import create_trial

    kept = ("state", "params", "distributions", "system_attrs")
    return create_trial(**{**{name: getattr(trial, name) for name in kept}, **others})


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
                    known = "type the one that it was begun with"
                    raise ConfigError(f"{shown} has no study {name!r}: {known}")
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
        what = f"border-tune (Optuna 5, and not {optuna.__version__})"
        raise MissingPackage(what, "border-cli[tune]", "; hydra-optuna-sweeper 1.3 excludes it")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # which lists its plug-ins
    return optuna
