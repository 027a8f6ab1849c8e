"""The one training loop, and the three ways to run it."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from border_cli.core.config import TrainerConfig
from border_cli.core.errors import NotFinite
from border_cli.core.interfaces import ActorManager, ActorStats, Agent, ReplayBuffer
from border_cli.core.machine import failed_allocation
from border_cli.core.output import FILE_ONLY, Resumption, TrainerStats
from border_cli.core.spaces import Space
from border_cli.core.stop import StopFlag
from border_cli.core.types import State
from border_cli.core.words import counted
from border_cli.trainer.checkpointing import Checkpointing
from border_cli.trainer.evaluating import Scores
from border_cli.trainer.intake import Intake
from border_cli.trainer.post_step import PostStep

log = logging.getLogger(__name__)

LOOK_UP_S = 0.2  # a learner that waits for samples looks at the stop flag this often


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRatio:
    """Ties samples to updates, so that learning does not depend on the machine's speed.

    Update k + 1 needs `warmup_period + k * samples_per_opt_step` samples in all; actors may make up
    to `slack` more. With None learner and actors run at their own speed after the warm-up.
    """

    warmup_period: int
    samples_per_opt_step: float | None
    slack: int  # samples; below one budget of each actor, learner and actors wait for each other
    max_env_steps: int | None = None
    refill: int = 0  # samples made once more, because a resume found no transitions

    def refilled(self, opt_steps: int, samples_total: int) -> ReplayRatio:
        """The same for a replay buffer that is empty again and is filled as in the warm-up."""
        missing = samples_total + self.warmup_period - self.needed(opt_steps)
        return replace(self, refill=self.refill + max(0, math.ceil(missing)))

    def needed(self, opt_steps: int) -> float:
        """How many samples there must be in all for the next update."""
        ratio = self.samples_per_opt_step if self.samples_per_opt_step is not None else 0.0
        due = self.warmup_period + opt_steps * ratio + self.refill
        return due if due > 1 else 1.0

    def permitted(self, opt_steps: int) -> float:
        """How many samples may exist in all after this many updates."""
        ahead = math.inf
        ratio = self.samples_per_opt_step
        if ratio is not None:
            ahead = self.warmup_period + opt_steps * ratio + self.slack + self.refill
        limit = self.max_env_steps
        return ahead if limit is None or ahead < limit else float(limit)


class Trainer(ABC):
    """Owns agent and replay buffer; every method is called by the learner's thread.

    The trainers differ in `ingest`, in who runs the actors, and in when they may begin.
    """

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
        observation: Space,
        stop: StopFlag,
    ) -> None:
        self.config = config
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._uses_priorities = replay_buffer.uses_priorities
        self._follows_run = replay_buffer.follows_run
        self._actors = actors
        self._post_step = post_step
        self._timing = post_step.timing
        self._batch_size = batch_size
        self._stop = stop
        self._warm = False  # the warm-up is over
        self.ended_by: str | None = None  # the limit that was reached
        self.counters = post_step.counters
        self.replay_ratio = ReplayRatio(
            warmup_period=config.warmup_period,
            samples_per_opt_step=config.samples_per_opt_step,
            slack=slack,
            max_env_steps=config.max_env_steps,
        )
        self._needed = self.replay_ratio.needed(0)  # samples in all, for the next optimisation step
        self._intake = Intake(
            agent,
            replay_buffer,
            counters=self.counters,
            window=post_step.reporting.window,
            observation=observation,
        )
        self._checkpointing = Checkpointing(
            agent=agent,
            replay_buffer=replay_buffer,
            actors=actors,
            intake=self._intake,
            post_step=post_step,
        )

    def stats(self) -> TrainerStats:
        """What was done so far."""
        reporting, scores = self._post_step.reporting, self.scores
        saving = self._post_step.saving
        return TrainerStats(
            opt_steps=self.counters.opt_steps,
            env_steps=self.counters.env_steps,
            samples_total=self.counters.samples_total,
            out_of_bounds=self.counters.out_of_bounds,
            duration_s=reporting.elapsed_s,
            evaluations=scores.evaluations,
            best_score=scores.best,
            best_opt_steps=scores.best_opt_steps,
            last_score=scores.last,
            save_failures=saving.report.failures,
            recorder_failures=reporting.recording.failures,
            recorders_switched_off=dict(reporting.recording.switched_off),
            saves=saving.report.written,
            saves_skipped=saving.skipped,
            save_seconds=saving.report.seconds,
            seconds=reporting.timing.seconds(),
        )

    @property
    def scores(self) -> Scores:
        """What the evaluations said so far."""
        return self._post_step.scores

    @abstractmethod
    def ingest(self, *, wait: bool) -> None:
        """Takes in samples; with `wait`, lets actors make some where none is there."""

    def resume(self, saved: Resumption) -> None:
        """Goes on from a checkpoint; called before `train`, when all else is built.

        Raises CheckpointError where it does not fit; then nothing that was recorded is touched.
        """
        own = self._checkpointing.resume(saved)
        opt_steps = self.counters.opt_steps
        self._warm = opt_steps > 0
        self.replay_ratio = replace(self.replay_ratio, refill=own["refill"])
        if saved.load_rows is None and self._warm:
            self.replay_ratio = self.replay_ratio.refilled(opt_steps, self.counters.samples_total)
        self._needed = self.replay_ratio.needed(opt_steps)

    def _own_state(self) -> State:
        return {"refill": self.replay_ratio.refill}

    def train(self) -> list[ActorStats]:
        """Runs to the end of the budget and returns what the actors did; saves whatever happens.

        Must be called within the manager's `with` block and the agent's `learner_thread`.
        """
        post_step = self._post_step
        post_step.heartbeat.claim()
        post_step.begin()
        try:
            self._checkpointing.begin()
            self._actors.permit(self.replay_ratio.permitted(self.counters.opt_steps))
            post_step.complete()
            while not self.done():
                self.step()
            post_step.reporting.show("stopping")
            self._checkpointing.save_last(self._own_state())
            post_step.finish()
        except NotFinite:
            raise  # the weights may be spoilt: the last checkpoint stays the last
        except BaseException:
            self._save_what_there_is()
            raise
        finally:
            post_step.saving.finish(post_step.heartbeat)
        return self._actors.stats()

    def step(self) -> None:
        """Takes in what arrived, then makes one optimisation step if the pace allows it."""
        self._stop.check()
        ready = self._ready()
        if not ready:  # until some arrive: to look in vain is no step, else no deadlock is found
            self._post_step.heartbeat.waiting_for = "samples"
        self.ingest(wait=not ready)
        if ready or self._ready():  # samples only become more
            self._update()
        else:
            self._post_step.reporting.show_waiting(warm=self._warm)
            if self._post_step.saving.is_asked:
                self._checkpointing.save(self._own_state())

    def done(self) -> bool:
        """Whether any limit is reached; then `ended_by` names it."""
        self.ended_by = self._limit_reached()
        return self.ended_by is not None

    def _limit_reached(self) -> str | None:
        config, counters, scores = self.config, self.counters, self._post_step.scores
        if config.max_opt_steps is not None and counters.opt_steps >= config.max_opt_steps:
            return "max_opt_steps"
        if (
            config.max_time_s is not None
            and self._post_step.reporting.elapsed_s >= config.max_time_s
        ):
            return "max_time_s"
        if config.stop_at_score is not None and scores.in_a_row >= config.stop_evals:
            return "stop_at_score"
        if config.max_env_steps is None or counters.env_steps < config.max_env_steps:
            return None
        # the updates that the last samples pay for are still made
        over = self.replay_ratio.samples_per_opt_step is None or not self._ready()
        return "max_env_steps" if over else None

    def _share_done(self) -> float:
        """How much of the run is over by the limit that is nearest, 0 to 1; none of it where only
        a score ends it."""
        config, counters = self.config, self.counters
        shares = [0.0]
        if config.max_opt_steps is not None:
            shares.append(counters.opt_steps / config.max_opt_steps)
        if config.max_env_steps is not None:
            shares.append(counters.env_steps / config.max_env_steps)
        if config.max_time_s is not None:
            shares.append(self._post_step.reporting.elapsed_s / config.max_time_s)
        return min(1.0, max(shares))

    def _ready(self) -> bool:
        return self.counters.samples_total >= self._needed

    def _update(self) -> None:
        if not self._warm:
            self._warm = True
            self._post_step.sync()  # the actors leave the warm-up
            samples = counted(self.counters.samples_total, "sample")
            log.info("warm-up over after %s; learning starts", samples, extra=FILE_ONLY)
        self._post_step.heartbeat.beat()
        timing = self._timing
        timing.enter("sample")
        if self._follows_run:
            self._replay_buffer.follow(self._share_done())
        batch = self._replay_buffer.sample(self._batch_size)
        timing.enter("update")
        update = self._agent.update(batch)
        if self._uses_priorities:
            timing.enter("priorities")
            self._replay_buffer.update_priorities(batch.index, update.td_error())
        timing.enter("other")
        opt_steps = self.counters.opt_steps = self._agent.opt_steps
        self._needed = self.replay_ratio.needed(opt_steps)
        self._actors.permit(self.replay_ratio.permitted(opt_steps))
        if self._post_step.after_update(update, batch.index):
            self._checkpointing.save(self._own_state())

    def _take(self, timeout_s: float) -> None:
        self._timing.enter("wait")
        arrived = self._actors.receive(timeout_s)
        if arrived:
            self._timing.enter("push")
            self._post_step.heartbeat.beat()
            self._post_step.heartbeat.waiting_for = None
            self._intake.take(arrived)

    def _save_what_there_is(self) -> None:
        """Saves on the way out; a second failure is logged and never hides the first."""
        try:
            self._post_step.reporting.show("stopping")
            self._checkpointing.save_last(self._own_state())
            self._post_step.interrupted()
        except Exception as error:
            lack = failed_allocation(error)
            why = f" (out of memory: {lack})" if lack else ""
            log.error(
                "could not save the final checkpoint%s", why, exc_info=None if lack else error
            )


class AsyncTrainer(Trainer):
    """Actors collect transitions while the learner updates; it waits only where the replay ratio
    asks for more samples."""

    def ingest(self, *, wait: bool) -> None:
        self._take(LOOK_UP_S if wait else 0.0)


class SyncTrainer(Trainer):
    """Each round steps every actor once, always with the newest weights, then makes the updates
    that the replay ratio allows (one where it is null)."""

    _round_is_new = False

    def ingest(self, *, wait: bool) -> None:
        if wait:
            self._post_step.sync(warm_up=not self._warm)
            self._take(0.0)
            self._round_is_new = True

    def _ready(self) -> bool:
        if not super()._ready():
            return False
        return self.replay_ratio.samples_per_opt_step is not None or self._round_is_new

    def _update(self) -> None:
        self._round_is_new = False
        super()._update()


class OfflineTrainer(Trainer):
    """Updates from the beginning: all transitions are in the replay buffer."""

    def ingest(self, *, wait: bool) -> None:
        """There are no actors, so nothing arrives."""

    def _ready(self) -> bool:
        return True
