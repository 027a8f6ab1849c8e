"""Workers, which build and step actors, and the base class of the managers that use them."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from border_cli.actor_manager.actor import BLOCKED, Actor, ActorCounts, ActorFactory, Message
from border_cli.actor_manager.rate_limiter import RateLimiter
from border_cli.actor_manager.record import ActorRecord, SavedActor, SavedActors, rows_in_proxy
from border_cli.actor_manager.restarts import Restarts
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.stop import Heartbeat, MonitoredPart
from border_cli.core.timing import ACTOR_SECTIONS, Clock
from border_cli.core.types import Snapshot, State
from border_cli.errors import BadStep, Stalled
from border_cli.settings.run import ActorManagerConfig

log = logging.getLogger(__name__)

_BLOCKED = ACTOR_SECTIONS[BLOCKED]


class StepFailed(Exception):
    """An actor in another thread or process has failed; the message is its traceback."""


class ActorRole(Protocol):
    """The methods of an actor that a worker uses; it may be in another thread or process."""

    @property
    def counts(self) -> ActorCounts: ...

    def flush(self) -> None: ...
    def state_dict(self) -> State: ...
    def close(self) -> None: ...


AnyActor = TypeVar("AnyActor", bound=ActorRole)


class Worker(Generic[AnyActor]):
    """A worker that builds an actor, counts its samples, and replaces it after a failure.

    Owned by the thread that steps its actor, or waits for its steps; other threads may call `stats`
    and `saved`. All sample counts refer to this attempt.
    """

    heartbeat_type: type[Heartbeat] = Heartbeat

    def __init__(
        self,
        actor_id: int,
        make: Callable[[int, int, State | None], AnyActor],
        *,
        max_restarts: int,
        clock: Clock,
    ) -> None:
        """`make` builds an actor, given its id, its incarnation and its saved state."""
        self.heartbeat = self.heartbeat_type(f"actor {actor_id}")
        self.record = ActorRecord(actor_id, clock)
        self._make = make
        self._restarts = Restarts(actor_id, max_restarts)
        self._actor: AnyActor | None = None
        self._begun = 0  # number of incarnations started
        self._past = ActorStats(actor_id=actor_id)  # counters of earlier incarnations
        self._state: State | None = None  # saved state for the next incarnation
        self._counting = threading.RLock()  # held while counters are added or read
        self.blocked_s = 0.0  # seconds spent waiting for the rate limiter
        self.sent = 0  # samples in all messages
        self.collected = 0  # samples collected and not lost
        self.granted = 0  # samples that the actor may collect in total

    def load(self, saved: SavedActor) -> None:
        """Restores a saved actor. Call before the first step."""
        self.record.earlier = saved
        self._state = saved.state
        self.collected = rows_in_proxy(saved.state)
        self.granted = self.collected + saved.budget

    @property
    def budget(self) -> int:
        """Granted samples not collected yet; negative if the actor has exceeded its grant."""
        return self.granted - self.collected

    def _start_incarnation(self) -> AnyActor:
        self.record.begin()
        self._begun += 1
        incarnation = self.record.incarnation(self._begun)
        self._actor = self._make(self.record.actor_id, incarnation, self._state)
        self._state = None  # cleared after the build, which may fail
        return self._actor

    def flush(self) -> None:
        """Sends the actor's buffered samples."""
        if self._actor is not None:
            self._actor.flush()

    def flush_saved(self) -> None:
        """Sends the buffered samples, building a saved actor first if necessary."""
        if self._actor is None and self._state is not None:
            self._start_incarnation()
        self.flush()

    def handle_failure(self) -> tuple[int, float]:
        """Handles the exception that the actor has just raised.

        Returns the granted samples that the learner will never receive, and the seconds to pause
        before the next incarnation. Raises `BadStep` and `Stalled` immediately, and `ActorCrashed`
        with the first traceback if no restarts are left or a restart would not help.
        """
        error = sys.exception()
        text = str(error) if isinstance(error, StepFailed) else traceback.format_exc()
        env_steps = self.stats.env_steps
        unused = self._discard()
        if isinstance(error, BadStep):
            raise error.of_actor(self.record.actor_id, env_steps)
        if isinstance(error, Stalled):
            raise error
        return unused, self._restarts.record_failure(
            text, delivered=self.sent, where=f" at env step {env_steps}"
        )

    def close(self) -> None:
        """Ends the actor; its unsent samples count as lost."""
        self._discard()
        self.record.end()
        self.heartbeat.waiting_for = "nothing (it has ended)"

    def _discard(self) -> int:
        """Ends the actor and returns the granted samples that the learner will never receive."""
        actor = self._actor
        with self._counting:
            lost = rows_in_proxy(self._state) if actor is None else actor.counts.unsent
            self._past = replace(self._attempt_stats, lost_samples=self._past.lost_samples + lost)
            unused = self.budget + lost
            self._actor = self._state = None
            self.collected = self.granted = self.sent
        if actor is not None:
            try:
                actor.close()
            except Exception:
                log.exception("%s: closing its environment failed", self.heartbeat.name)
        return unused

    @property
    def _attempt_stats(self) -> ActorStats:
        """Counters of this attempt."""
        actor = self._actor
        if actor is None:
            return self._past
        counts = actor.counts
        return self._past.plus(
            ActorStats(
                actor_id=self.record.actor_id,
                env_steps=counts.env_steps,
                restarted_episodes=counts.restarted_episodes,
                seconds=dict(zip(ACTOR_SECTIONS, counts.seconds, strict=False)),
            )
        )

    def _read_counters(self, received: int) -> ActorStats:
        """Returns the counters of this attempt, given the samples the learner has received."""
        with self._counting:
            attempt = self._attempt_stats
            blocked_s = self.blocked_s + attempt.seconds.get(_BLOCKED, 0.0)
            return replace(
                attempt,
                samples=received,
                restarts=self._restarts.count,
                seconds={**attempt.seconds, _BLOCKED: blocked_s},
            )

    def stats_of(self, received: int) -> ActorStats:
        """Returns the counters over the whole run, given the samples the learner has received."""
        return self.record.stats(self._read_counters(received))

    @property
    def stats(self) -> ActorStats:
        """Counters over the whole run; all samples sent count as received."""
        return self.stats_of(self.sent)

    def saved(self, received: int) -> SavedActor:
        """Returns the actor for a checkpoint, without its state. Thread-safe.

        `received` is the number of samples the learner has received. Samples are read before env
        steps, because the actor counts env steps first.
        """
        with self._counting:
            # During a step, the actor may have sent more samples than it has counted.
            collected = max(self.collected, self.sent, received)
            attempt = self._read_counters(received)
        lost = attempt.lost_samples + collected - received
        return self.record.saved(replace(attempt, lost_samples=lost), self._begun)

    def saved_exactly(self) -> SavedActor:
        """Returns the actor for a checkpoint, with its state. Only the owner may call it."""
        state = self._state if self._actor is None else self._actor.state_dict()
        if state is None:
            return self.saved(self.sent)
        return self.record.saved(
            self._read_counters(self.sent), self._begun, budget=self.budget, state=state
        )


