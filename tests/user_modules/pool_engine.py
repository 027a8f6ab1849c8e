"""An engine as a user would write one: the structure of border_cli/ray, with threads for Ray.

An actor manager, a runner of evaluations and a launcher of jobs, registered under one name. A
package would have its settings in a file of their own, as border_cli/ray/config.py is. Actors act
in calls: "with the newest weights, return so many samples". What an actor raises ends the run.
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
from border_cli.core.stop import Heartbeat, Pulse
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, Snapshot, State
from border_cli.evaluator.config import EpisodesConfig
from border_cli.evaluator.runner import EvaluationParts
from border_cli.hydra_plugin import SWEEP_LAUNCHER
from border_cli.registry import ACTOR_MANAGERS, EVALUATION_RUNNERS, JOB_LAUNCHERS
from border_cli.settings.run import ActorManagerConfig
from border_cli.sweep.processes import JobProcess, LocalProcess

USED: list[str] = []  # what of the engine was used, for the test


@dataclass(kw_only=True)
class PoolConfig(ActorManagerConfig):
    """Settings of the actors; a real engine has the address of its servers here."""

    asked: ClassVar[int] = 0

    def refuse_missing(self) -> None:
        type(self).asked += 1


class PooledActor:
    """One actor, and the call of it that is under way in a thread of the pool."""

    def __init__(self, actor_id: int, clock: Clock) -> None:
        self.record = ActorRecord(actor_id, clock)
        self.heartbeat = Heartbeat(f"actor {actor_id}", waiting_for="its next call")
        self.call: Future[list[Message]] | None = None
        self.asked = 0  # samples of the call
        self.counted = ActorStats(actor_id=actor_id)  # of the calls that have returned
        self.actor: Actor | None = None  # made by the first call
        self._sent: list[Message] = []

    def send(self, message: Message) -> float:
        """Keeps a message until the call returns; the actor has waited 0 s for space."""
        self._sent.append(message)
        return 0.0

    def act(self, make: Callable[[PooledActor], Actor], samples: int) -> list[Message]:
        """The call: so many samples, or a few more where an episode ends."""
        with self.heartbeat.working():
            self.actor = self.actor or make(self)
            made = 0
            while made < samples:
                made += self.actor.step()
                self.heartbeat.beat()
            self.actor.flush()
        sent, self._sent = self._sent, []
        return sent

    def returned(self) -> list[Experience]:
        """What the call made, once it is over. Raises what the actor raised."""
        call = self.call
        if call is None or not call.done():
            return []
        self.call, self.asked = None, 0
        messages = call.result()
        for each in messages:
            made = ActorStats(actor_id=each.actor_id, env_steps=each.env_steps, samples=each.rows)
            self.counted = self.counted.plus(made)
        return [each.experience() for each in messages]


class PoolActorManager(ActorManager):
    """One call per actor at a time, all of them within the permission; the learner's thread calls
    every method."""

    def __init__(self, config: PoolConfig, *, make_actor: ActorFactory, clock: Clock) -> None:
        self._config = config
        self._make_actor = make_actor
        self._weights = WeightSlot()
        self._permitted = 0.0
        self._saved = SavedActors.fresh(config.most_actors)  # with which this attempt begins
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
        for each in self._actors:
            each.record.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()  # once all calls have returned
        for each in self._actors:
            if each.actor is not None:
                each.actor.close()

    def publish(self, snapshot: Snapshot) -> None:
        self._weights.publish(snapshot)

    def permit(self, samples_total: float) -> None:
        self._permitted = samples_total

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        for each in self._actors:
            samples = int(min(self._free(), self._config.n_buffer))
            if each.call is None and samples > 0:
                each.asked = samples
                each.call = self._pool.submit(each.act, self._make, samples)
        self._wait(timeout_s, FIRST_COMPLETED)
        return [message for each in self._actors for message in each.returned()]

    def _free(self) -> float:
        """Samples that are permitted and neither made nor asked for."""
        made = sum(each.counted.samples + each.asked for each in self._actors)
        return self._permitted - self._saved.samples - made

    def _wait(self, timeout_s: float | None, until: str) -> None:
        wait([each.call for each in self._actors if each.call is not None], timeout_s, until)

    def stop(self) -> list[Experience]:
        self._wait(None, ALL_COMPLETED)
        return [message for each in self._actors for message in each.returned()]

    def state_dict(self) -> State:
        actors = [each.record.saved(each.counted, begun=1) for each in self._actors]
        return self._saved.after(actors).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._saved = SavedActors.load(state, len(self._actors)).without_states()
        for each, saved in zip(self._actors, self._saved.actors, strict=True):
            each.record.earlier = saved

    def stats(self) -> list[ActorStats]:
        return [each.record.stats(each.counted) for each in self._actors]

    def heartbeats(self) -> Sequence[Pulse]:
        return [each.heartbeat for each in self._actors]

    def gauges(self) -> Metrics:
        return {}


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
        return self._parts.confirmation.evaluated(self._evaluator, policy, snapshot)

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
