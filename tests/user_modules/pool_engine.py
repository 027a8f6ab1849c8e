"""An example of a user's execution engine, built like border_cli/ray with threads instead of Ray.

An actor manager, an evaluation runner and a job launcher, registered under one name. A package
would define its settings in a separate file, like border_cli/ray/config.py. An actor collects a
number of samples per call, with the newest weights. An exception in an actor ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from hydra.core.config_store import ConfigStore

from border_cli.actor_manager.actor import Actor, ActorFactory, Message
from border_cli.actor_manager.record import ActorRecord, SavedActors
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.interfaces import ActorManager, ActorStats, Evaluation, EvaluationRunner
from border_cli.core.stop import Heartbeat, MonitoredPart
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, Snapshot, State
from border_cli.evaluator.config import EpisodesConfig
from border_cli.evaluator.runner import EvaluationParts
from border_cli.hydra_plugin import SWEEP_LAUNCHER
from border_cli.registry import ACTOR_MANAGERS, EVALUATION_RUNNERS, JOB_LAUNCHERS
from border_cli.settings.run import ActorManagerConfig
from border_cli.sweep.processes import JobProcess, LocalProcess

USED: list[str] = []  # parts of the engine that were used, read by the test


@dataclass(kw_only=True)
class PoolConfig(ActorManagerConfig):
    """Settings of the actors; a real engine has the address of its servers here, too."""

    asked: ClassVar[int] = 0

    def refuse_missing(self) -> None:
        type(self).asked += 1


class PooledActor:
    """One actor, and its current call, which runs in a thread of the pool."""

    def __init__(self, actor_id: int, clock: Clock) -> None:
        self.record = ActorRecord(actor_id, clock)
        self.heartbeat = Heartbeat(f"actor {actor_id}", waiting_for="its next call")
        self.call: Future[list[Message]] | None = None
        self.asked = 0  # samples requested by the current call
        self.counted = ActorStats(actor_id=actor_id)  # totals of all finished calls
        self.actor: Actor | None = None  # created by the first call
        self._sent: list[Message] = []

    def send(self, message: Message) -> float:
        """Stores a message until the call returns; returns the seconds that the actor waited."""
        self._sent.append(message)
        return 0.0

    def act(self, make: Callable[[PooledActor], Actor], samples: int) -> list[Message]:
        """Collects at least `samples` samples; the last step may add a few more."""
        with self.heartbeat.working():
            self.actor = self.actor or make(self)
            collected = 0
            while collected < samples:
                collected += self.actor.step()
                self.heartbeat.beat()
            self.actor.flush()
        sent, self._sent = self._sent, []
        return sent

    def returned(self) -> list[Experience]:
        """Returns the experience of a finished call, or raises the exception of its actor."""
        call = self.call
        if call is None or not call.done():
            return []
        self.call, self.asked = None, 0
        messages = call.result()
        for msg in messages:
            counts = ActorStats(actor_id=msg.actor_id, env_steps=msg.env_steps, samples=msg.rows)
            self.counted = self.counted.plus(counts)
        return [message.experience() for message in messages]


class PoolActorManager(ActorManager):
    """An actor manager with at most one call per actor at a time, within the sample budget.

    The learner thread calls every method.
    """

    def __init__(self, config: PoolConfig, *, make_actor: ActorFactory, clock: Clock) -> None:
        self._config = config
        self._make_actor = make_actor
        self._weights = WeightSlot()
        self._permitted = 0.0
        self._saved = SavedActors.fresh(config.most_actors)  # saved by the previous attempt
        self._actors = [PooledActor(actor_id, clock) for actor_id in range(config.most_actors)]

    def _make(self, pooled: PooledActor) -> Actor:
        record, beat = pooled.record, pooled.heartbeat.beat
        return self._make_actor(
            self._config, record.actor_id, record.incarnation(1),
            send=pooled.send, weights=self._weights, beat=beat,
        )  # fmt: skip

    def __enter__(self) -> Self:
        USED.append("actors")
        self._pool = ThreadPoolExecutor(len(self._actors))
        for actor in self._actors:
            actor.record.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()  # waits for all calls
        for pooled in self._actors:
            if pooled.actor is not None:
                pooled.actor.close()

    def publish(self, snapshot: Snapshot) -> None:
        self._weights.publish(snapshot)

    def permit(self, samples_total: float) -> None:
        self._permitted = samples_total

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        for actor in self._actors:
            samples = int(min(self._free(), self._config.n_buffer))
            if actor.call is None and samples > 0:
                actor.asked = samples
                actor.call = self._pool.submit(actor.act, self._make, samples)
        self._wait(timeout_s, FIRST_COMPLETED)
        return [message for actor in self._actors for message in actor.returned()]

    def _free(self) -> float:
        """Returns the number of permitted samples that no call has collected or requested yet."""
        requested = sum(actor.counted.samples + actor.asked for actor in self._actors)
        return self._permitted - self._saved.samples - requested

    def _wait(self, timeout_s: float | None, until: str) -> None:
        wait([actor.call for actor in self._actors if actor.call is not None], timeout_s, until)

    def stop(self) -> list[Experience]:
        self._wait(None, ALL_COMPLETED)
        return [message for actor in self._actors for message in actor.returned()]

    def state_dict(self) -> State:
        actors = [actor.record.saved(actor.counted, begun=1) for actor in self._actors]
        return self._saved.with_actors(actors).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._saved = SavedActors.load(state, len(self._actors)).without_states()
        for actor, saved in zip(self._actors, self._saved.actors, strict=True):
            actor.record.earlier = saved

    def stats(self) -> list[ActorStats]:
        return [actor.record.stats(actor.counted) for actor in self._actors]

    def heartbeats(self) -> Sequence[MonitoredPart]:
        return [actor.heartbeat for actor in self._actors]

    def gauges(self) -> Metrics:
        return {}


class PoolEvaluationRunner(EvaluationRunner):
    """A runner that evaluates in a background thread."""

    in_background = True

    @staticmethod
    def refuse_missing(config: EpisodesConfig) -> None:
        """Threads are always available."""
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
    def pulse(self) -> MonitoredPart:
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
        return self._parts.confirmation.evaluate(self._evaluator, policy, snapshot)

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
    """A launcher of jobs in local processes, since every job needs its own signal handlers."""

    cores = 1

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._most = settings["jobs"]

    def refuse_missing(self) -> None:
        """Threads are always available."""

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
