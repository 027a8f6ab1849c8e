"""Whoever runs the actors, as the learner sees them."""

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
    """What one actor did, over all its lives."""

    actor_id: int
    env_steps: int
    samples: int  # rows that the learner received
    duration_s: float
    restarts: int
    lost_samples: int  # rows that died with a crashed actor
    restarted_episodes: int = 0  # that a resumed run could not continue and began anew
    # Where its time went, of all lives: act, env_step, process, send, blocked. Estimated from
    # steps that were timed now and then; empty where nobody measured.
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.duration_s if self.duration_s > 0 else 0.0


class ActorManager(ABC):
    """Runs actors between `__enter__` and `__exit__`; none outlives the `with` block."""

    # Actors step only within `receive`, so that two runs with one seed are the same to the bit.
    # What they have gathered at a `stop` is part of `state_dict`, beside being returned.
    repeats: ClassVar[bool] = False
    idle: ClassVar[bool] = False  # there are no actors: nobody needs weights

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
        """Lets the actors make rows until they have made so many in all; never takes back."""

    @abstractmethod
    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        """What arrived, at once where something did, else within `timeout_s`.

        Its arrays are valid until the next call, which may let actors write over them.
        Raises `ActorCrashed` once an actor is past its restarts.
        """

    @abstractmethod
    def stop(self) -> list[Experience]:
        """Ends acting and returns all that is under way; idempotent."""

    @abstractmethod
    def settle(self, timeout_s: float) -> list[Experience]:
        """Has every actor note where it stands, so that `state_dict` fits exactly what was
        received, that of this call included; the actors go on. Called between two `receive`.

        Whoever does not answer within `timeout_s` is left out: its episodes will begin anew.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """Where all actors stand: as of the last `settle`, or of their end after `stop`.

        Depends on neither the kind of manager nor the number of actors, both of which may differ
        where it is loaded.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Lets the actors go on from there; called before the `with` block."""

    @abstractmethod
    def stats(self) -> list[ActorStats]:
        """One entry per actor id; may be called at any time."""

    @abstractmethod
    def heartbeats(self) -> Sequence[Pulse]:
        """One per actor, for the watchdog."""

    @abstractmethod
    def gauges(self) -> Metrics:
        """Queue fill and the like, for records and the panel."""