class SteppingWorker(Worker[Actor]):
    """A worker whose actor steps in the calling thread."""

    def step(self) -> None:
        """Steps the actor, building it first if necessary."""
        self.collected += (self._actor or self._start_incarnation()).step()
        self.heartbeat.beats += 1


AnyWorker = TypeVar("AnyWorker", bound=Worker[Any])


class LocalActorManager(ActorManager, Generic[AnyWorker]):
    """The base class of managers with one worker per actor, all in this process."""

    worker_type: type[AnyWorker]

    def __init__(
        self, config: ActorManagerConfig, *, make_actor: ActorFactory, clock: Clock
    ) -> None:
        self.config = config
        self._make_actor = make_actor
        self._limiter = RateLimiter(burst=config.n_buffer)
        self._weights: WeightSlot | SharedWeightSlot = WeightSlot()
        self._clock = clock
        self._saved = SavedActors.fresh(config.num_actors)  # state at the start of this attempt
        self._workers = [
            self.worker_type(actor_id, self._make, max_restarts=config.max_restarts, clock=clock)
            for actor_id in range(config.num_actors)
        ]

    @abstractmethod
    def _send(self, message: Message) -> float:
        """Passes a message to the learner; returns the seconds spent waiting for space."""

    def _make(self, actor_id: int, incarnation: int, saved: State | None) -> Any:
        """Builds an actor."""
        actor = self._make_actor(
            self.config,
            actor_id,
            incarnation,
            send=self._send,
            weights=self._weights,
            saved=saved,
            beat=self._workers[actor_id].heartbeat.beat,
        )
        if not self.reproducible:  # the actor has its own thread
            actor.bind_thread()
        return actor

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = SavedActors.load(state, self.config.num_actors)
        self._saved = saved if self.reproducible else saved.without_states()
        for worker, saved_actor in zip(self._workers, self._saved.actors, strict=True):
            worker.load(saved_actor)
        self._limiter.resume(self._saved.granted)

    def _recover(self, worker: AnyWorker) -> None:
        """Handles an exception that an actor has just raised: returns its unused samples to the
        limiter and pauses. Raises `Closed` as soon as the limiter is closed."""
        unused, delay_s = worker.handle_failure()
        self._limiter.give_back(unused)
        with worker.heartbeat.waiting("its restart"):
            self._limiter.pause(delay_s)

    def publish(self, snapshot: Snapshot) -> None:
        self._weights.publish(snapshot)

    def permit(self, samples_total: float) -> None:
        self._limiter.permit(samples_total)

    def stats(self) -> list[ActorStats]:
        return [worker.stats for worker in self._workers]

    def heartbeats(self) -> Sequence[MonitoredPart]:
        return [worker.heartbeat for worker in self._workers]
