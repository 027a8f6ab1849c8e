"""The trainers that learn from actors, and the replay ratio, which couples samples and updates."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from border_cli.core.output import FILE_ONLY, Resumption
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import PAST_SCHEDULES, State, Update
from border_cli.settings.run import ReplayRatioConfig, TrainerConfig, Warmup
from border_cli.trainer.metrics import NO_SCHEDULES, Schedules
from border_cli.trainer.trainer import LearnerParts, Stateful, Trainer
from border_cli.words import pluralize

log = logging.getLogger(__name__)

WAIT_S = 0.2  # longest wait for samples before the stop flag is checked again


class SampleBudget(ABC):
    """Base class of sample budgets: how many updates need, and how many actors may collect."""

    @abstractmethod
    def needed(self, opt_steps: int) -> float:
        """Returns the total number of samples that the next update needs."""

    @abstractmethod
    def permitted(self, opt_steps: int) -> float:
        """Returns the total number of samples allowed after this many updates."""

    @abstractmethod
    def state_dict(self) -> State:
        """Returns the state that does not follow from the counters."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""


@dataclass(slots=True, kw_only=True)
class ReplayRatio(SampleBudget):
    """Couples samples and updates, so that learning does not depend on the machine's speed.

    Update k + 1 needs `warmup_period + k * samples_per_opt_step` samples in all; actors may collect
    up to `slack` more. If `samples_per_opt_step` is None, learner and actors run at their own
    speed after the warm-up. `max_env_steps` limits the samples, too. The env steps may exceed it by
    those in unfinished n-step windows and the rest of a round of environments that step together.
    """

    warmup_period: int
    samples_per_opt_step: float | None
    slack: int  # samples; at least 1: with 0, the update may need a fraction more than is allowed
    max_env_steps: int | None = None
    refill: int = 0  # samples collected again because a resume found no transitions

    def refill_buffer(self, opt_steps: int, samples_total: int) -> None:
        """Requires as many new samples as in the warm-up, to refill an empty replay buffer."""
        missing = samples_total + max(1, self.warmup_period) - self._due(opt_steps)
        self.refill += max(0, math.ceil(missing))

    def _due(self, opt_steps: int) -> float:
        per_update = 0.0 if self.samples_per_opt_step is None else self.samples_per_opt_step
        return self.warmup_period + opt_steps * per_update + self.refill

    def needed(self, opt_steps: int) -> float:
        due = self._due(opt_steps)
        return due if due > 1 else 1.0

    def permitted(self, opt_steps: int) -> float:
        ahead = math.inf
        per_update = self.samples_per_opt_step
        if per_update is not None:
            ahead = self.warmup_period + opt_steps * per_update + self.slack + self.refill
        limit = self.max_env_steps
        return ahead if limit is None or ahead < limit else float(limit)

    def state_dict(self) -> State:
        return {"refill": self.refill}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.refill = int(state["refill"])


class OnlineTrainer(Trainer):
    """Base class of trainers that update once actors have collected enough samples."""

    _random_warmup = False  # whether actors act at random until the first update
    _warm = True  # whether the warm-up is over

    def __init__(
        self,
        config: TrainerConfig,
        *,
        parts: LearnerParts,
        batch_size: int,
        pace: SampleBudget,
        spec: EnvSpec,
        schedules: Schedules = NO_SCHEDULES,
    ) -> None:
        super().__init__(config, parts=parts, batch_size=batch_size, spec=spec, schedules=schedules)
        self.pace = pace
        self._needed = pace.needed(0)  # total samples that the next update needs
        self._starts_trained = parts.starts_trained

    def collect(self) -> bool:
        """Receives samples; waits for them only if too few for an update have arrived."""
        ready = self._ready()
        if not ready:  # not `waiting(…)`, whose beat after each empty poll would hide a deadlock
            self.heartbeat.waiting_for = "samples"
        self.ingest(wait=not ready)
        return ready or self._ready()  # the number of samples never decreases

    def _ready(self) -> bool:
        return self.counters.samples_total >= self._needed

    @abstractmethod
    def ingest(self, *, wait: bool) -> None:
        """Receives samples; with `wait`, lets actors collect some if none has arrived."""

    def _receive(self, timeout_s: float, *, everything: bool = False) -> None:
        timing = self.clock.timing
        timing.enter("wait")
        receive = self._actors.receive_all if everything else self._actors.receive
        messages = receive(timeout_s)
        if messages:
            timing.enter("push")
            self.heartbeat.beat()
            self.heartbeat.waiting_for = None
            self._intake.take(messages)

    def _permit(self) -> None:
        """Allows the actors to collect the samples for the next updates."""
        opt_steps = self.counters.opt_steps
        self._needed = self.pace.needed(opt_steps)
        self._actors.permit(self.pace.permitted(opt_steps))

    def start_actors(self) -> None:
        """Publishes the first weights, or those that were the newest at the checkpoint."""
        if self._published is None:
            self.publish()
        else:
            self._actors.publish(self._published)
        self._permit()

    def publish(self) -> None:
        """Publishes the newest weights to the actors (Border's SyncModel)."""
        with self.clock.timing.section("sync"):
            self._published = self._agent.snapshot(
                env_steps=PAST_SCHEDULES if self._starts_trained else self.counters.env_steps,
                warm_up=self._random_warmup and not self._warm,
            )
            self._actors.publish(self._published)

    @property
    @abstractmethod
    def _samples_used(self) -> bool:
        """True if the samples so far require no further update; always without a replay ratio."""

    def limit_reached(self) -> str | None:
        """Returns the name of the limit that ends the run now. After `max_env_steps`, a rollout is
        completed, and the updates that the last samples require are still performed."""
        limit, steps = self.config.max_env_steps, self.counters.env_steps
        reached = super().limit_reached()
        if reached is not None or limit is None or steps < limit:
            return reached
        return "max_env_steps" if self._samples_used else None

    def _stateful(self) -> dict[str, Stateful]:
        return super()._stateful() | {"pace": self.pace}


