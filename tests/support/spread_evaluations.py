"""Evaluations of untrained agents, by cluster workers and in this process."""

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
    raise AssertionError("only workers may play the episodes")


def _nothing() -> None:
    """Skips the trial of the environment."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A run and a snapshot of its weights, to be evaluated."""

    effective: EffectiveSettings
    make_policy: PolicyRecipe
    snapshot: Snapshot

    def recipe(self) -> EpisodesRecipe:
        """Returns the recipe that workers receive."""
        heartbeat = Heartbeat("evaluation")
        evaluator = build_evaluator(self.effective, stop=StopFlag(), heartbeat=heartbeat)
        assert isinstance(evaluator, EpisodesEvaluator)
        return episodes_recipe(self.effective, evaluator, self.make_policy)

    def in_one_place(self, confirmation: Confirmation) -> Evaluation:
        """Evaluates without workers."""
        heartbeat = Heartbeat("evaluation")
        evaluator = build_evaluator(self.effective, stop=StopFlag(), heartbeat=heartbeat)
        runner = InlineEvaluationRunner(evaluator, self.make_policy, heartbeat, confirmation)
        runner.submit(self.snapshot)
        evaluation = runner.wait()
        evaluator.close()
        return evaluation

    def runner(self, confirmation: Confirmation) -> EvaluationRunner:
        """Returns a runner that evaluates on a cluster."""
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
    """Prepares evaluations of five episodes of at most 60 steps with an untrained network."""
    small = () if agent == "random" else ("agent.hidden=[64,64]",)
    steps = ("evaluator.num_episodes=5", "evaluator.max_episode_steps=60")
    config = compose(f"agent={agent}", f"env={env}", *small, *steps, *more)
    effective = effective_settings(config)
    initial_agent = build_first_agent(effective, env_factory(effective).spec)
    make_policy = PolicyRecipe(initial_agent.policy_factory, config.seed)
    return Evaluated(effective, make_policy, initial_agent.snapshot())
