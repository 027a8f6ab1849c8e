"""The one training loop."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from border_cli.core.actors import ActorManager, ActorStats
from border_cli.core.config import TrainerConfig
from border_cli.core.errors import NotFinite
from border_cli.core.interfaces import Agent
from border_cli.core.replay import ReplayBuffer
from border_cli.core.stop import StopFlag
from border_cli.trainer.intake import Intake
from border_cli.trainer.pacing import Pacing
from border_cli.trainer.post_step import PostStep

log = logging.getLogger(__name__)

LOOK_UP_S = 0.2  # a learner that waits for samples looks at the stop flag this often


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStats:
    """What the learner did."""

    opt_steps: int
    env_steps: int
    samples_total: int
    duration_s: float
    evaluations: int
    best_score: float
    best_opt_steps: int | None
    last_score: float | None
    save_failures: int
    recorder_failures: int
    seconds: Mapping[str, float] = field(default_factory=dict)  # by section of the learner's time

    @property
    def samples_per_sec(self) -> float:
        return self.samples_total / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def opt_per_sec(self) -> float:
        return self.opt_steps / self.duration_s if self.duration_s > 0 else 0.0


class Trainer(ABC):
    """Owns agent and replay buffer; every method is called by the learner's thread.

    `sync` and `async` differ in `ingest` and in who runs the actors, in nothing else.
    """

    actors_in_turn: ClassVar[bool] = False  # needs actors that step only within `receive`

    def __init__(
        self,
        config: TrainerConfig,
        *,
        agent: Agent,
        replay_buffer: ReplayBuffer,
        actors: ActorManager,
        post_step: PostStep,
        batch_size: int,
        slack: int,
        stop: StopFlag,
    ) -> None:
        self.config = config
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._uses_priorities = replay_buffer.uses_priorities
        self._actors = actors
        self._post_step = post_step
        self._timing = post_step.timing
        self._batch_size = batch_size
        self._stop = stop
        self._warm = False  # the warm-up is over
        self.ended_by: str | None = None  # the limit that was reached
        self.counters = post_step.counters
        self.pacing = Pacing(
            warmup_period=config.warmup_period,
            ratio=config.samples_per_opt_step,
            slack=slack,
            max_env_steps=config.max_env_steps,
        )
        self._needed = self.pacing.needed(0)  # samples in all, for the next optimisation step

    @abstractmethod
    def ingest(self, *, wait: bool) -> None:
        """Takes in samples; with `wait`, lets actors make some where none is there."""

    def train(self) -> list[ActorStats]:
        """Runs to the end of the budget and returns what the actors did; saves whatever happens.

        Must be called within the manager's `with` block and the agent's `learner_thread`.
        """
        self._post_step.heartbeat.claim()
        self._post_step.begin()
        self._intake = Intake(self._replay_buffer, self.counters, self._post_step.window)
        self._post_step.sync(warm_up=True)
        self._actors.permit(self.pacing.permitted(0))
        try:
            while not self.done():
                self.step()
            self._stop_actors()
            self._post_step.finish()
        except NotFinite:
            raise  # the weights may be spoilt: the last checkpoint stays the last
        except BaseException:
            self._save_what_there_is()
            raise
        return self._actors.stats()

    def step(self) -> None:
        """Takes in what arrived, then makes one optimisation step if the pace allows it."""
        self._stop.check()
        ready = self._ready()
        if not ready:  # until some arrive: to look in vain is no step, else no deadlock is found
            self._post_step.heartbeat.waiting_for = "samples"
        self.ingest(wait=not ready)
        if ready or self._ready():  # samples only become more
            self._optimise()
        else:
            self._post_step.show_waiting(warm=self._warm)

    def done(self) -> bool:
        """Whether any limit is reached; then `ended_by` names it."""
        self.ended_by = self._limit_reached()
        return self.ended_by is not None

    def _limit_reached(self) -> str | None:
        config, counters, scores = self.config, self.counters, self._post_step.scores
        if config.max_opt_steps is not None and counters.opt_steps >= config.max_opt_steps:
            return "max_opt_steps"
        if config.max_time_s is not None and self._post_step.elapsed_s >= config.max_time_s:
            return "max_time_s"
        if config.stop_at_score is not None and scores.in_a_row >= config.stop_evals:
            return "stop_at_score"
        if config.max_env_steps is None or counters.env_steps < config.max_env_steps:
            return None
        # the updates that the last samples pay for are still made
        over = self.pacing.ratio is None or not self._ready()
        return "max_env_steps" if over else None

    def _ready(self) -> bool:
        return self.counters.samples_total >= self._needed

    def _optimise(self) -> None:
        if not self._warm:
            self._warm = True
            self._post_step.sync()  # the actors leave the warm-up
        self._post_step.heartbeat.beat()
        timing = self._timing
        timing.enter("sample")
        batch = self._replay_buffer.sample(self._batch_size)
        timing.enter("update")
        update = self._agent.update(batch)
        if self._uses_priorities:
            timing.enter("priorities")
            self._replay_buffer.update_priorities(batch.index, update.td_error())
        timing.enter("other")
        opt_steps = self.counters.opt_steps = self._agent.opt_steps
        self._needed = self.pacing.needed(opt_steps)
        self._actors.permit(self.pacing.permitted(opt_steps))
        self._post_step.after_update(update)

    def _take(self, timeout_s: float) -> None:
        self._timing.enter("wait")
        arrived = self._actors.receive(timeout_s)
        if arrived:
            self._timing.enter("push")
            self._post_step.heartbeat.beat()
            self._post_step.heartbeat.waiting_for = None
            self._intake.take(arrived)

    def _stop_actors(self) -> None:
        self._timing.enter("other")
        with self._post_step.heartbeat.waiting("the actors to stop"):
            arrived = self._actors.stop()
        with self._timing.section("push"):
            self._intake.take(arrived)

    def _save_what_there_is(self) -> None:
        """Saves on the way out; a second failure is logged and never hides the first."""
        try:
            self._stop_actors()
            self._post_step.interrupted()
        except Exception:
            log.exception("the last checkpoint could not be written")