class ReplayTrainer(OnlineTrainer):
    """Base class of trainers that use a replay buffer, with a warm-up and a replay ratio."""

    pace: ReplayRatio

    def __init__(
        self,
        config: ReplayRatioConfig,
        *,
        parts: LearnerParts,
        batch_size: int,
        slack: int,
        spec: EnvSpec,
        schedules: Schedules = NO_SCHEDULES,
    ) -> None:
        """`slack`: samples that the actors may collect ahead of the replay ratio."""
        pace = ReplayRatio(
            warmup_period=config.warmup_period,
            samples_per_opt_step=config.samples_per_opt_step,
            slack=slack,
            max_env_steps=config.max_env_steps,
        )
        super().__init__(
            config, parts=parts, batch_size=batch_size, pace=pace, spec=spec, schedules=schedules
        )
        self._warm = False
        self._random_warmup = config.warmup == Warmup.random and not parts.starts_trained

    def _update(self) -> Update | None:
        if not self._warm:
            self._warm = True
            self.publish()  # ends the warm-up of the actors
            samples = pluralize(self.counters.samples_total, "sample")
            log.info("warm-up over after %s; learning starts", samples, extra=FILE_ONLY)
        update = super()._update()
        self._permit()
        return update

    @property
    def _samples_used(self) -> bool:
        return self.pace.samples_per_opt_step is None or not self._ready()

    def resume(self, saved: Resumption) -> None:
        """Continues from a checkpoint; if it has no transitions, refills the replay buffer."""
        super().resume(saved)
        counters = self.counters
        self._warm = counters.opt_steps > 0
        if saved.load_rows is None and counters.samples_total:
            self.pace.refill_buffer(counters.opt_steps, counters.samples_total)


class AsyncTrainer(ReplayTrainer):
    """A trainer that updates while the actors collect transitions. It waits only if the replay
    ratio requires more samples."""

    def ingest(self, *, wait: bool) -> None:
        self._receive(WAIT_S if wait else 0.0)


class SyncTrainer(ReplayTrainer):
    """A trainer that alternates: it steps every actor once with the newest weights, then performs
    the updates that the replay ratio allows (one if the ratio is null).

    Actors that are not reproducible get a number of samples per round: as many as an update needs,
    at least one per environment (`slack`). Updates start when all of them have arrived.
    """

    _round_is_new = False
    _round_end = 0.0  # total samples at the end of the round of actors that are not reproducible

    def ingest(self, *, wait: bool) -> None:
        if not wait:
            return
        if self._actors.reproducible:
            self.publish()
            self._receive(0.0)
        else:
            if self.counters.samples_total >= self._round_end:
                self.publish()
                end = max(self._needed, self.counters.samples_total + self.pace.slack)
                self._round_end = min(end, self.pace.max_env_steps or math.inf)
            self._needed = max(self._needed, self._round_end)
            self._actors.permit(self._round_end)
            self._receive(WAIT_S)
        self._round_is_new = True

    def _permit(self) -> None:
        if self._actors.reproducible:
            super()._permit()
        else:
            self._needed = self.pace.needed(self.counters.opt_steps)

    def _ready(self) -> bool:
        if not super()._ready():
            return False
        return self.pace.samples_per_opt_step is not None or self._round_is_new

    def _update(self) -> Update | None:
        self._round_is_new = False
        return super()._update()
