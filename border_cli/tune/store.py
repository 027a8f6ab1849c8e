"""The trials of a study in Optuna's storage: who holds each of them, and what samplers learn from.

A trial is RUNNING from its first step to its last decision, also while it waits at a rung. How far
it is stands in one attribute, which is written whole. The command that trains a trial holds it, and
shows every few seconds that it lives; what a command held that is gone is taken up by another.
Optuna is imported by the functions that use it.
"""

from __future__ import annotations

import logging
import os
import platform
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from border_cli.errors import ConfigError, MissingPackage, RunFailed
from border_cli.tune.config import Sampler
from border_cli.tune.space import Space

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

BEAT_S = 10.0  # between two signs of life of a command
LEASE_S = 60.0  # without a sign, after which a command on another machine is gone
ID, PROGRESS, SETTINGS, REASON = "id", "progress", "settings", "reason"
WINNER = "winner"  # its number, and the command that trains it on fresh seeds
ALIVE = "alive "  # begins the attributes in which commands show that they live
WAIT_S = 60.0  # for another process that writes to a SQLite file


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trial is."""

    rung: int  # that it is trained to, or waits at
    curves: list[list[float]]  # [S][E] evaluations of each seed, up to the last rung reached
    reached: int = -1  # the last rung that all its seeds have reached; -1: none
    owner: str = ""  # the command that trains it; empty: none does

    @property
    def in_training(self) -> bool:
        """Whether it is on its way to a rung, or was when its command ended."""
        return self.rung > self.reached


class TrialStore:
    """One command's access to the study; owned by its main thread."""

    def __init__(self, study: Study, owner: str) -> None:
        self._study = study
        self._storage = study._storage
        self.owner = owner
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

    def orphaned(self, trial: FrozenTrial) -> bool:
        """Whether nobody trains a trial that is on its way to a rung."""
        progress = progress_of(trial)
        return progress.in_training and (not progress.owner or self._is_gone(progress.owner))

    def _is_gone(self, owner: str) -> bool:
        """Known at once of a process of this machine; else after a while without a sign."""
        host, pid, started = owner.rsplit(" ", 2)
        if owner == self.owner:
            return False
        if host == platform.node():
            return started != _started(int(pid))
        sign, now_s = self._study.user_attrs.get(ALIVE + owner), time.monotonic()
        if self._heard.get(owner, (None, 0.0))[0] != sign or owner not in self._heard:
            self._heard[owner] = sign, now_s
        return now_s > self._heard[owner][1] + LEASE_S

    def add(self, space: Space, sampler: Sampler) -> FrozenTrial:
        """A new trial, which this command holds, with values that the sampler chose."""
        import optuna

        with _quiet():
            seen = optuna.create_study(
                direction="maximize", sampler=_sampler(sampler, len(self.trials()))
            )
            seen.add_trials([each for trial in self.trials() for each in _seen(trial, sampler)])
            asked = seen.ask()
            space.suggest(asked)
            chosen = seen.trials[asked.number]
            mark = uuid4().hex
            self._study.add_trial(
                optuna.trial.create_trial(
                    state=optuna.trial.TrialState.RUNNING,
                    params=chosen.params,
                    distributions=chosen.distributions,
                    user_attrs={
                        PROGRESS: asdict(Progress(rung=0, curves=[], owner=self.owner)),
                        SETTINGS: space.overrides(chosen.params),
                        ID: mark,
                    },
                    system_attrs=chosen.system_attrs,
                )
            )
        return next(each for each in self.trials() if each.user_attrs.get(ID) == mark)

    def hold(self, trial: FrozenTrial, rung: int) -> None:
        """This command trains a trial to a rung from now on."""
        self._write(trial, replace(progress_of(trial), rung=rung, owner=self.owner))

    def holds(self, number: int) -> bool:
        """Whether it still does: another command may have taken it for gone."""
        return progress_of(self.trials()[number]).owner == self.owner

    def let_go(self, number: int) -> None:
        """Nobody trains it; the next command that has a place for it does."""
        self._write(trial := self.trials()[number], replace(progress_of(trial), owner=""))

    def reached(
        self, number: int, rung: int, curves: list[list[float]], score: float, budget: int
    ) -> None:
        """All seeds of a trial have reached a rung, with this score; it waits there."""
        trial = self.trials()[number]
        self._storage.set_trial_intermediate_value(trial._trial_id, budget, score)
        self._write(trial, Progress(rung=rung, curves=curves, reached=rung))

    def crown(self, number: int) -> bool:
        """This command trains the winner on fresh seeds, unless another one does."""
        trains, owner = self._study.user_attrs.get(WINNER, (None, self.owner))
        if trains == number and owner != self.owner and not self._is_gone(owner):
            return False
        self._study.set_user_attr(WINNER, (number, self.owner))
        return True

    def complete(self, number: int, score: float) -> None:
        """A trial has reached the full budget."""
        self._study.tell(number, score)

    def prune(self, number: int, reason: str) -> None:
        """A trial goes no further; its value is its last score."""
        from optuna.trial import TrialState

        self._end(number, TrialState.PRUNED, reason)

    def fail(self, number: int, reason: str) -> None:
        """A trial has no score."""
        from optuna.trial import TrialState

        self._end(number, TrialState.FAIL, reason)

    def _end(self, number: int, state: Any, reason: str) -> None:
        trial = self.trials()[number]
        self._storage.set_trial_user_attr(trial._trial_id, REASON, reason)
        self._study.tell(number, state=state)

    def _write(self, trial: FrozenTrial, progress: Progress) -> None:
        self._storage.set_trial_user_attr(trial._trial_id, PROGRESS, asdict(progress))


