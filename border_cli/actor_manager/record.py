"""The counters of each actor over a whole run, and the actors' state in a checkpoint.

Every manager has one `ActorRecord` per actor. The manager counts the current attempt, and the
record adds the totals of earlier attempts. Any manager can therefore resume from the checkpoint of
any other manager.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from border_cli.core.interfaces import ActorStats
from border_cli.core.timing import Clock
from border_cli.core.types import State
from border_cli.errors import CheckpointError
from border_cli.words import pluralize

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedActor:
    """One actor in a checkpoint: its counters and, if it can continue exactly, its state."""

    stats: ActorStats
    incarnation: int = -1  # number of the latest incarnation; -1 means none has started
    budget: int = 0  # granted samples not collected yet; negative if the grant was exceeded
    state: State | None = None  # `Actor.state_dict`; None if a new incarnation must start

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> Self:
        """Builds a saved actor from a `state_dict`; raises KeyError or TypeError if invalid."""
        counters = dict(saved)
        values = {name: counters.pop(name) for name in ("incarnation", "budget", "state")}
        return cls(stats=ActorStats(**counters), **values)

    @property
    def next_incarnation(self) -> int:
        """The current incarnation if its state was saved, otherwise one with unused seeds."""
        return self.incarnation + (self.state is None)

    @property
    def in_flight(self) -> int:
        """Granted samples that the learner has not received: unsent, or not collected yet."""
        return rows_in_proxy(self.state) + self.budget

    def without_state(self) -> Self:
        """Returns the actor without its state; its unsent samples count as lost."""
        lost = self.stats.lost_samples + rows_in_proxy(self.state)
        return replace(self, state=None, budget=0, stats=replace(self.stats, lost_samples=lost))

    def state_dict(self) -> State:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        del values["stats"]
        return asdict(self.stats) | values


def rows_in_proxy(actor: Mapping[str, Any] | None) -> int:
    """Returns the number of transitions that a saved actor had not sent."""
    if actor is None or actor["proxy"]["columns"] is None:
        return 0
    return len(actor["proxy"]["columns"]["reward"])


class ActorRecord:
    """The counters of one actor over all its incarnations and attempts.

    Only one thread calls `begin` and `end`; any thread may read the counters.
    """

    def __init__(self, actor_id: int, clock: Clock) -> None:
        self.actor_id = actor_id
        self.earlier = SavedActor(stats=ActorStats(actor_id=actor_id))  # after earlier attempts
        self._clock = clock
        self._began_s: float | None = None
        self._ended_s: float | None = None

    def begin(self) -> None:
        """Marks the start of the actor in this attempt; later calls have no effect."""
        if self._began_s is None:
            self._began_s = self._clock.now_s()

    def end(self) -> None:
        """Marks the end of the actor in this attempt."""
        self._ended_s = self._clock.now_s()

    def incarnation(self, begun: int) -> int:
        """Returns the latest incarnation's number, given how many have begun in this attempt."""
        if not begun:
            return self.earlier.incarnation
        return self.earlier.next_incarnation + begun - 1

    def stats(self, attempt: ActorStats) -> ActorStats:
        """Returns the counters over the whole run, given those of this attempt."""
        return self.earlier.stats.plus(replace(attempt, duration_s=self._duration_s))

    @property
    def _duration_s(self) -> float:
        began_s, ended_s = self._began_s, self._ended_s
        if began_s is None:
            return 0.0
        return (self._clock.now_s() if ended_s is None else ended_s) - began_s

    def saved(
        self, attempt: ActorStats, begun: int, *, budget: int = 0, state: State | None = None
    ) -> SavedActor:
        """Returns the actor for a checkpoint, after `begun` incarnations in this attempt."""
        return SavedActor(
            stats=self.stats(attempt),
            incarnation=self.incarnation(begun),
            budget=budget,
            state=state,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedActors:
    """All actors in a checkpoint, including those of earlier attempts."""

    actors: Sequence[SavedActor]  # in the order of their ids
    samples: int = 0  # transitions that the learner received from all actors
    first: int = 0  # next actor to step, in reproducible managers
    # Actors of earlier attempts with ids of `num_actors` or more. They are saved so that later
    # actors with the same ids never reuse their seeds.
    removed: Sequence[SavedActor] = ()

    @classmethod
    def fresh(cls, num_actors: int) -> Self:
        """Builds the actors of a run that has not started."""
        return cls(actors=[_fresh(actor_id) for actor_id in range(num_actors)])

    @classmethod
    def load(cls, state: Mapping[str, Any], num_actors: int) -> Self:
        """Builds `num_actors` actors from a `state_dict`; raises CheckpointError if invalid."""
        try:
            saved = {actor["actor_id"]: SavedActor.load(actor) for actor in state["actors"]}
            return cls(
                actors=[saved.get(i, _fresh(i)) for i in range(num_actors)],
                samples=int(state["samples"]),
                first=int(state["first"]),
                removed=[saved[key].without_state() for key in sorted(saved) if key >= num_actors],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of the actors is invalid: {error}") from error

    def without_states(self) -> Self:
        """Returns the actors without their states, for a manager that starts new episodes."""
        if rows := sum(rows_in_proxy(actor.state) for actor in self.actors):
            log.info(
                "dropped %s that the actors of the saved run had not sent: only "
                "actor_manager=serial and trainer=sync continue episodes",
                pluralize(rows, "sample"),
            )
        return replace(self, actors=[actor.without_state() for actor in self.actors])

    @property
    def granted(self) -> int:
        """Samples that count towards the learner's limit; lost samples do not."""
        return self.samples + sum(actor.in_flight for actor in self.actors)

    def with_actors(self, actors: Sequence[SavedActor], *, first: int = 0) -> Self:
        """Returns a copy with these `actors`, whose new samples are added to the total."""
        new_samples = sum(actor.stats.samples for actor in actors) - sum(
            actor.stats.samples for actor in self.actors
        )
        return replace(self, actors=actors, samples=self.samples + new_samples, first=first)

    def state_dict(self) -> State:
        actors = [actor.state_dict() for actor in [*self.actors, *self.removed]]
        return {"actors": actors, "samples": self.samples, "first": self.first}


def _fresh(actor_id: int) -> SavedActor:
    return SavedActor(stats=ActorStats(actor_id=actor_id))
