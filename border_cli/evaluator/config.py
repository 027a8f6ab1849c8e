"""Settings of the evaluators."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.core.config import EvaluatorConfig
from border_cli.registry import EVALUATORS


@dataclass(kw_only=True)
class EpisodesConfig(EvaluatorConfig):
    """Greedy episodes, with the same seeds at every evaluation."""


EVALUATORS.register("episodes", EpisodesConfig, "border_cli.evaluator.episodes:EpisodesEvaluator")
