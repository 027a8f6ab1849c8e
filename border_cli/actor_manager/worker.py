"""One actor over all its lives: what it did, why it failed, whether it may live again."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable

from border_cli.actor_manager.actor import Actor
from border_cli.actor_manager.actor_record import ActorRecord, rows_in_proxy
from border_cli.actor_manager.laps import BLOCKED
from border_cli.actor_manager.restarts import Restarts
from border_cli.core.errors import ActorCrashed, BadStep
from border_cli.core.interfaces import ActorStats
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import ACTOR_SECTIONS, Clock
from border_cli.core.types import State

log = logging.getLogger(__name__)

MakeLife = Callable[[int, int, State | None], Actor]  # actor id, life, where it goes on


class Worker:
    """Makes an actor, steps it, and makes another one when it fails, within its budget.

    Owned by the thread that calls `step`; others may read its counters.
    """

    def __init__(self, actor_id: int, make: MakeLife, *, max_restarts: int, clock: Clock) -> None:
        self.actor_id = actor_id
        self.heartbeat = Heartbeat(f"actor {actor_id}")
        self.answered = 0  # the last question where it stands
        self._make = make
        self._max_restarts = max_restarts
        self._clock = clock
        self._actor: Actor | None = None
        self._started_s: float | None = None
        self._stopped_s: float | None = None
        self.blocked_s = 0.0  # waited for permission
        self.load(ActorRecord(actor_id=actor_id))

    def load(self, record: ActorRecord) -> None:
        """Goes on from there; called before the first step."""
        self._restarts = Restarts(self.actor_id, self._max_restarts, before=record.restarts)
        self._life, self._next_life = record.life, record.next_life
        self._saved = record.actor  # from which the next life goes on
        self.balance = record.balance  # leased samples that it has not made; below 0 it owes
        self._before_s = record.duration_s
        self._past_env_steps = record.env_steps  # of earlier lives
        self._past_seconds = list(record.seconds)
        self._past_restarted = record.restarted_episodes
        self._samples = record.samples
        self._lost = record.lost

    def step(self) -> int:
        """Steps the actor, which is made first where there is none; returns the rows it gave."""
        rows = (self._actor or self._begin_life()).step()
        self.balance -= rows
        self.heartbeat.beats += 1
        return rows

    def _begin_life(self) -> Actor:
        if self._started_s is None:
            self._started_s = self._clock.now_s()
        self._life = self._next_life
        self._actor = self._make(self.actor_id, self._life, self._saved)
        self._saved = None  # only now: until then this is where it stands
        return self._actor

    @property
    def alive(self) -> bool:
        """Whether there is an actor."""
        return self._actor is not None

    def flush(self) -> None:
        """Sends what the actor has gathered."""
        if self._actor is not None:
            self._actor.flush()

    def flush_saved(self) -> None:
        """The same; an actor that was saved is made for it: what it had gathered is needed."""
        if self._actor is None and self._saved is not None:
            self._begin_life()
        self.flush()

    def delivered(self, rows: int) -> None:
        """A message of the actor is in the channel."""
        self._samples += rows
        if rows:
            self._restarts.delivered()

    def failed(self) -> tuple[int, float]:
        """Takes the exception being handled; returns (lost rows, seconds before a new life).

        Raises `ActorCrashed` with the first traceback where no restart is left, or none can help,
        and a `BadStep` at once.
        """
        error, text = sys.exception(), traceback.format_exc()
        built = "during construction" if self._saved is None else "while being restored"
        where = f"at env step {self._env_steps}" if self._actor else built
        lost = self._discard()
        if isinstance(error, BadStep):
            raise error.of_actor(self.actor_id, self._env_steps)
        try:
            delay_s = self._restarts.failed(text)
        except ActorCrashed:
            log.error("actor %d failed %s and is not restarted", self.actor_id, where)
            raise
        log.warning(
            "actor %d failed %s, restart %d of %d:\n%s",
            self.actor_id, where, self._restarts.made, self._restarts.most, text,
        )  # fmt: skip
        return lost, delay_s

    def close(self) -> None:
        """Ends the actor; what it had gathered and not sent counts as lost."""
        self._discard()
        self._stopped_s = self._clock.now_s()
        self.heartbeat.waiting_for = "nothing (it has ended)"

    def _discard(self) -> int:
        actor, self._actor = self._actor, None
        lost, self._saved = rows_in_proxy(self._saved), None
        self._next_life = self._life + 1
        if actor is not None:
            lost = actor.proxy.rows
            self._past_env_steps += actor.env_steps
            self._past_seconds = self._seconds_with(actor)
            self._past_restarted += actor.restarted_episodes
            try:
                actor.close()
            except Exception:
                log.exception("actor %d: closing its environment failed", self.actor_id)
        self._lost += lost
        return lost

    def record(self) -> ActorRecord:
        """Where it stands, between two steps; called by the thread that owns it."""
        return self._record(self._state(), self._samples)

    def record_unanswered(self, received: int) -> ActorRecord:
        """Where it stands as far as another thread can tell, which has so many of its samples."""
        return self._record(self._saved, received)

    def _state(self) -> State | None:
        if self._actor is None:
            return self._saved
        try:
            return self._actor.state_dict()
        except Exception:  # to save must never end what is saved
            log.exception(
                "could not save actor %d: a resumed run starts it from scratch", self.actor_id
            )
            return None

    def _record(self, state: State | None, received: int) -> ActorRecord:
        actor = self._actor  # may end meanwhile
        gathered = actor.proxy.rows if actor is not None else 0
        return ActorRecord.of(
            self.stats,
            life=self._life,
            balance=self.balance,
            actor=state,
            samples=received,
            unsent=self._samples - received + gathered,
        )

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
        return self._before_s + (now_s - self._started_s if self._started_s is not None else 0.0)

    @property
    def stats(self) -> ActorStats:
        """What it did so far."""
        actor = self._actor
        return ActorStats(
            actor_id=self.actor_id,
            env_steps=self._env_steps,
            samples=self._samples,
            duration_s=self._duration_s,
            restarts=self._restarts.total,
            lost_samples=self._lost,
            restarted_episodes=self._past_restarted
            + (actor.restarted_episodes if actor is not None else 0),
            seconds=dict(zip(ACTOR_SECTIONS, self._seconds, strict=True)),
        )
