"""The newest state of a running run, as the panel and the status line show it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from border_cli.core.output import Progress, RecordStep, RunInfo
from border_cli.core.types import Metrics

MAX_SCORES = 12  # evaluations that the small curve shows
RATE_SPAN_S = 5.0  # rates are means over the last seconds: samples arrive in bursts
RATE_STEP_S = 0.1  # between two of the moments that are kept


@dataclass(frozen=True, slots=True)
class Budget:
    """One of the limits that end a run."""

    unit: str  # opt, env or time
    done: float
    limit: float
    left_s: float | None  # at the pace since learning began; None where there is none yet

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.limit)


@dataclass(frozen=True, slots=True)
class Rates:
    """Means over the last seconds; None where nothing is known yet."""

    updates: float | None = None  # per second
    samples: float | None = None  # per second
    ratio: float | None = None  # samples per update


class RunView:
    """The newest values of everything; owned by the recorder that draws."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.step = RecordStep(opt_steps=0, env_steps=0, time_s=0.0)
        self.phase = ""
        self.problem: str | None = None  # what goes wrong just now
        self.best = info.best  # score, opt steps
        self.scores: deque[float] = deque(maxlen=MAX_SCORES)
        self._values: dict[str, float] = {}
        self._pace_from: RecordStep | None = None
        self._moments: deque[tuple[float, int, int]] = deque()  # time_s, updates, samples
        # time_s, seconds since the row before, samples per second of each actor
        self._actor_rates: deque[tuple[float, float, dict[int, float]]] = deque()

    def take_row(self, step: RecordStep, metrics: Metrics) -> None:
        """A row of metrics, maybe with an evaluation."""
        passed_s = step.time_s - (self._actor_rates[-1][0] if self._actor_rates else 0.0)
        if (rates := _actor_rates(metrics)) and passed_s > 0:
            self._actor_rates.append((step.time_s, passed_s, rates))
            while step.time_s - self._actor_rates[0][0] >= RATE_SPAN_S:
                self._actor_rates.popleft()
        self._move_to(step)
        self._values.update(metrics)
        if "eval/return" not in metrics:
            return
        score = metrics["eval/return"]
        self.scores.append(score)
        if math.isfinite(score) and (self.best is None or score > self.best[0]):
            self.best = (score, step.opt_steps)

    def take_progress(self, progress: Progress) -> None:
        """Where the run stands now."""
        if (progress.phase == "warm-up") != (self.phase == "warm-up"):
            self._moments.clear()  # what is collected without updates says nothing about learning
        self._move_to(progress.step)
        self.phase, self.problem = progress.phase, progress.problem
        self._values.update(progress.gauges)
        if progress.phase in ("warm-up", "learning"):
            self._take_moment(progress)

    def _take_moment(self, progress: Progress) -> None:
        time_s = progress.step.time_s
        moment = (time_s, progress.step.opt_steps, progress.samples_total)
        moments = self._moments
        if len(moments) > 1 and time_s - moments[-2][0] < RATE_STEP_S:
            moments[-1] = moment
        else:
            moments.append(moment)
        while len(moments) > 2 and time_s - moments[1][0] >= RATE_SPAN_S:
            moments.popleft()

    def rates(self) -> Rates:
        """Updates and samples per second, and samples per update."""
        if len(self._moments) < 2:
            return Rates()
        (began_s, *before), (now_s, *now) = self._moments[0], self._moments[-1]
        passed_s = now_s - began_s
        updates, samples = (new - old for old, new in zip(before, now, strict=True))
        if passed_s <= 0:
            return Rates()
        ratio = samples / updates if updates else None
        return Rates(updates / passed_s, samples / passed_s, ratio)

    def value(self, name: str) -> float | None:
        """The newest value of a metric, or None."""
        return self._values.get(name)

    def actor_rates(self) -> list[float]:
        """Samples per second of each actor, by id: means over the rows of the last seconds."""
        newest = _actor_rates(self._values)
        found = []
        for actor_id in sorted(newest):
            rows = [(s, rates[actor_id]) for _, s, rates in self._actor_rates if actor_id in rates]
            whole_s = sum(seconds for seconds, _ in rows)
            mean = sum(seconds * rate for seconds, rate in rows) / whole_s if rows else None
            found.append(newest[actor_id] if mean is None else mean)
        return found

    def nearest_budget(self) -> Budget | None:
        """The limit that will be reached first, or None for a run without one."""
        budgets = self._budgets()
        timed = [each for each in budgets if each.left_s is not None]
        if timed:
            return min(timed, key=lambda each: each.left_s or 0.0)
        return max(budgets, key=lambda each: each.fraction, default=None)

    def _move_to(self, step: RecordStep) -> None:
        """The pace is measured anew from where learning begins: warm-up says nothing about it.

        Nor do earlier attempts of a resumed run, which may have to fill its replay buffer again.
        """
        waited = self.step.opt_steps == 0 or self.phase == "warm-up"
        if self._pace_from is None or (waited and step.opt_steps > self.step.opt_steps):
            self._pace_from = step
        self.step = step

    def _budgets(self) -> list[Budget]:
        start, now = self._pace_from or self.step, self.step
        limits = (
            ("opt", start.opt_steps, now.opt_steps, self.info.max_opt_steps),
            ("env", start.env_steps, now.env_steps, self.info.max_env_steps),
            ("time", start.time_s, now.time_s, self.info.max_time_s),
        )
        passed_s = now.time_s - start.time_s
        budgets = []
        for unit, before, done, limit in limits:
            if limit is None:
                continue
            left_s = None
            if unit == "time":
                left_s = max(0.0, limit - done)
            elif done > before and passed_s > 0:
                left_s = max(0.0, limit - done) * passed_s / (done - before)
            budgets.append(Budget(unit, done, limit, left_s))
        return budgets


def _actor_rates(metrics: Metrics) -> dict[int, float]:
    rates: dict[int, float] = {}
    for name, value in metrics.items():
        space, _, rest = name.partition("/")
        actor_id, _, metric = rest.partition("/")
        if space == "actor" and metric == "samples_per_sec" and actor_id.isdigit():
            rates[int(actor_id)] = value
    return rates
