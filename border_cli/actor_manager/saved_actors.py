"""What a checkpoint holds of the actors, whichever manager ran them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import ActorStats
from border_cli.core.timing import ACTOR_SECTIONS
from border_cli.core.types import State
from border_cli.core.words import counted

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedActor:
    """One actor: its counters over all its incarnations, and its state where that is exact."""

    actor_id: int
    incarnation: int = -1  # the last one that began; -1: none did
    restarts: int = 0
    env_steps: int = 0
    samples: int = 0  # transitions that the learner received
    lost: int = 0  # transitions that it never will
    restarted_episodes: int = 0
    duration_s: float = 0.0
    seconds: list[float] = field(default_factory=lambda: [0.0] * len(ACTOR_SECTIONS))
    budget: int = 0  # granted samples that it has not made yet; below 0 it owes
    state: State | None = None  # `Actor.state_dict`; None: its next incarnation is a new one

    def __post_init__(self) -> None:
        if self.state is None and self.budget:
            raise ValueError("samples are granted to an actor that has no state")
        if len(self.seconds) != len(ACTOR_SECTIONS):
            raise ValueError(
                f"expected {len(ACTOR_SECTIONS)} sections of seconds, got {len(self.seconds)}"
            )

    @classmethod
    def of(
        cls, stats: ActorStats, *, incarnation: int, budget: int = 0, state: State | None = None
    ) -> Self:
        return cls(
            actor_id=stats.actor_id,
            incarnation=incarnation,
            restarts=stats.restarts,
            env_steps=stats.env_steps,
            samples=stats.samples,
            lost=stats.lost_samples,
            restarted_episodes=stats.restarted_episodes,
            duration_s=stats.duration_s,
            seconds=[stats.seconds.get(section, 0.0) for section in ACTOR_SECTIONS],
            budget=budget,
            state=state,
        )

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> Self:
        """What `state_dict` returned; raises TypeError or ValueError where it does not fit."""
        return cls(**saved)

    @property
    def next_incarnation(self) -> int:
        """The same one continues from its state; else one with seeds that none has used."""
        return self.incarnation + (self.state is None)

    @property
    def in_flight(self) -> int:
        """Granted samples that the learner has not received: in the proxy, or to be made."""
        return rows_in_proxy(self.state) + self.budget

    def ended(self) -> Self:
        """The same without its state: what was in the proxy is lost."""
        return replace(self, state=None, budget=0, lost=self.lost + rows_in_proxy(self.state))

    def state_dict(self) -> State:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def rows_in_proxy(actor: Mapping[str, Any] | None) -> int:
    """Transitions that a saved actor had gathered and not sent."""
    if actor is None or actor["proxy"]["columns"] is None:
        return 0
    return len(actor["proxy"]["columns"]["reward"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedActors:
    """All actors of a run, those of earlier attempts included."""

    actors: Sequence[SavedActor]  # by actor id
    samples: int = 0  # transitions that the learner received, of all actors
    first: int = 0  # whose turn it is, where actors take turns
    # Those beyond `num_actors`, of attempts that had more actors: kept so that an actor with their
    # id never repeats their seeds.
    removed: Sequence[SavedActor] = ()

    @classmethod
    def fresh(cls, num_actors: int) -> Self:
        """Before the first attempt."""
        return cls(actors=[SavedActor(actor_id=actor_id) for actor_id in range(num_actors)])

    @classmethod
    def load(cls, state: Mapping[str, Any], num_actors: int) -> Self:
        """What `state_dict` returned, for so many actors; raises CheckpointError."""
        try:
            saved = {each["actor_id"]: SavedActor.load(each) for each in state["actors"]}
            samples, first = int(state["samples"]), int(state["first"])
            removed = [saved[each] for each in sorted(saved) if each >= num_actors]
            _log_dropped([each for each in removed if each.state is not None])
            return cls(
                actors=[saved.get(i, SavedActor(actor_id=i)) for i in range(num_actors)],
                samples=samples,
                first=first,
                removed=[each.ended() for each in removed],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of the actors is invalid: {error}") from error

    def without_states(self) -> Self:
        """The same for a manager whose actors begin new episodes."""
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
        """The same run, once its actors have come from `self.actors` to these."""
        new_samples = sum(each.samples for each in actors) - sum(
            each.samples for each in self.actors
        )
        return replace(self, actors=actors, samples=self.samples + new_samples, first=first)

    def state_dict(self) -> State:
        actors = [each.state_dict() for each in [*self.actors, *self.removed]]
        return {"actors": actors, "samples": self.samples, "first": self.first}


def _log_dropped(actors: Sequence[SavedActor]) -> None:
    if actors:
        rows = sum(rows_in_proxy(each.state) for each in actors)
        log.info(
            "dropped %s of the saved run with %s not yet sent: actor_manager.num_actors is "
            "smaller now", counted(len(actors), "actor"), counted(rows, "sample"),
        )  # fmt: skip
