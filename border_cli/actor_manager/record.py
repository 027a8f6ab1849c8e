"""The record of each actor: its counters over a whole run, and what a checkpoint holds of it.

Every manager keeps one `ActorRecord` per actor. It counts what its actors do in this attempt; the
record adds what earlier attempts did. So any manager goes on from what any other one saved.
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
from border_cli.words import counted

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedActor:
    """One actor in a checkpoint: its counters, and its state where that is exact."""

    stats: ActorStats
    incarnation: int = -1  # the last one that began; -1: none did
    budget: int = 0  # granted samples that it has not made yet; below 0 it owes
    state: State | None = None  # `Actor.state_dict`; None: its next incarnation is a new one

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> Self:
        """From `state_dict`; raises KeyError or TypeError where it does not fit."""
        rest = dict(saved)
        own = {name: rest.pop(name) for name in ("incarnation", "budget", "state")}
        return cls(stats=ActorStats(**rest), **own)

    @property
    def next_incarnation(self) -> int:
        """The present one where it has a state to continue from, else one with unused seeds."""
        return self.incarnation + (self.state is None)

    @property
    def in_flight(self) -> int:
        """Granted samples that the learner has not received: in the proxy, or to be made."""
        return rows_in_proxy(self.state) + self.budget

    def ended(self) -> Self:
        """Without its state: the samples in its proxy are lost."""
        lost = self.stats.lost_samples + rows_in_proxy(self.state)
        return replace(self, state=None, budget=0, stats=replace(self.stats, lost_samples=lost))

    def state_dict(self) -> State:
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        del own["stats"]
        return asdict(self.stats) | own


def rows_in_proxy(actor: Mapping[str, Any] | None) -> int:
    """Transitions that a saved actor had gathered and not sent."""
    if actor is None or actor["proxy"]["columns"] is None:
        return 0
    return len(actor["proxy"]["columns"]["reward"])


class ActorRecord:
    """One actor over all its incarnations and attempts; its manager says when it begins and ends.

    Any thread may ask for its counters.
    """

    def __init__(self, actor_id: int, clock: Clock) -> None:
        self.actor_id = actor_id
        self.earlier = SavedActor(stats=ActorStats(actor_id=actor_id))  # as this attempt begins
        self._clock = clock
        self._began_s: float | None = None
        self._ended_s: float | None = None

    def begin(self) -> None:
        """Its first incarnation of this attempt begins; may be called again."""
        if self._began_s is None:
            self._began_s = self._clock.now_s()

    def end(self) -> None:
        """It acts no more."""
        self._ended_s = self._clock.now_s()

    def incarnation(self, begun: int) -> int:
        """The number of the newest incarnation, once so many have begun in this attempt."""
        if not begun:
            return self.earlier.incarnation
        return self.earlier.next_incarnation + begun - 1

    def stats(self, attempt: ActorStats) -> ActorStats:
        """Its counters over the whole run, from those of this attempt."""
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
        """For a checkpoint, once so many incarnations have begun in this attempt."""
        return SavedActor(
            stats=self.stats(attempt),
            incarnation=self.incarnation(begun),
            budget=budget,
            state=state,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedActors:
    """All actors of a run in a checkpoint, those of earlier attempts included."""

    actors: Sequence[SavedActor]  # by actor id
    samples: int = 0  # transitions that the learner received, of all actors
    first: int = 0  # whose turn it is, where actors take turns
    # Those beyond `num_actors`, of attempts that had more actors: kept so that an actor with their
    # id never repeats their seeds.
    removed: Sequence[SavedActor] = ()

    @classmethod
    def fresh(cls, num_actors: int) -> Self:
        """Before the first attempt."""
        return cls(actors=[_fresh(actor_id) for actor_id in range(num_actors)])

    @classmethod
    def load(cls, state: Mapping[str, Any], num_actors: int) -> Self:
        """From `state_dict`, for so many actors; raises CheckpointError."""
        try:
            saved = {each["actor_id"]: SavedActor.load(each) for each in state["actors"]}
            return cls(
                actors=[saved.get(i, _fresh(i)) for i in range(num_actors)],
                samples=int(state["samples"]),
                first=int(state["first"]),
                removed=[saved[each].ended() for each in sorted(saved) if each >= num_actors],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of the actors is invalid: {error}") from error

    def without_states(self) -> Self:
        """For a manager whose actors begin new episodes."""
        if rows := sum(rows_in_proxy(each.state) for each in self.actors):
            log.info(
                "dropped %s of the saved run that its actors had not sent yet: only "
                "actor_manager=serial and trainer=sync continue episodes", counted(rows, "sample"),
            )  # fmt: skip
        return replace(self, actors=[each.ended() for each in self.actors])

    @property
    def granted(self) -> int:
        """Samples of the learner's permission that are used up; lost ones are not."""
        return self.samples + sum(each.in_flight for each in self.actors)

    def after(self, actors: Sequence[SavedActor], *, first: int = 0) -> Self:
        """The run once its actors have come from `self.actors` to these."""
        new_samples = sum(each.stats.samples for each in actors) - sum(
            each.stats.samples for each in self.actors
        )
        return replace(self, actors=actors, samples=self.samples + new_samples, first=first)

    def state_dict(self) -> State:
        actors = [each.state_dict() for each in [*self.actors, *self.removed]]
        return {"actors": actors, "samples": self.samples, "first": self.first}


def _fresh(actor_id: int) -> SavedActor:
    return SavedActor(stats=ActorStats(actor_id=actor_id))
