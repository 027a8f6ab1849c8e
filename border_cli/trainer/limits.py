"""When a run ends, and when evaluations, rows of metrics, checkpoints and copies of the weights are
due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from border_cli.core.types import State
from border_cli.settings.run import INTERVALS, TrainerConfig
from border_cli.trainer.evaluating import Scores
from border_cli.trainer.metrics import Counters


def limit_reached(
    config: TrainerConfig, counters: Counters, scores: Scores, elapsed_s: float
) -> str | None:
    """The name of the limit in updates, time or scores that is reached; None if none is."""
    if config.max_opt_steps is not None and counters.opt_steps >= config.max_opt_steps:
        return "max_opt_steps"
    if config.max_time_s is not None and elapsed_s >= config.max_time_s:
        return "max_time_s"
    if config.stop_at_score is not None and scores.in_a_row >= config.stop_evals:
        return "stop_at_score"
    if config.patience is not None and scores.without_best >= config.patience:
        return "patience"
    return None


def fraction_done(config: TrainerConfig, counters: Counters, elapsed_s: float) -> float:
    """The fraction of the run that is over by the nearest limit; 0 if only a score ends it."""
    fractions = [0.0]
    if config.max_opt_steps is not None:
        fractions.append(counters.opt_steps / config.max_opt_steps)
    if config.max_env_steps is not None:
        fractions.append(counters.env_steps / config.max_env_steps)
    if config.max_time_s is not None:
        fractions.append(elapsed_s / config.max_time_s)
    return min(1.0, max(fractions))


class Intervals:
    """Every so many updates, or at the end of the update in which the env steps came to a multiple.

    Owned by the learner's thread.
    """

    def __init__(self, config: TrainerConfig, counters: Counters) -> None:
        self._counters = counters
        self._updates: dict[str, int] = {}
        self._env_steps: dict[str, int] = {}
        for name in INTERVALS:
            updates = getattr(config, f"{name}_interval")
            env_steps = getattr(config, f"{name}_interval_env_steps")
            if env_steps is not None:
                self._env_steps[name] = env_steps
            elif updates > 0:
                self._updates[name] = updates
        self._done_env_steps = 0  # when something was due, and done, the last time

    def due(self) -> list[str]:
        """The names of what is due at the end of this update."""
        opt_steps, env_steps = self._counters.opt_steps, self._counters.env_steps
        by_updates = [name for name, every in self._updates.items() if opt_steps % every == 0]
        if not self._env_steps:
            return by_updates
        before = self._done_env_steps
        return by_updates + [
            name for name, every in self._env_steps.items() if env_steps // every > before // every
        ]

    def done(self) -> None:
        """All that was due is done."""
        self._done_env_steps = self._counters.env_steps

    def state_dict(self) -> State:
        """The env steps up to which everything that was due is done."""
        return {"done_env_steps": self._done_env_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self._done_env_steps = int(state["done_env_steps"])
