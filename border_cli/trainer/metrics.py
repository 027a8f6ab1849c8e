"""The counters and the time of a run, and the metrics computed from them.

Losses are checked at least every 100 updates. Before weights are saved or evaluated, losses and
weights are checked. The first value that is NaN or infinite is reported with its update.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any, SupportsFloat, TypeAlias

import numpy as np

from border_cli.core.interfaces import ActorStats, Agent
from border_cli.core.timing import Clock, SharesSince, Timing, sum_seconds
from border_cli.core.types import Episode, Experience, State
from border_cli.errors import NotFinite
from border_cli.settings.schedule import ENV_STEPS, UPDATES, Schedule

log = logging.getLogger(__name__)

REMEDY = (
    "nothing has been saved since. A smaller agent.learning_rate or an agent.max_grad_norm often "
    "helps"
)
Schedules: TypeAlias = Mapping[str, tuple[str, Schedule]]  # setting -> counter and schedule
NO_SCHEDULES: Schedules = {}
CHECK_EVERY = 100  # updates; reading each loss immediately would wait for the device every time


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counters of the learner, owned by its thread and saved in every checkpoint."""

    opt_steps: int = 0
    env_steps: int = 0  # actions of the actors, in all received messages
    samples_total: int = 0  # transitions pushed into the replay buffer
    out_of_bounds: int = 0  # of these, with an observation outside the bounds of its space

    def load(self, saved: Mapping[str, float]) -> None:
        """Restores the counters from a checkpoint."""
        for field in fields(self):
            setattr(self, field.name, int(saved[field.name]))


def values_of(schedules: Schedules, counters: Counters, done: float) -> dict[str, float]:
    """Returns the current values of schedules; `done` is the completed fraction of the run."""
    counts = {UPDATES: counters.opt_steps, ENV_STEPS: counters.env_steps}
    return {
        f"train/{name.partition('.')[2]}": schedule.at(counts[counter], done)
        for name, (counter, schedule) in schedules.items()
    }


class RunClock:
    """The time of a run over all its attempts, in total and by section of the learner.

    Owned by the learner's thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._past_s = 0.0  # seconds of earlier attempts
        self._past_seconds: Mapping[str, float] = {}
        self.timing = Timing(clock)
        self.begin()

    def begin(self) -> None:
        """Starts the clock; a resumed run continues from the saved time."""
        self.timing.begin(self._past_seconds)
        self._started_s = self.timing.since_s - self._past_s

    @property
    def elapsed_s(self) -> float:
        """Seconds of the run so far."""
        return self._clock.now_s() - self._started_s

    def state_dict(self) -> State:
        """Returns the time so far."""
        return {"time_s": self.elapsed_s, "seconds": self.timing.seconds()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; `begin` follows."""
        self._past_s = float(state["time_s"])
        self._past_seconds = state["seconds"]
        self.begin()  # the run may fail before it is called


