"""Evaluations of one run, for workers and in one place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from border_cli import compose
from border_cli.core.interfaces import Evaluation, EvaluationRunner
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.types import Snapshot
from border_cli.evaluator.confirmation import Confirmation
from border_cli.evaluator.runner import InlineEvaluationRunner, PolicyRecipe
from border_cli.launch.build import (
    build_evaluator,
    build_first_agent,
    cluster_runner,
    env_factory,
    episodes_recipe,
)
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.ray.evaluation import EpisodesRecipe


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A run whose weights are evaluated."""

    effective: EffectiveSettings
    make_policy: PolicyRecipe
    snapshot: Snapshot

    def recipe(self) -> EpisodesRecipe:
        """What workers are given."""
        heartbeat = Heartbeat("evaluation")
        evaluator = build_evaluator(self.effective, stop=StopFlag(), heartbeat=heartbeat)
        return episodes_recipe(self.effective, evaluator, self.make_policy)

    def in_one_place(self, confirmation: Confirmation) -> Evaluation:
        """What an evaluation without workers finds."""
        heartbeat = Heartbeat("evaluation")
        evaluator = build_evaluator(self.effective, stop=StopFlag(), heartbeat=heartbeat)
        runner = InlineEvaluationRunner(evaluator, self.make_policy, heartbeat, confirmation)
        runner.submit(self.snapshot)
        evaluation = runner.wait()
        evaluator.close()
        return evaluation

    def runner(self, confirmation: Confirmation) -> EvaluationRunner:
        """What evaluates on a cluster."""
        heartbeat, stop = Heartbeat("evaluation"), StopFlag()
        evaluator = build_evaluator(self.effective, stop=stop, heartbeat=heartbeat)
        return cluster_runner(
            self.effective, evaluator, self.make_policy, stop=stop, confirmation=confirmation
        )


@cache
def evaluated(agent: str, env: str, *more: str) -> Evaluated:
    """Five episodes of 60 steps at most, by networks that are not trained."""
    small = () if agent == "random" else ("agent.hidden=[64,64]",)
    steps = ("evaluator.num_episodes=5", "evaluator.max_episode_steps=60")
    config = compose(f"agent={agent}", f"env={env}", *small, *steps, *more)
    effective = effective_settings(config)
    built = build_first_agent(effective, env_factory(effective).spec)
    make_policy = PolicyRecipe(built.policy_factory, config.seed)
    return Evaluated(effective, make_policy, built.snapshot())
