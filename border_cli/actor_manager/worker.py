"""One actor over all its lives: what it did, why it failed, whether it may live again."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from border_cli.actor_manager.actor import Actor
from border_cli.actor_manager.laps import BLOCKED
from border_cli.actor_manager.restarts import Restarts
from border_cli.core.actors import ActorStats
from border_cli.core.clock import Clock
from border_cli.core.errors import ActorCrashed
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import ACTOR_SECTIONS

log = logging.getLogger(__name__)


class Worker:
    """Makes an actor, steps it, and makes another one when it fails, within its budget.

    Owned by the thread that calls `step`; others may read its counters.
    """

    def __init__(
        self,
        actor_id: int,
        make: Callable[[int, int], Actor],
        *,
        max_restarts: int,
        clock: Clock,
    ) -> None:
        self.actor_id = actor_id
        self.heartbeat = Heartbeat(f"actor {actor_id}")
        self.balance = 0  # leased samples that it has not made yet; below 0 it owes
        self._make = make
        self._restarts = Restarts(actor_id, max_restarts)
        self._clock = clock
        self._actor: Actor | None = None
        self._started_s: float | None = None
        self._stopped_s: float | None = None
        self._past_env_steps = 0  # of earlier lives
        self._past_seconds = [0.0] * len(ACTOR_SECTIONS)
        self.blocked_s = 0.0  # waited for permission
        self._samples = 0
        self._lost = 0

    def step(self) -> int:
        """Steps the actor, which is made first where there is none; returns the rows it gave."""
        if self._started_s is None:
            self._started_s = self._clock.now_s()
        if self._actor is None:
            self._actor = self._make(self.actor_id, self._restarts.made)
        rows = self._actor.step()
        self.balance -= rows
        self.heartbeat.beats += 1
        return rows

    def flush(self) -> None:
        """Sends what the actor has gathered."""
        if self._actor is not None:
            self._actor.flush()

    def delivered(self, rows: int) -> None:
        """A message of the actor is in the channel."""
        self._samples += rows
        if rows:
            self._restarts.delivered()

    def failed(self) -> tuple[int, float]:
        """Takes the exception being handled; returns (lost rows, seconds before a new life).

        Raises `ActorCrashed` with the first traceback once the restarts are used up.
        """
        text = traceback.format_exc()
        where = f"at env step {self._env_steps}" if self._actor else "while it was built"
        lost = self._discard()
        try:
            delay_s = self._restarts.failed(text)
        except ActorCrashed:
            log.error("actor %d failed %s, no restart is left", self.actor_id, where)
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
        self.heartbeat.waiting_for = "nothing: it has ended"

    def _discard(self) -> int:
        actor, self._actor = self._actor, None
        if actor is None:
            return 0
        self._past_env_steps += actor.env_steps
        self._past_seconds = self._seconds_with(actor)
        self._lost += actor.proxy.rows
        try:
            actor.close()
        except Exception:
            log.exception("actor %d: its environment failed to close", self.actor_id)
        return actor.proxy.rows

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
    def stats(self) -> ActorStats:
        """What it did so far."""
        now_s = self._stopped_s if self._stopped_s is not None else self._clock.now_s()
        return ActorStats(
            actor_id=self.actor_id,
            env_steps=self._env_steps,
            samples=self._samples,
            duration_s=now_s - self._started_s if self._started_s is not None else 0.0,
            restarts=self._restarts.made,
            lost_samples=self._lost,
            seconds=dict(zip(ACTOR_SECTIONS, self._seconds, strict=True)),
        )