def progress_of(trial: FrozenTrial) -> Progress:
    """How far a trial is."""
    return Progress(**trial.user_attrs[PROGRESS])


def this_command() -> str:
    """The name of this process among all that work on a study."""
    return f"{platform.node()} {os.getpid()} {_started(os.getpid())}"


def _started(pid: int) -> str:
    """When a process of this machine began, which tells it from a later one of its number; empty
    where there is none."""
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

    Raises ConfigError where the storage cannot be used, or has another study of the name.
    """
    optuna = imported_optuna()
    from sqlalchemy.exc import SQLAlchemyError

    options = {"connect_args": {"timeout": WAIT_S}} if url.startswith("sqlite:") else {}
    shown = url.rpartition("@")[2]  # without a password
    try:
        with _quiet():
            storage = optuna.storages.RDBStorage(url, engine_kwargs=options)
            known = {each.study_name: each.user_attrs.get(ID) for each in storage.get_all_studies()}
    except (SQLAlchemyError, ImportError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"storage={shown} cannot be used: {reason}") from error
    if begun and name not in known:
        raise ConfigError(
            f"storage={shown} has no study {name!r}, which its directory has begun: give the "
            "storage that it was begun with"
        )
    if known.get(name, study_id) != study_id:
        raise ConfigError(
            f"storage={shown} has another study {name!r}, which is not in this directory: choose "
            "another study=…"
        )
    try:
        with _quiet():
            study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize", load_if_exists=True
            )
            study.set_user_attr(ID, study_id)
            yield TrialStore(study, this_command())
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        cause = error.__cause__ or error
        reason = str(cause).strip().partition("\n")[0]
        raise RunFailed(f"storage={shown}: {reason}") from error
    finally:
        storage.remove_session()
        storage.engine.dispose()


def imported_optuna() -> Any:
    """Optuna of the version that is needed; raises MissingPackage."""
    try:
        import optuna
    except ImportError as error:
        raise MissingPackage("border-tune", "border-cli[tune]") from error
    if int(optuna.__version__.partition(".")[0]) < 5:
        raise MissingPackage(
            f"border-tune (Optuna 5; there is {optuna.__version__}, which hydra-optuna-sweeper 1.3 "
            "needs: the two cannot share an environment)",
            "border-cli[tune]",
        )
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # which lists its plug-ins
    return optuna


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna warns of each of its parts that is young."""
    with warnings.catch_warnings(action="ignore"):
        yield


def _sampler(name: Sampler, num_trials: int) -> BaseSampler:
    """A sampler whose draws follow from how many trials there are: none is drawn twice."""
    from optuna import samplers

    if name == Sampler.gp:
        return samplers.GPSampler(seed=num_trials)
    if name == Sampler.cmaes:
        return samplers.CmaEsSampler(seed=num_trials, warn_independent_sampling=False)
    if name == Sampler.random:
        return samplers.RandomSampler(seed=num_trials)
    return samplers.TPESampler(
        seed=num_trials, multivariate=True, group=True, warn_independent_sampling=False
    )


def _seen(trial: FrozenTrial, sampler: Sampler) -> Sequence[FrozenTrial]:
    """A trial as samplers see it: what has a score, they learn from, whether it waits at a rung or
    was pruned. To TPE it is pruned; the others take no notice of pruned ones."""
    import optuna

    states, made = optuna.trial.TrialState, trial
    if trial.state == states.FAIL:
        return []
    if trial.state != states.COMPLETE and trial.intermediate_values:
        tpe = sampler == Sampler.tpe
        last = trial.intermediate_values[max(trial.intermediate_values)]
        made = optuna.trial.create_trial(
            state=states.PRUNED if tpe else states.COMPLETE,
            value=last,
            params=trial.params,
            distributions=trial.distributions,
            intermediate_values=trial.intermediate_values,
            system_attrs=trial.system_attrs,
        )
    return [made]
