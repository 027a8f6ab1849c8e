"""The manager of the actors, as the learner sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self

from border_cli.core.stop import Pulse
from border_cli.core.types import Experience, Metrics, Snapshot, State


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStats:
    """Counters of one actor, over all its incarnations."""

    actor_id: int
    env_steps: int
    samples: int  # transitions that the learner received
    duration_s: float
    restarts: int
    lost_samples: int  # transitions that it never will: of crashed actors, or in flight at a kill
    restarted_episodes: int = 0  # that a resumed run could not continue and began anew
    # Where its time went: act, env_step, process, send, blocked. Estimated from steps that were
    # timed now and then; empty where none was.
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.duration_s if self.duration_s > 0 else 0.0


class ActorManager(ABC):
    """Runs actors between `__enter__` and `__exit__`; none outlives the `with` block."""

    # Actors step only within `receive`, so that two runs with one seed are the same to the bit,
    # and a resumed one continues every episode. `state_dict` is then as of the moment before a
    # `stop`, with what the actors had gathered.
    reproducible: ClassVar[bool] = False
    idle: ClassVar[bool] = False  # there are no actors, so weights are not needed

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    def publish(self, snapshot: Snapshot) -> None:
        """Makes these the newest weights; the first call lets the actors begin."""

    @abstractmethod
    def permit(self, samples_total: float) -> None:
        """Lets the actors make samples until there are so many in all; never takes back."""

    @abstractmethod
    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        """What arrived, at once where something did, else within `timeout_s`.

        Its arrays are valid until the next call, which may let actors write over them.
        Raises `ActorCrashed` once an actor is past its restarts.
        """

    @abstractmethod
    def stop(self) -> list[Experience]:
        """Ends acting and returns all that is under way; idempotent."""

    def undelivered(self) -> list[Experience]:
        """What `receive` has not returned though `state_dict` counts it as received.

        Only a reproducible manager has any: of a round that an error cut short.
        """
        return []

    @abstractmethod
    def state_dict(self) -> State:
        """The counters of all actors, and of reproducible ones all else; at any time between two
        `receive`, and after `stop`. Nothing in it is written again.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; called before the `with` block. Any manager takes any other's."""

    @abstractmethod
    def stats(self) -> list[ActorStats]:
        """One entry per actor id; may be called at any time."""

    @abstractmethod
    def heartbeats(self) -> Sequence[Pulse]:
        """One per actor, for the watchdog."""

    @abstractmethod
    def gauges(self) -> Metrics:
        """Queue fill and the like, for records and the panel."""


class NoActors(ActorManager):
    """For a learner that needs no actors: starts nothing and makes no sample."""

    reproducible = True
    idle = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def publish(self, snapshot: Snapshot) -> None:
        pass

    def permit(self, samples_total: float) -> None:
        pass

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:  # noqa: ARG002
        return []

    def stop(self) -> list[Experience]:
        return []

    def state_dict(self) -> State:
        return {"actors": [], "samples": 0, "first": 0}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def stats(self) -> list[ActorStats]:
        return []

    def heartbeats(self) -> Sequence[Pulse]:
        return []

    def gauges(self) -> Metrics:
        return {}
