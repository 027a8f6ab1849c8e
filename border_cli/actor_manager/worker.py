"""What the serial and thread managers share: one worker per actor makes, steps and rebuilds it."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from border_cli.actor_manager.actor import BLOCKED, Actor, ActorFactory, Send
from border_cli.actor_manager.rate_limiter import RateLimiter
from border_cli.actor_manager.restarts import Restarts
from border_cli.actor_manager.saved_actors import SavedActor, SavedActors, rows_in_proxy
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.config import ActorManagerConfig
from border_cli.core.errors import ActorCrashed, BadStep
from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import ACTOR_SECTIONS, Clock
from border_cli.core.types import Snapshot, State

log = logging.getLogger(__name__)

MakeIncarnation = Callable[[int, int, State | None], Actor]  # actor id, incarnation, saved state


class Worker:
    """Makes an actor, steps it, and makes another one when it fails, within its restarts.

    Owned by the thread that calls `step`; other threads may call `stats` and `saved`.
    """

    def __init__(
        self, actor_id: int, make: MakeIncarnation, *, max_restarts: int, clock: Clock
    ) -> None:
        self.actor_id = actor_id
        self.heartbeat = Heartbeat(f"actor {actor_id}")
        self._make = make
        self._clock = clock
        self._restarts = Restarts(actor_id, max_restarts)
        self._actor: Actor | None = None
        self._started_s: float | None = None
        self._stopped_s: float | None = None
        self.blocked_s = 0.0  # waited for the rate limiter
        self._counting = threading.Lock()  # while the counters of an actor that ends are added
        self.load(SavedActor(actor_id=actor_id))

    def load(self, saved: SavedActor) -> None:
        """Goes on from there; called before the first step."""
        self._earlier = saved  # of the attempts before this one
        self._incarnation, self._next_incarnation = saved.incarnation, saved.next_incarnation
        self._state = saved.state  # with which the next incarnation continues
        self._past_env_steps = saved.env_steps  # of earlier incarnations
        self._past_seconds = list(saved.seconds)
        self._past_restarted = saved.restarted_episodes
        self._lost = saved.lost
        self._sent_at_failure = self.sent = saved.samples  # samples in all messages
        self.made = saved.samples + saved.lost + rows_in_proxy(saved.state)  # samples
        self.granted = self.made + saved.budget  # samples that it may make in all

    @property
    def budget(self) -> int:
        """Granted samples that it has not made yet; below 0 it owes."""
        return self.granted - self.made

    def step(self) -> None:
        """Steps the actor, which is made first where there is none."""
        self.made += (self._actor or self._start_incarnation()).step()
        self.heartbeat.beats += 1

    def _start_incarnation(self) -> Actor:
        if self._started_s is None:
            self._started_s = self._clock.now_s()
        self._incarnation = self._next_incarnation
        self._actor = self._make(self.actor_id, self._incarnation, self._state)
        self._state = None  # only now: until then this is its state
        return self._actor

    def flush(self) -> None:
        """Sends what the actor has gathered."""
        if self._actor is not None:
            self._actor.flush()

    def flush_saved(self) -> None:
        """The same; a saved actor is made for it, because what it had gathered is needed."""
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
        built = "during construction" if self._state is None else "while being restored"
        where = f"at env step {self._env_steps}" if self._actor else built
        unused = self._discard()
        if isinstance(error, BadStep):
            raise error.of_actor(self.actor_id, self._env_steps)
        if self.sent > self._sent_at_failure:
            self._sent_at_failure = self.sent
            self._restarts.delivered()
        try:
            delay_s = self._restarts.failed(text)
        except ActorCrashed:
            log.error("actor %d failed %s and is not restarted", self.actor_id, where)
            raise
        log.warning(
            "actor %d failed %s, restart %d of %d:\n%s",
            self.actor_id, where, self._restarts.made, self._restarts.most, text,
        )  # fmt: skip
        return unused, delay_s

    def close(self) -> None:
        """Ends the actor; what it had gathered and not sent counts as lost."""
        self._discard()
        self._stopped_s = self._clock.now_s()
        self.heartbeat.waiting_for = "nothing (it has ended)"

    def _discard(self) -> int:
        """Ends the actor; returns the granted samples that the learner will never receive."""
        actor = self._actor
        with self._counting:
            lost = rows_in_proxy(self._state) if actor is None else actor.proxy.rows
            if actor is not None:
                self._past_env_steps += actor.env_steps
                self._past_seconds = self._seconds_with(actor)
                self._past_restarted += actor.restarted_episodes
            unused = self.budget + lost
            self._lost += lost
            self._actor = self._state = None
            self._next_incarnation = self._incarnation + 1
            self.made = self.granted = self.sent + self._lost
        if actor is not None:
            try:
                actor.close()
            except Exception:
                log.exception("actor %d: closing its environment failed", self.actor_id)
        return unused

    def saved(self, received: int) -> SavedActor:
        """Its counters without its state, once the learner has received so many samples.

        For any thread. Samples are read before env steps, which the actor counts first.
        """
        # Within a step it may have sent more than it has counted.
        made = max(self.made, max(self.sent, received) + self._lost)
        stats = replace(self.stats, samples=received, lost_samples=made - received)
        return SavedActor.of(stats, incarnation=self._incarnation)

    def saved_exactly(self) -> SavedActor:
        """The same with its state, between two steps; for the thread that owns it."""
        state = self._state_now()
        if state is None:
            return self.saved(self.sent)
        return SavedActor.of(
            self.stats, incarnation=self._incarnation, budget=self.budget, state=state
        )

    def _state_now(self) -> State | None:
        if self._actor is None:
            return self._state
        try:
            return self._actor.state_dict()
        except Exception:  # saving must never end a run
            log.exception(
                "could not save actor %d: a resumed run starts it from scratch", self.actor_id
            )
            return None

    @property
    def _env_steps(self) -> int:
        actor = self._actor
        return self._past_env_steps + (actor.env_steps if actor is not None else 0)

    @property
    def _seconds(self) -> list[float]:
        actor = self._actor
        seconds = self._seconds_with(actor) if actor is not None else list(self._past_seconds)
        seconds[BLOCKED] += self.blocked_s
        return seconds

    def _seconds_with(self, actor: Actor) -> list[float]:
        return [past + now for past, now in zip(self._past_seconds, actor.seconds, strict=True)]

    @property
    def _duration_s(self) -> float:
        now_s = self._stopped_s if self._stopped_s is not None else self._clock.now_s()
        lasted_s = now_s - self._started_s if self._started_s is not None else 0.0
        return self._earlier.duration_s + lasted_s

    @property
    def stats(self) -> ActorStats:
        """Its counters over the whole run."""
        with self._counting:
            actor = self._actor
            return ActorStats(
                actor_id=self.actor_id,
                env_steps=self._env_steps,
                samples=self.sent,
                duration_s=self._duration_s,
                restarts=self._earlier.restarts + self._restarts.made,
                lost_samples=self._lost,
                restarted_episodes=self._past_restarted
                + (actor.restarted_episodes if actor is not None else 0),
                seconds=dict(zip(ACTOR_SECTIONS, self._seconds, strict=True)),
            )


class LocalActorManager(ActorManager):
    """Owns the rate limiter, the weight slot and one worker per actor; subclasses call these."""

    def __init__(
        self, config: ActorManagerConfig, *, make_actor: ActorFactory, send: Send, clock: Clock
    ) -> None:
        self.config = config
        self._limiter = RateLimiter(burst=config.n_buffer)
        self._weights = WeightSlot()
        self._clock = clock
        self._saved = SavedActors.fresh(config.num_actors)  # with which this attempt begins
        self._workers = [
            Worker(
                actor_id,
                partial(self._make, make_actor, send),
                max_restarts=config.max_restarts,
                clock=clock,
            )
            for actor_id in range(config.num_actors)
        ]

    def _make(
        self,
        make_actor: ActorFactory,
        send: Send,
        actor_id: int,
        incarnation: int,
        saved: State | None,
    ) -> Actor:
        return make_actor(
            self.config,
            actor_id,
            incarnation,
            send=send,
            weights=self._weights,
            saved=saved,
            beat=self._workers[actor_id].heartbeat.beat,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = SavedActors.load(state, self.config.num_actors)
        self._saved = saved if self.reproducible else saved.without_states()
        for worker, each in zip(self._workers, self._saved.actors, strict=True):
            worker.load(each)
        self._limiter.resume(self._saved.granted)

    def _reap(self, worker: Worker) -> float:
        """Handles the current exception: gives its samples back; returns the pause that is due."""
        unused, delay_s = worker.failed()
        self._limiter.give_back(unused)
        return delay_s

    def _pause(self, worker: Worker, delay_s: float) -> None:
        """Waits before a new incarnation; raises `Closed` at once when the limiter closes."""
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
