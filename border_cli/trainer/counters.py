"""What the learner counts, and the rates that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from border_cli.core.interfaces import ActorStats
from border_cli.core.timing import SharesSince, summed
from border_cli.core.types import Episode, Experience, State


@dataclass(slots=True, kw_only=True)
class Counters:
    """Owned by the learner's thread; saved with every checkpoint."""

    opt_steps: int = 0
    env_steps: int = 0  # actions of the actors whose messages arrived
    samples_total: int = 0  # rows pushed into the replay buffer
    out_of_bounds: int = 0  # of these, with an observation beyond the bounds of its space


class Window:
    """What happened since the last row of metrics; owned by the learner's thread."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._actor_samples: dict[int, int] = {}
        self._learner_time = SharesSince()
        self._actor_time = SharesSince()
        self._clear(0.0)

    def begin(self, now_s: float, actors: list[ActorStats], seconds: Mapping[str, float]) -> None:
        """Rates and shares of time count from now on."""
        self._since_s = now_s
        self._time_shares(actors, seconds)

    def _clear(self, now_s: float) -> None:
        self._since_s = now_s
        self._opt_steps = self._counters.opt_steps
        self._samples = self._counters.samples_total
        self._episodes: list[Episode] = []
        self._lags: list[int] = []

    def state_dict(self) -> State:
        """What of the window does not depend on the clock."""
        return {
            "opt_steps": self._opt_steps,
            "samples": self._samples,
            "episodes": [[each.score, each.length] for each in self._episodes],
            "lags": list(self._lags),
            "actor_samples": {str(actor): made for actor, made in self._actor_samples.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave; `begin` follows."""
        self._opt_steps = int(state["opt_steps"])
        self._samples = int(state["samples"])
        self._episodes = [Episode(score, int(length)) for score, length in state["episodes"]]
        self._lags = [int(lag) for lag in state["lags"]]
        self._actor_samples = {int(actor): n for actor, n in state["actor_samples"].items()}

    def arrived(self, message: Experience) -> None:
        """A message was taken in."""
        self._episodes.extend(message.episodes)
        self._lags.append(self._counters.opt_steps - message.opt_steps)

    def close(
        self, now_s: float, actors: list[ActorStats], seconds: Mapping[str, float]
    ) -> dict[str, float]:
        """The metrics of the window; a new one begins.

        `seconds` are those that the learner spent in each of its sections so far.
        """
        counters = self._counters
        span_s = max(now_s - self._since_s, 1e-9)
        samples = counters.samples_total - self._samples
        opt_steps = counters.opt_steps - self._opt_steps
        metrics: dict[str, float] = {}
        if actors:  # a run that learns from a data set alone makes no samples
            metrics["async/samples_total"] = float(counters.samples_total)
            metrics["actor/restarts"] = float(sum(each.restarts for each in actors))
        if opt_steps:  # else the window is the moment between two rows, and has no rates
            metrics["async/opt_steps_per_sec"] = opt_steps / span_s
        if opt_steps and actors:
            metrics["async/samples_per_sec"] = samples / span_s
            metrics["async/samples_per_opt_steps"] = samples / opt_steps
        if self._lags:
            metrics["async/weight_lag"] = float(np.mean(self._lags))
        if self._episodes:
            metrics["episode/return"] = float(np.mean([each.score for each in self._episodes]))
            metrics["episode/length"] = float(np.mean([each.length for each in self._episodes]))
        for each in actors:
            made = each.samples - self._actor_samples.get(each.actor_id, 0)
            if opt_steps:
                metrics[f"actor/{each.actor_id}/samples_per_sec"] = made / span_s
            self._actor_samples[each.actor_id] = each.samples
        times = self._time_shares(actors, seconds)
        if opt_steps:
            metrics.update(times)
        self._clear(now_s)
        return metrics

    def _time_shares(
        self, actors: list[ActorStats], seconds: Mapping[str, float]
    ) -> dict[str, float]:
        learner = self._learner_time.look(seconds)
        acting = self._actor_time.look(summed(each.seconds for each in actors))
        return {
            **{f"time/{section}": share for section, share in learner.items()},
            **{f"time/actor/{section}": share for section, share in acting.items()},
        }
