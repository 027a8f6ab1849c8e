"""One worker per actor of the serial and thread managers: makes, steps and rebuilds it."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from border_cli.actor_manager.actor import BLOCKED, Actor, ActorFactory, Message
from border_cli.actor_manager.rate_limiter import RateLimiter
from border_cli.actor_manager.record import ActorRecord, SavedActor, SavedActors, rows_in_proxy
from border_cli.actor_manager.restarts import Restarts
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import ACTOR_SECTIONS, Clock
from border_cli.core.types import Snapshot, State
from border_cli.errors import BadStep
from border_cli.settings.run import ActorManagerConfig

log = logging.getLogger(__name__)

_BLOCKED = ACTOR_SECTIONS[BLOCKED]

MakeIncarnation = Callable[[int, int, State | None], Actor]  # actor id, incarnation, saved state


class Worker:
    """Makes an actor, steps it, and makes another one when it fails, within its restarts.

    Owned by the thread that calls `step`; other threads may call `stats` and `saved`. All numbers
    of samples are those of this attempt.
    """

    def __init__(
        self, actor_id: int, make: MakeIncarnation, *, max_restarts: int, clock: Clock
    ) -> None:
        self.heartbeat = Heartbeat(f"actor {actor_id}")
        self.record = ActorRecord(actor_id, clock)
        self._make = make
        self._restarts = Restarts(actor_id, max_restarts)
        self._actor: Actor | None = None
        self._begun = 0  # incarnations
        self._past = ActorStats(actor_id=actor_id)  # of the incarnations before the actor
        self._state: State | None = None  # with which the next incarnation continues
        self._counting = threading.Lock()  # while the counters of an actor that ends are added
        self.blocked_s = 0.0  # waited for the rate limiter
        self.sent = 0  # samples in all messages
        self.made = 0  # samples that it made and did not lose
        self.granted = 0  # samples that it may make in all

    def load(self, saved: SavedActor) -> None:
        """Goes on from there; called before the first step."""
        self.record.earlier = saved
        self._state = saved.state
        self.made = rows_in_proxy(saved.state)
        self.granted = self.made + saved.budget

    @property
    def budget(self) -> int:
        """Granted samples that it has not made yet; below 0 it owes."""
        return self.granted - self.made

    def step(self) -> None:
        """Steps the actor, which is made first where there is none."""
        self.made += (self._actor or self._start_incarnation()).step()
        self.heartbeat.beats += 1

    def _start_incarnation(self) -> Actor:
        self.record.begin()
        self._begun += 1
        incarnation = self.record.incarnation(self._begun)
        self._actor = self._make(self.record.actor_id, incarnation, self._state)
        self._state = None  # only now: until then this is its state
        return self._actor

    def flush(self) -> None:
        """Sends what the actor has gathered."""
        if self._actor is not None:
            self._actor.flush()

    def flush_saved(self) -> None:
        """Sends what the actor has gathered; a saved one that had gathered some is made first."""
        if self._actor is None and self._state is not None:
            self._start_incarnation()
        self.flush()

    def failed(self) -> tuple[int, float]:
        """Handles the current exception.

        Returns the granted samples that the learner will never receive, and the seconds before the
        next incarnation. Raises `ActorCrashed` with the first traceback where no restart is left,
        or none can help, and a `BadStep` at once.
        """
        error, text = sys.exception(), traceback.format_exc()
        env_steps = self.stats.env_steps
        built = "during construction" if self._state is None else "while being restored"
        where = f" at env step {env_steps}" if self._actor else f" {built}"
        unused = self._discard()
        if isinstance(error, BadStep):
            raise error.of_actor(self.record.actor_id, env_steps)
        return unused, self._restarts.failed(text, delivered=self.sent, where=where)

    def close(self) -> None:
        """Ends the actor; what it had gathered and not sent counts as lost."""
        self._discard()
        self.record.end()
        self.heartbeat.waiting_for = "nothing (it has ended)"

    def _discard(self) -> int:
        """Ends the actor; returns the granted samples that the learner will never receive."""
        actor = self._actor
        with self._counting:
            lost = rows_in_proxy(self._state) if actor is None else actor.proxy.rows
            self._past = replace(self._attempt, lost_samples=self._past.lost_samples + lost)
            unused = self.budget + lost
            self._actor = self._state = None
            self.made = self.granted = self.sent
        if actor is not None:
            try:
                actor.close()
            except Exception:
                log.exception("%s: closing its environment failed", self.heartbeat.name)
        return unused

    @property
    def _attempt(self) -> ActorStats:
        """Its counters in this attempt."""
        actor = self._actor
        if actor is None:
            return self._past
        return self._past.plus(
            ActorStats(
                actor_id=self.record.actor_id,
                env_steps=actor.env_steps,
                restarted_episodes=actor.restarted_episodes,
                seconds=dict(zip(ACTOR_SECTIONS, actor.seconds, strict=True)),
            )
        )

    def _counted(self, received: int) -> ActorStats:
        """Its counters in this attempt, of whose samples the learner has received so many."""
        with self._counting:
            attempt = self._attempt
            blocked_s = self.blocked_s + attempt.seconds.get(_BLOCKED, 0.0)
            return replace(
                attempt,
                samples=received,
                restarts=self._restarts.made,
                seconds={**attempt.seconds, _BLOCKED: blocked_s},
            )

    def stats_of(self, received: int) -> ActorStats:
        """Its counters over the whole run, once the learner has received so many samples."""
        return self.record.stats(self._counted(received))

    @property
    def stats(self) -> ActorStats:
        """Its counters over the whole run, of whose messages the learner has received all."""
        return self.stats_of(self.sent)

    def saved(self, received: int) -> SavedActor:
        """Its counters without its state, once the learner has received so many samples.

        For any thread. Samples are read before env steps, which the actor counts first.
        """
        # Within a step it may have sent more than it has counted.
        made = max(self.made, self.sent, received)
        attempt = self._counted(received)
        lost = attempt.lost_samples + made - received
        return self.record.saved(replace(attempt, lost_samples=lost), self._begun)

    def saved_exactly(self) -> SavedActor:
        """Its counters with its state, between two steps; for the thread that owns it."""
        state = self._state if self._actor is None else self._actor.state_dict()
        if state is None:
            return self.saved(self.sent)
        return self.record.saved(
            self._counted(self.sent), self._begun, budget=self.budget, state=state
        )


class LocalActorManager(ActorManager):
    """Owns the rate limiter, the weight slot and one worker per actor; subclasses call these."""

    def __init__(
        self, config: ActorManagerConfig, *, make_actor: ActorFactory, clock: Clock
    ) -> None:
        self.config = config
        self._make_actor = make_actor
        self._limiter = RateLimiter(burst=config.n_buffer)
        self._weights = WeightSlot()
        self._clock = clock
        self._saved = SavedActors.fresh(config.num_actors)  # with which this attempt begins
        self._workers = [
            Worker(actor_id, self._make, max_restarts=config.max_restarts, clock=clock)
            for actor_id in range(config.num_actors)
        ]

    @abstractmethod
    def _send(self, message: Message) -> float:
        """Hands a message to the learner; returns the seconds that it waited for space."""

    def _make(self, actor_id: int, incarnation: int, saved: State | None) -> Actor:
        actor = self._make_actor(
            self.config,
            actor_id,
            incarnation,
            send=self._send,
            weights=self._weights,
            saved=saved,
            beat=self._workers[actor_id].heartbeat.beat,
        )
        if not self.reproducible:  # then it has a thread of its own
            actor.bind_thread()
        return actor

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = SavedActors.load(state, self.config.num_actors)
        self._saved = saved if self.reproducible else saved.without_states()
        for worker, each in zip(self._workers, self._saved.actors, strict=True):
            worker.load(each)
        self._limiter.resume(self._saved.granted)

    def _recover(self, worker: Worker) -> None:
        """Handles the current exception of an actor: gives its samples back, and pauses before its
        next incarnation. Raises `Closed` at once when the limiter closes."""
        unused, delay_s = worker.failed()
        self._limiter.give_back(unused)
        with worker.heartbeat.waiting("its restart"):
            self._limiter.pause(delay_s)

    def publish(self, snapshot: Snapshot) -> None:
        self._weights.publish(snapshot)

    def permit(self, samples_total: float) -> None:
        self._limiter.permit(samples_total)

    def stats(self) -> list[ActorStats]:
        return [worker.stats for worker in self._workers]

    def heartbeats(self) -> list[Heartbeat]:
        return [worker.heartbeat for worker in self._workers]
