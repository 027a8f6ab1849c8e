"""The settings of actors on a Ray cluster, and the registration of all options named `ray`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from border_cli.registry import ACTOR_MANAGERS, EVALUATION_RUNNERS, JOB_LAUNCHERS
from border_cli.settings.base import LONGEST_WAIT_S, setting
from border_cli.settings.run import AUTO, ActorManagerConfig


@dataclass(kw_only=True)
class RayConfig(ActorManagerConfig):
    """One Ray actor per actor, on this machine or on a cluster."""

    follows_cluster: ClassVar[bool] = True
    lockstep: ClassVar[str] = "border_cli.ray.manager:RayActorManager"
    lockstep_repeats: ClassVar[bool] = False  # the order of messages depends on the cluster

    max_actors: int = setting(
        64,
        "maximum number of actors with num_actors=auto; also sets the slack of the replay ratio",
        low=1,
        high=10_000,
    )
    address: str | None = setting(
        None,
        "cluster to join: auto, host:port or ray://host:port; null starts Ray on this machine",
    )
    resources: dict[str, float] = setting(
        {},
        "resources that each actor reserves: CPU, memory (bytes) and custom resources; {} means "
        "one CPU, or nothing if Ray is started on this machine for a given number of actors",
    )
    max_in_flight: int = setting(
        2, "maximum calls per actor; 2 lets it act while a result is being sent", low=1, high=16
    )
    join_timeout_s: float = setting(
        3.0,
        "seconds to wait at the end of a run for calls to return before actors are killed",
        above=0,
        high=LONGEST_WAIT_S,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("resources")

    def refuse_missing(self) -> None:
        from border_cli.ray.connection import (
            ClusterSettings,
            refuse_unreachable,
            refuse_without_ray,
        )

        refuse_without_ray("actor_manager=ray")
        refuse_unreachable(ClusterSettings(address=self.address))

    @property
    def paced_samples(self) -> int:
        """Samples to request per call under a replay ratio.

        Two messages halve the number of calls, and the slack is at least four messages.
        """
        return 2 * self.n_buffer

    @property
    def most_actors(self) -> int:
        return self.max_actors if self.num_actors == AUTO else int(self.num_actors)


ACTOR_MANAGERS.register("ray", RayConfig, "border_cli.ray.manager:RayActorManager")
EVALUATION_RUNNERS.register("ray", "border_cli.ray.evaluation:ClusterEvaluationRunner")
JOB_LAUNCHERS.register("ray", "border_cli.ray.sweep:RayLauncher")
