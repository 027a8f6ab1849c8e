"""What is known of a run while it goes on, gathered for whoever draws it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from border_cli.core.output import Progress, RecordStep, RunInfo
from border_cli.core.types import Metrics

MAX_SCORES = 12  # evaluations that the small curve shows


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

    def take_row(self, step: RecordStep, metrics: Metrics) -> None:
        """A row of metrics, maybe with an evaluation."""
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
        self._move_to(progress.step)
        self.phase, self.problem = progress.phase, progress.problem
        self._values.update(progress.gauges)

    def value(self, name: str) -> float | None:
        """The newest value of a metric, or None."""
        return self._values.get(name)

    def actor_rates(self) -> list[float]:
        """Samples per second of each actor, by id."""
        rates: dict[int, float] = {}
        for name, value in self._values.items():
            space, _, rest = name.partition("/")
            actor_id, _, metric = rest.partition("/")
            if space == "actor" and metric == "samples_per_sec" and actor_id.isdigit():
                rates[int(actor_id)] = value
        return [rates[actor_id] for actor_id in sorted(rates)]

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
