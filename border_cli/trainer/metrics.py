"""Counters and time of a run, and the metrics that follow from them.

Losses are read every 100 updates and before weights are saved or evaluated, when the weights are
checked too. The first quantity that is a NaN or an infinity is reported with its update.
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
from border_cli.core.timing import Clock, SharesSince, Timing, summed
from border_cli.core.types import Episode, Experience, State
from border_cli.errors import NotFinite
from border_cli.settings.schedule import ENV_STEPS, UPDATES, Schedule

log = logging.getLogger(__name__)

REMEDY = (
    "nothing has been saved since. A smaller agent.learning_rate or an agent.max_grad_norm often "
    "helps"
)
Schedules: TypeAlias = Mapping[str, tuple[str, Schedule]]  # by typed name, each with its counter
NO_SCHEDULES: Schedules = {}
CHECK_EVERY = 100  # updates; reading each one immediately would make every step wait for the device


@dataclass(slots=True, kw_only=True)
class Counters:
    """Owned by the learner's thread; saved with every checkpoint."""

    opt_steps: int = 0
    env_steps: int = 0  # actions of the actors whose messages arrived
    samples_total: int = 0  # transitions pushed into the replay buffer
    out_of_bounds: int = 0  # of these, with an observation beyond the bounds of its space

    def load(self, saved: Mapping[str, float]) -> None:
        """Takes the values that a checkpoint has."""
        for field in fields(self):
            setattr(self, field.name, int(saved[field.name]))


def values_of(schedules: Schedules, counters: Counters, done: float) -> dict[str, float]:
    """The present values of schedules, where the fraction `done` of the run is over."""
    counts = {UPDATES: counters.opt_steps, ENV_STEPS: counters.env_steps}
    return {
        f"train/{name.partition('.')[2]}": schedule.at(counts[counter], done)
        for name, (counter, schedule) in schedules.items()
    }


class RunClock:
    """The time that a run has taken in all its attempts, by the sections of the learner's time.

    Owned by the learner's thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._past_s = 0.0  # of earlier attempts
        self._past_seconds: Mapping[str, float] = {}
        self.timing = Timing(clock)
        self.begin()

    def begin(self) -> None:
        """Starts to count, for a resumed run from where it stopped."""
        self.timing.begin(self._past_seconds)
        self._started_s = self.timing.since_s - self._past_s

    @property
    def elapsed_s(self) -> float:
        """Seconds that the run has taken so far."""
        return self._clock.now_s() - self._started_s

    def state_dict(self) -> State:
        """The time so far."""
        return {"time_s": self.elapsed_s, "seconds": self.timing.seconds()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; `begin` follows."""
        self._past_s = float(state["time_s"])
        self._past_seconds = state["seconds"]


class MetricsWindow:
    """Episodes and counts since the last row of metrics; owned by the learner's thread."""

    def __init__(self, counters: Counters, info_metrics: Sequence[str] = ()) -> None:
        self._counters = counters
        self._info_metrics = info_metrics
        self.longest_episode = 0  # env steps, of all that ended in this run
        self._actor_samples: dict[str, int] = {}  # by actor id, as a checkpoint has them
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
        """The part of the window that does not depend on the clock."""
        return {
            "opt_steps": self._opt_steps,
            "samples": self._samples,
            "episodes": [each.numbers() for each in self._episodes],
            "lags": list(self._lags),
            "longest_episode": self.longest_episode,
            "actor_samples": dict(self._actor_samples),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave; `begin` follows."""
        self._opt_steps, self._samples = state["opt_steps"], state["samples"]
        self._episodes = [Episode.of(each) for each in state["episodes"]]
        self._lags = list(state["lags"])
        self.longest_episode = state["longest_episode"]
        self._actor_samples = dict(state["actor_samples"])

    def arrived(self, message: Experience) -> None:
        """Counts a message that was taken in."""
        for episode in message.episodes:
            self._episodes.append(episode)
            self.longest_episode = max(self.longest_episode, episode.length)
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
        if actors:  # an offline run collects no samples
            metrics["async/samples_total"] = float(counters.samples_total)
            metrics["actor/restarts"] = float(sum(each.restarts for each in actors))
        if opt_steps:  # without an update between two rows there are no rates
            metrics["async/opt_steps_per_sec"] = opt_steps / span_s
        if opt_steps and actors:
            metrics["async/samples_per_sec"] = samples / span_s
            metrics["async/samples_per_opt_steps"] = samples / opt_steps
        if self._lags:
            metrics["async/weight_lag"] = float(np.mean(self._lags))
        if self._episodes:
            metrics |= self._of_episodes()
        for each in actors:
            actor = str(each.actor_id)
            made = each.samples - self._actor_samples.get(actor, 0)
            if opt_steps:
                metrics[f"actor/{actor}/samples_per_sec"] = made / span_s
            self._actor_samples[actor] = each.samples
        times = self._time_shares(actors, seconds)
        if opt_steps:
            metrics.update(times)
        self._clear(now_s)
        return metrics

    def _of_episodes(self) -> dict[str, float]:
        """The returns and lengths, with deviations of the population, and the means of what the
        environments reported of the episodes, over those that have it."""
        returns = [each.score for each in self._episodes]
        lengths = [each.length for each in self._episodes]
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
        for place, name in enumerate(self._info_metrics):
            values = [each.metrics[place] for each in self._episodes if each.metrics]
            found = [each for each in values if not math.isnan(each)]
            if found:
                metrics[f"episode/{name}"] = float(np.mean(found))
        return metrics

    def _time_shares(
        self, actors: list[ActorStats], seconds: Mapping[str, float]
    ) -> dict[str, float]:
        learner = self._learner_time.update(seconds)
        acting = self._actor_time.update(summed(each.seconds for each in actors))
        return {
            **{f"time/{section}": share for section, share in learner.items()},
            **{f"time/actor/{section}": share for section, share in acting.items()},
        }


class UpdateLog:
    """Keeps what the agent reported, unread, then checks and averages it.

    Owned by the learner's thread. A loss that is not finite is found at most `CHECK_EVERY` updates
    later, always before weights are saved or evaluated, and is named with its own step.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[int, Mapping[str, SupportsFloat]]] = []  # opt steps, metrics
        # name -> values since the last row
        self._read: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, opt_steps: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Takes the metrics of update number `opt_steps`; every so many are read and checked."""
        self._unread.append((opt_steps, metrics))
        if len(self._unread) >= CHECK_EVERY:
            self.check()

    def check(self) -> None:
        """Reads all; raises `NotFinite` with the name and step of the first bad quantity."""
        for opt_steps, metrics in self._unread:
            for name, value in metrics.items():
                number = float(value)
                if not math.isfinite(number):
                    raise NotFinite(f"train/{name} is {number} at update {opt_steps:,}; {REMEDY}")
                self._read[name].append(number)
        self._unread.clear()

    def means(self) -> dict[str, float]:
        """The means since the last call, with `train/` in front."""
        self.check()
        means = {f"train/{name}": fmean(values) for name, values in self._read.items()}
        self._read.clear()
        return means

    def state_dict(self) -> State:
        """The values that the next row is the mean of."""
        self.check()
        return {name: list(values) for name, values in self._read.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self._read = defaultdict(list, {name: list(values) for name, values in state.items()})


def check_weights(agent: Agent) -> None:
    """Raises `NotFinite` for the first bad weight."""
    bad = agent.first_not_finite()
    if bad is not None:
        raise NotFinite(
            f"{bad} of the agent is not finite after update {agent.opt_steps:,}; {REMEDY}"
        )
