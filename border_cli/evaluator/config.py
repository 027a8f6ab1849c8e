"""Settings of the evaluators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from border_cli.registry import EVALUATION_RUNNERS, EVALUATORS
from border_cli.settings.base import setting
from border_cli.settings.run import EvaluatorConfig

LOCAL: Final = "local"  # value of `where`: evaluates on this machine


@dataclass(kw_only=True)
class EpisodesConfig(EvaluatorConfig):
    """Greedy episodes, with the same seeds at every evaluation."""

    video_interval: int = setting(
        0,
        "updates between films of an evaluated episode, recorded with the next evaluation in "
        "RUN_DIR/videos and in TensorBoard; 0 disables films",
        low=0,
    )
    where: str = setting(
        LOCAL,
        "where episodes run: local (on this machine) or ray (on the nodes of a Ray cluster, with "
        "the same scores; needs evaluator.background=true)",
        choices=EVALUATION_RUNNERS.names,
        may_change=True,
    )
    address: str | None = setting(
        None,
        "cluster of where=ray: auto, host:port or ray://host:port; null uses the cluster of the "
        "actors (actor_manager=ray) or else starts Ray on this machine",
        may_change=True,
    )
    num_workers: int | None = setting(
        None,
        "processes among which where=ray divides the episodes; null means one per CPU of the "
        "cluster, at most num_episodes",
        low=1,
        may_change=True,
    )
    resources: dict[str, float] = setting(
        {},
        "resources that each process of where=ray reserves, such as {CPU: 1, memory: 1e9}; none "
        "by default, because the processes are idle most of the time",
        may_change=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("resources")
        if self.where == LOCAL:
            allowed = "needs evaluator.where=ray"
            self.refuse_beside(["address", "num_workers"], allowed)
            if self.resources:
                self.refuse("resources", self.resources, allowed)
        elif not self.background:
            self.refuse("where", self.where, "needs evaluator.background=true")

    def refuse_missing(self) -> None:
        if self.where != LOCAL:
            EVALUATION_RUNNERS.load(self.where).refuse_missing(self)


EVALUATORS.register("episodes", EpisodesConfig, "border_cli.evaluator.episodes:EpisodesEvaluator")
