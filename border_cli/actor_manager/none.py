"""An actor manager without actors, for learning from a data set alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.stop import MonitoredPart
from border_cli.core.types import Experience, Metrics, Snapshot, State


class NoActors(ActorManager):
    """An actor manager that starts no actors and returns no samples."""

    reproducible = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, *rest: object) -> None:
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

    def heartbeats(self) -> Sequence[MonitoredPart]:
        return []

    def gauges(self) -> Metrics:
        return {}
