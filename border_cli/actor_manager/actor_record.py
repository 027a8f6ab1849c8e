"""What is saved of the actors of a run: the same whichever manager ran them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import ActorStats
from border_cli.core.timing import ACTOR_SECTIONS
from border_cli.core.types import State
from border_cli.core.words import counted

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRecord:
    """One actor: its counters over all its lives, and where it stands if that is known."""

    actor_id: int
    life: int = -1  # the one that is or was the last; -1 where none has begun
    restarts: int = 0
    env_steps: int = 0
    samples: int = 0  # rows that the learner received
    lost: int = 0  # rows that it never will
    restarted_episodes: int = 0
    duration_s: float = 0.0
    seconds: list[float] = field(default_factory=lambda: [0.0] * len(ACTOR_SECTIONS))
    balance: int = 0  # leased samples that it has not made yet; below 0 it owes
    actor: State | None = None  # `Actor.state_dict`; None: its next life is a new one

    def __post_init__(self) -> None:
        if self.actor is None and self.balance:
            raise ValueError("samples are granted to an actor that has no state")
        if len(self.seconds) != len(ACTOR_SECTIONS):
            raise ValueError(
                f"expected {len(ACTOR_SECTIONS)} sections of seconds, got {len(self.seconds)}"
            )

    @classmethod
    def of(
        cls,
        stats: ActorStats,
        *,
        life: int,
        balance: int,
        actor: State | None,
        samples: int,
        unsent: int = 0,
    ) -> Self:
        """What it did and where it stands, when the learner had so many samples of it.

        Without an actor, the `unsent` rows that it had made end with it, and so does its lease.
        """
        return cls(
            actor_id=stats.actor_id,
            life=life,
            restarts=stats.restarts,
            env_steps=stats.env_steps,
            samples=samples,
            lost=stats.lost_samples + (unsent if actor is None else 0),
            restarted_episodes=stats.restarted_episodes,
            duration_s=stats.duration_s,
            seconds=[stats.seconds.get(section, 0.0) for section in ACTOR_SECTIONS],
            balance=0 if actor is None else balance,
            actor=actor,
        )

    @property
    def next_life(self) -> int:
        """The same goes on where it is known how; else one with seeds that no life had."""
        return self.life + (self.actor is None)

    @property
    def leased(self) -> int:
        """Samples that were leased and are not with the learner: in its proxy, or to be made."""
        return rows_in_proxy(self.actor) + self.balance

    def state_dict(self) -> State:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def rows_in_proxy(actor: Mapping[str, Any] | None) -> int:
    """Rows that an actor, as it was saved, had gathered and not sent."""
    if actor is None or actor["proxy"]["columns"] is None:
        return 0
    return len(actor["proxy"]["columns"]["reward"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerRecord:
    """All actors of a run, those of earlier attempts included."""

    actors: Sequence[ActorRecord]  # by actor id
    samples: int = 0  # rows that the learner received, of whomever
    first: int = 0  # whose turn it is, where actors take turns
    # Those beyond, of attempts that had more actors: they end where they were, and are kept so
    # that an actor with their id never repeats their seeds.
    gone: Sequence[ActorRecord] = ()

    @classmethod
    def fresh(cls, num_actors: int) -> Self:
        """Before anything happened."""
        return cls(actors=[ActorRecord(actor_id=actor_id) for actor_id in range(num_actors)])

    @classmethod
    def load(cls, state: Mapping[str, Any], num_actors: int) -> Self:
        """What `state_dict` gave, for so many actors; raises CheckpointError."""
        try:
            records = {each["actor_id"]: ActorRecord(**each) for each in state["actors"]}
            samples, first = int(state["samples"]), int(state["first"])
            gone = [records[each] for each in sorted(records) if each >= num_actors]
            _tell_dropped([each for each in gone if each.actor is not None])
            return cls(
                actors=[records.get(i, ActorRecord(actor_id=i)) for i in range(num_actors)],
                samples=samples,
                first=first,
                gone=[_ended(each) for each in gone],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of the actors is invalid: {error}") from error

    @property
    def leased(self) -> int:
        """Samples of the learner's permission that are used up; lost ones are not."""
        return self.samples + sum(each.leased for each in self.actors)

    def after(self, actors: Sequence[ActorRecord], *, first: int = 0) -> Self:
        """The same run, once its actors have come from `self.actors` to these."""
        new_samples = sum(each.samples for each in actors) - sum(
            each.samples for each in self.actors
        )
        return type(self)(
            actors=actors, samples=self.samples + new_samples, first=first, gone=self.gone
        )

    def state_dict(self) -> State:
        actors = [each.state_dict() for each in [*self.actors, *self.gone]]
        return {"actors": actors, "samples": self.samples, "first": self.first}


def _ended(record: ActorRecord) -> ActorRecord:
    """The same without an actor: what was in its proxy is lost."""
    state = record.state_dict() | {"actor": None, "balance": 0}
    return ActorRecord(**state | {"lost": record.lost + rows_in_proxy(record.actor)})


def _tell_dropped(records: Sequence[ActorRecord]) -> None:
    if records:
        rows = sum(rows_in_proxy(each.actor) for each in records)
        log.info(
            "dropped %s of the saved run with %s not yet sent: actor_manager.num_actors is "
            "smaller now", counted(len(records), "actor"), counted(rows, "sample"),
        )  # fmt: skip
