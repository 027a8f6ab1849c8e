"""The trials of a study in Optuna's storage: who trains each of them, and what samplers see.

A trial is RUNNING from its first step to the last decision about it, also while it waits at a rung.
What Optuna has no word for stands in one attribute, which is written whole. A command shows every
few seconds that it lives; what is held by one that is gone is taken up by another. Optuna is
imported by the functions that use it.
"""

from __future__ import annotations

import logging
import os
import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from border_cli.errors import ConfigError, MissingPackage
from border_cli.tune.config import Sampler
from border_cli.tune.space import Space

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

BEAT_S = 10.0  # between two signs of life of a command
LEASE_S = 60.0  # without a sign, after which a command of another machine is gone
ID, PROGRESS = "id", "progress"  # attributes of the study, of a trial
WINNER = "winner"  # of the study: its number, and the command that trains it on fresh seeds
ALIVE = "alive "  # begins the attributes of the study in which commands show that they live


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trial is."""

    settings: list[str]  # the overrides that its values make
    rung: int = 0  # that it is trained to, or waits at
    reached: int = -1  # the last rung that all its seeds have reached; -1: none
    curves: list[list[float]] | None = None  # [S][E], the evaluations of each seed up to there
    owner: str = ""  # the command that trains it; empty: none does
    reason: str = ""  # why it failed

    @property
    def in_training(self) -> bool:
        """Whether it is on its way to a rung, or was when its command ended."""
        return self.rung > self.reached


class TrialStore:
    """One command's access to the study; owned by its main thread."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self.owner = f"{platform.node()} {os.getpid()} {_started(os.getpid())}"
        self._beats = 0
        self._beaten_s = -BEAT_S
        self._heard: dict[str, tuple[object, float]] = {}  # of others: last sign, and when it came

    def trials(self) -> list[FrozenTrial]:
        """All trials, in the order of their numbers."""
        return self._study.get_trials(deepcopy=False)

    def beat(self) -> None:
        """Shows that this command lives, where it is time to; call it often."""
        now_s = time.monotonic()
        if now_s >= self._beaten_s + BEAT_S:
            self._beats, self._beaten_s = self._beats + 1, now_s
            self._study.set_user_attr(ALIVE + self.owner, self._beats)

    def is_gone(self, owner: str) -> bool:
        """Whether a command has ended: known at once of one on this machine, of others after a
        while without a sign."""
        host, pid, started = owner.rsplit(" ", 2)
        if host == platform.node():
            return started != _started(int(pid))
        sign, now_s = self._study.user_attrs.get(ALIVE + owner), time.monotonic()
        last, heard_s = self._heard.setdefault(owner, (sign, now_s))
        if last != sign:
            self._heard[owner] = sign, now_s
        return last == sign and now_s > heard_s + LEASE_S

    def add(self, space: Space, sampler: Sampler) -> FrozenTrial:
        """A new trial, which this command trains, with values that the sampler chose."""
        import optuna

        trials = self.trials()
        with _quiet():
            seen = optuna.create_study(
                direction="maximize", sampler=_sampler(sampler, seed=len(trials))
            )
            seen.add_trials([_seen(each, sampler) for each in trials if each.state.name != "FAIL"])
            asked = seen.ask()
            space.suggest(asked)
            chosen = seen.trials[asked.number]
            progress = Progress(settings=space.overrides(chosen.params), owner=self.owner)
            new = optuna.trial.create_trial(
                state=chosen.state,  # RUNNING, with all its values: half of it is never there
                params=chosen.params,
                distributions=chosen.distributions,
                user_attrs={PROGRESS: asdict(progress)},
                system_attrs=chosen.system_attrs,
            )
            self._study.add_trial(new)
        return next(t for t in reversed(self.trials()) if progress_of(t) == progress)

    def update(self, trial: FrozenTrial, **changes: Any) -> None:
        """Writes what has changed about a trial."""
        progress = asdict(replace(progress_of(trial), **changes))
        self._study._storage.set_trial_user_attr(trial._trial_id, PROGRESS, progress)

    def report(self, trial: FrozenTrial, budget: int, score: float) -> None:
        """Writes the score of a trial at a rung."""
        self._study._storage.set_trial_intermediate_value(trial._trial_id, budget, score)

    def end(self, trial: FrozenTrial, state: str, score: float | None = None) -> None:
        """A trial is COMPLETE with a score, PRUNED with its last one, or has FAILed."""
        from optuna.trial import TrialState

        self._study.tell(trial.number, score, state=TrialState[state])

    def crown(self, number: int) -> bool:
        """Whether this command is to train the winner on fresh seeds: no other one does."""
        trains, owner = self._study.user_attrs.get(WINNER, (None, ""))
        if trains == number and owner != self.owner and not self.is_gone(owner):
            return False
        self._study.set_user_attr(WINNER, (number, self.owner))
        return True


def progress_of(trial: FrozenTrial) -> Progress:
    """How far a trial is."""
    return Progress(**trial.user_attrs[PROGRESS])


def _started(pid: int) -> str:
    """When a process of this machine began, which tells it from a later one of its number; empty
    where none is alive."""
    import psutil

    try:
        process = psutil.Process(pid)
        ended = process.status() == psutil.STATUS_ZOMBIE
        return "" if ended else str(process.create_time())
    except psutil.Error:
        return ""


@contextmanager
def opened(url: str, name: str, study_id: str, *, begun: bool) -> Iterator[TrialStore]:
    """The study of this name in a storage, which is made there unless it has `begun`.

    Raises ConfigError where the storage fails, or has another study of the name.
    """
    optuna = imported_optuna()
    from sqlalchemy.exc import SQLAlchemyError

    shown = url.rpartition("@")[2]  # without a password
    try:
        with _quiet():
            storage = optuna.storages.RDBStorage(url)
            known = {each.study_name: each.user_attrs.get(ID) for each in storage.get_all_studies()}
            if known.get(name, "" if begun else study_id) != study_id:
                raise ConfigError(
                    f"storage={shown} does not have the study {name!r} of this directory: give the "
                    "storage that it was begun with, or choose another study=DIR"
                )
            study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize", load_if_exists=True
            )
            study.set_user_attr(ID, study_id)
        yield TrialStore(study)
        storage.engine.dispose()
    except (SQLAlchemyError, ImportError, optuna.exceptions.OptunaError) as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ConfigError(f"storage={shown}: {reason}") from error


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


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna warns of each of its parts that is young."""
    with warnings.catch_warnings(action="ignore"):
        yield


def _sampler(name: Sampler, seed: int) -> Any:
    from optuna import samplers

    if name == Sampler.tpe:
        return samplers.TPESampler(seed=seed, multivariate=True, group=True)
    made = {
        Sampler.gp: samplers.GPSampler,
        Sampler.cmaes: samplers.CmaEsSampler,
        Sampler.random: samplers.RandomSampler,
    }
    return made[name](seed=seed)


def _seen(trial: FrozenTrial, sampler: Sampler) -> FrozenTrial:
    """A trial as samplers see it: they learn from one that waits at a rung as from a pruned one.
    TPE puts those behind complete ones; the others take no notice of them unless complete, too."""
    import optuna

    if trial.state.name == "COMPLETE" or not trial.intermediate_values:
        return trial
    state = "PRUNED" if sampler == Sampler.tpe else "COMPLETE"
    return optuna.trial.create_trial(
        state=optuna.trial.TrialState[state],
        value=trial.intermediate_values[max(trial.intermediate_values)],
        params=trial.params,
        distributions=trial.distributions,
        intermediate_values=trial.intermediate_values,
        system_attrs=trial.system_attrs,
    )
