"""Evaluations of one run, for workers and in one place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from border_cli import compose
from border_cli.core.interfaces import Evaluation, EvaluationRunner, Evaluator
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.types import Snapshot
from border_cli.evaluator.episodes import EpisodesEvaluator
from border_cli.evaluator.runner import (
    Confirmation,
    EpisodesRecipe,
    EvaluationParts,
    InlineEvaluationRunner,
    PolicyRecipe,
)
from border_cli.launch.build import build_evaluator, build_first_agent, env_factory, episodes_recipe
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.ray.evaluation import ClusterEvaluationRunner


def _nobody(**_: object) -> Evaluator:
    raise AssertionError("workers play the episodes")


def _nothing() -> None:
    """Tries no environment."""


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
        assert isinstance(evaluator, EpisodesEvaluator)
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
        recipe = self.recipe()
        parts = EvaluationParts(
            make_evaluator=_nobody,
            make_policy=self.make_policy,
            imports=recipe.imports,
            confirmation=confirmation,
            stop=StopFlag(),
            actors="thread",
            episodes=recipe,
            modules=(),
            trial=_nothing,
        )
        return ClusterEvaluationRunner.of(parts)


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