class MetricsWindow:
    """Episodes and counts since the last row of metrics; owned by the learner's thread."""

    def __init__(self, counters: Counters, info_metrics: Sequence[str] = ()) -> None:
        self._counters = counters
        self._info_metrics = info_metrics
        self.longest_episode = 0  # env steps of the longest finished episode of the run
        self._actor_samples: dict[str, int] = {}  # actor id -> samples at the last row
        self._learner_time = SharesSince()
        self._actor_time = SharesSince()
        self._clear(0.0)

    def begin(self, now_s: float, actors: list[ActorStats], seconds: Mapping[str, float]) -> None:
        """Starts the first window: rates and fractions of time count from now on."""
        self._since_s = now_s
        self._timed_from = self._counters.opt_steps, self._counters.samples_total
        self._actor_samples = {str(stats.actor_id): stats.samples for stats in actors}
        self._time_shares(actors, seconds)

    def _clear(self, now_s: float) -> None:
        self._since_s = now_s
        self._opt_steps = self._counters.opt_steps
        self._samples = self._counters.samples_total
        self._timed_from = self._opt_steps, self._samples  # counters at `_since_s`
        self._episodes: list[Episode] = []
        self._lags: list[int] = []

    def state_dict(self) -> State:
        """Returns the part of the window that does not depend on the clock."""
        return {
            "opt_steps": self._opt_steps,
            "samples": self._samples,
            "episodes": [episode.numbers() for episode in self._episodes],
            "lags": list(self._lags),
            "longest_episode": self.longest_episode,
            "actor_samples": dict(self._actor_samples),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; `begin` follows."""
        self._opt_steps, self._samples = state["opt_steps"], state["samples"]
        self._episodes = [Episode.of(numbers) for numbers in state["episodes"]]
        self._lags = list(state["lags"])
        self.longest_episode = state["longest_episode"]
        self._actor_samples = dict(state["actor_samples"])

    def add_message(self, message: Experience) -> None:
        """Adds the episodes and the weight lag of a message."""
        for episode in message.episodes:
            self._episodes.append(episode)
            self.longest_episode = max(self.longest_episode, episode.length)
        self._lags.append(self._counters.opt_steps - message.opt_steps)

    def close(
        self, now_s: float, actors: list[ActorStats], seconds: Mapping[str, float]
    ) -> dict[str, float]:
        """Returns the metrics of the window, and starts a new one.

        `seconds`: the learner's time so far, by section.
        """
        counters = self._counters
        span_s = max(now_s - self._since_s, 1e-9)
        samples = counters.samples_total - self._samples
        opt_steps = counters.opt_steps - self._opt_steps
        metrics: dict[str, float] = {}
        if actors:  # an offline run collects no samples
            metrics["async/samples_total"] = float(counters.samples_total)
            metrics["actor/restarts"] = float(sum(stats.restarts for stats in actors))
        timed_opt_steps = counters.opt_steps - self._timed_from[0]  # in this attempt
        if opt_steps:  # without an update since the last row there are no rates
            metrics["async/opt_steps_per_sec"] = timed_opt_steps / span_s
        if opt_steps and actors:
            timed_samples = counters.samples_total - self._timed_from[1]
            metrics["async/samples_per_sec"] = timed_samples / span_s
            metrics["async/samples_per_opt_steps"] = samples / opt_steps
        if self._lags:
            metrics["async/weight_lag"] = float(np.mean(self._lags))
        if self._episodes:
            metrics |= self._episode_metrics()
        for stats in actors:
            actor_id = str(stats.actor_id)
            new_samples = stats.samples - self._actor_samples.get(actor_id, 0)
            if opt_steps:
                metrics[f"actor/{actor_id}/samples_per_sec"] = new_samples / span_s
            self._actor_samples[actor_id] = stats.samples
        time_shares = self._time_shares(actors, seconds)
        if opt_steps:
            metrics.update(time_shares)
        self._clear(now_s)
        return metrics

    def _episode_metrics(self) -> dict[str, float]:
        """Returns statistics of returns and lengths, with population standard deviations, and the
        mean of every `info` metric over the episodes that have it."""
        returns = [episode.score for episode in self._episodes]
        lengths = [episode.length for episode in self._episodes]
        metrics = {
            "episode/return": float(np.mean(returns)),
            "episode/return_std": float(np.std(returns)),
            "episode/return_min": min(returns),
            "episode/return_max": max(returns),
            "episode/length": float(np.mean(lengths)),
            "episode/length_std": float(np.std(lengths)),
            "episode/length_min": min(lengths),
            "episode/length_max": max(lengths),
        }
        for i, name in enumerate(self._info_metrics):
            values = [episode.metrics[i] for episode in self._episodes if episode.metrics]
            present = [value for value in values if not math.isnan(value)]
            if present:
                metrics[f"episode/{name}"] = float(np.mean(present))
        return metrics

    def _time_shares(
        self, actors: list[ActorStats], seconds: Mapping[str, float]
    ) -> dict[str, float]:
        learner = self._learner_time.update(seconds)
        acting = self._actor_time.update(sum_seconds(stats.seconds for stats in actors))
        return {
            **{f"time/{section}": share for section, share in learner.items()},
            **{f"time/actor/{section}": share for section, share in acting.items()},
        }


class UpdateLog:
    """The metrics of updates, stored unread and checked and averaged later.

    Owned by the learner's thread. A loss that is not finite is detected at most `CHECK_EVERY`
    updates later, always before weights are saved or evaluated, and is reported with its update.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[int, Mapping[str, SupportsFloat]]] = []  # opt steps, metrics
        # name -> values since the last row
        self._read: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, opt_steps: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Adds the metrics of an update; checks all stored ones every `CHECK_EVERY` updates."""
        self._unread.append((opt_steps, metrics))
        if len(self._unread) >= CHECK_EVERY:
            self.check()

    def check(self) -> None:
        """Reads all metrics; raises `NotFinite` with name and update of the first bad value."""
        for opt_steps, metrics in self._unread:
            for name, value in metrics.items():
                number = float(value)
                if not math.isfinite(number):
                    raise NotFinite(f"train/{name} is {number} at update {opt_steps:,}; {REMEDY}")
                self._read[name].append(number)
        self._unread.clear()

    def means(self) -> dict[str, float]:
        """Returns the means since the last call, with the `train/` prefix."""
        self.check()
        means = {f"train/{name}": fmean(values) for name, values in self._read.items()}
        self._read.clear()
        return means

    def state_dict(self) -> State:
        """Returns the values that the next row averages."""
        self.check()
        return {name: list(values) for name, values in self._read.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self._read = defaultdict(list, {name: list(values) for name, values in state.items()})


def check_weights(agent: Agent) -> None:
    """Raises `NotFinite` if a weight is NaN or infinite."""
    bad = agent.first_not_finite()
    if bad is not None:
        raise NotFinite(
            f"{bad} of the agent is not finite after update {agent.opt_steps:,}; {REMEDY}"
        )
