"""When evaluations, rows of metrics, checkpoints and copies of the weights are due."""

from __future__ import annotations

from border_cli.settings.run import INTERVALS, TrainerConfig
from border_cli.trainer.metrics import Counters


class Intervals:
    """Every so many updates, or at the end of the update in which the env steps came to a multiple.

    Owned by the learner's thread.
    """

    def __init__(self, config: TrainerConfig, counters: Counters) -> None:
        self._counters = counters
        self._updates: dict[str, int] = {}
        self._env_steps: dict[str, int] = {}
        for name in INTERVALS:
            env_steps = getattr(config, f"{name}_interval_env_steps")
            if env_steps is None:
                self._updates[name] = getattr(config, f"{name}_interval")
            else:
                self._env_steps[name] = env_steps
        self.seen_env_steps = 0  # when something was due, and done, the last time

    def any_due(self) -> bool:
        """Whether anything is due at the end of this update."""
        opt_steps = self._counters.opt_steps
        return any(_due(opt_steps, each) for each in self._updates.values()) or any(
            map(self._crossed, self._env_steps.values())
        )

    def is_due(self, name: str) -> bool:
        """Whether one of them is due."""
        if name in self._env_steps:
            return self._crossed(self._env_steps[name])
        return _due(self._counters.opt_steps, self._updates[name])

    def done(self) -> None:
        """All that was due is done."""
        self.seen_env_steps = self._counters.env_steps

    def _crossed(self, interval: int) -> bool:
        return self._counters.env_steps // interval > self.seen_env_steps // interval


def _due(opt_steps: int, interval: int) -> bool:
    return interval > 0 and opt_steps % interval == 0
