"""An engine as a user would write one: the structure of border_cli/ray, with threads for Ray.

An actor manager, a runner of evaluations and a launcher of jobs, registered under one name. A
package would have its settings in a file of their own, as border_cli/ray/config.py is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from hydra.core.config_store import ConfigStore

from border_cli.actor_manager.config import ThreadConfig
from border_cli.actor_manager.thread import ThreadActorManager
from border_cli.core.interfaces import ActorManager, Evaluation, EvaluationRunner
from border_cli.core.stop import Heartbeat, Pulse
from border_cli.core.types import Snapshot
from border_cli.evaluator.config import EpisodesConfig
from border_cli.evaluator.runner import EvaluationParts
from border_cli.hydra_plugin import SWEEP_LAUNCHER
from border_cli.registry import ACTOR_MANAGERS, EVALUATION_RUNNERS, JOB_LAUNCHERS
from border_cli.sweep.processes import JobProcess, LocalProcess

USED: list[str] = []  # what of the engine was used, for the test


@dataclass(kw_only=True)
class PoolConfig(ThreadConfig):
    """Settings of the actors; a real engine has the address of its servers here."""

    asked: ClassVar[int] = 0

    def refuse_missing(self) -> None:
        type(self).asked += 1


class PoolActorManager(ThreadActorManager):
    """Actors in threads."""

    def __enter__(self) -> Self:
        USED.append("actors")
        return super().__enter__()


class PoolEvaluationRunner(EvaluationRunner):
    """Evaluates in a thread of a pool."""

    in_background = True

    @staticmethod
    def refuse_missing(config: EpisodesConfig) -> None:
        """Threads are always there."""
        del config

    @classmethod
    def of(cls, parts: EvaluationParts) -> Self:
        return cls(parts)

    def __init__(self, parts: EvaluationParts) -> None:
        self._parts = parts
        self._heartbeat = Heartbeat("evaluation")
        self._heartbeat.waiting_for = "its turn"
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[Evaluation] | None = None

    @property
    def pulse(self) -> Pulse:
        return self._heartbeat

    def open(self, actors: ActorManager | None = None) -> None:
        del actors
        USED.append("evaluations")
        self._pool = ThreadPoolExecutor(1)
        make = self._parts.make_evaluator
        self._evaluator = make(stop=self._parts.stop, heartbeat=self._heartbeat)

    def submit(self, snapshot: Snapshot) -> None:
        assert self._pool is not None
        self._under_way = self._pool.submit(self._evaluate, snapshot)

    def _evaluate(self, snapshot: Snapshot) -> Evaluation:
        policy = self._parts.make_policy()
        policy.load_snapshot(snapshot)
        return self._parts.confirmation.evaluated(self._evaluator, policy)

    @property
    def busy(self) -> bool:
        return self._under_way is not None

    def collect(self) -> Evaluation | None:
        if self._under_way is None or not self._under_way.done():
            return None
        return self.wait()

    def wait(self) -> Evaluation:
        assert self._under_way is not None
        evaluation, self._under_way = self._under_way.result(60), None
        return evaluation

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._evaluator.close()


class PoolLauncher:
    """Runs the jobs of a sweep in processes of this machine: a job needs one for its signals."""

    cores = 1

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._most = settings["jobs"]

    def refuse_missing(self) -> None:
        """Threads are always there."""

    def at_once(self, jobs: int) -> int:
        return self._most or jobs

    @contextmanager
    def starts(self, root: Path) -> Iterator[Callable[[int, Path], JobProcess]]:
        USED.append(f"jobs below {root.name}")
        yield LocalProcess


@dataclass
class PoolLauncherConf:
    """Settings of `hydra/launcher=pool`."""

    _target_: str = SWEEP_LAUNCHER
    jobs: int | None = None


ACTOR_MANAGERS.register("pool", PoolConfig, f"{__name__}:PoolActorManager")
EVALUATION_RUNNERS.register("pool", f"{__name__}:PoolEvaluationRunner")
JOB_LAUNCHERS.register("pool", f"{__name__}:PoolLauncher")
ConfigStore.instance().store(group="hydra/launcher", name="pool", node=PoolLauncherConf)
