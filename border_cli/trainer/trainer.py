"""The training loop, and the three ways to run it."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from border_cli.core.interfaces import ActorStats
from border_cli.core.output import FILE_ONLY, Resumption, TrainerStats
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Episode
from border_cli.errors import NotFinite, RunDeleted
from border_cli.settings.run import TrainerConfig
from border_cli.trainer.callbacks import Callbacks
from border_cli.trainer.evaluating import Scores
from border_cli.trainer.intake import Intake
from border_cli.trainer.metrics import NO_SCHEDULES, Reporting, Schedules
from border_cli.trainer.post_step import LearnerParts, PostStep
from border_cli.words import counted

log = logging.getLogger(__name__)

WAIT_S = 0.2  # at most for samples, before the stop flag is checked again


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRatio:
    """Ties samples to updates, so that learning does not depend on the machine's speed.

    Update k + 1 needs `warmup_period + k * samples_per_opt_step` samples in all; actors may make up
    to `slack` more. With None learner and actors run at their own speed after the warm-up.
    `max_env_steps` counts as a number of samples, too: env steps in unfinished n-step windows, and
    the rest of a round of environments that step together, may come on top.
    """

    warmup_period: int
    samples_per_opt_step: float | None
    slack: int  # samples; below one budget of each actor, learner and actors wait for each other
    max_env_steps: int | None = None
    refill: int = 0  # samples made once more, because a resume found no transitions

    def refilled(self, opt_steps: int, samples_total: int) -> ReplayRatio:
        """The ratio for a replay buffer that is empty again and is filled as in the warm-up."""
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


def _episode_hook(callbacks: Callbacks, reporting: Reporting) -> Callable[[Episode], None] | None:
    """Tells callbacks of an episode; None where none of them asks for it."""
    hook = callbacks.hook("on_episode")
    return None if hook is None else lambda episode: hook(reporting.step, episode)


class Trainer(ABC):
    """Owns agent and replay buffer; every method is called by the learner's thread.

    The trainers differ in `ingest`, in which thread runs the actors, and in when updates begin.
    """

    def __init__(
        self,
        config: TrainerConfig,
        *,
        parts: LearnerParts,
        batch_size: int,
        slack: int,
        spec: EnvSpec,
        schedules: Schedules = NO_SCHEDULES,
    ) -> None:
        """`slack`: samples that actors may be ahead; `schedules` are recorded."""
        self.config = config
        self._agent = parts.agent
        self._replay_buffer = parts.replay_buffer
        self._uses_priorities = parts.replay_buffer.uses_priorities
        self._actors = parts.actors
        self._checkpoints = parts.checkpoints
        self._batch_size = batch_size
        self._stop = parts.stop
        self._callbacks = parts.callbacks
        self._warm = False  # the warm-up is over
        self.ended_by: str | None = None  # the limit that was reached, or `callback NAME: REASON`
        self.replay_ratio = ReplayRatio(
            warmup_period=config.warmup_period,
            samples_per_opt_step=config.samples_per_opt_step,
            slack=slack,
            max_env_steps=config.max_env_steps,
        )
        self._needed = self.replay_ratio.needed(0)  # samples in all, for the next update
        reporting = Reporting(
            parts.recording,
            replay_buffer=parts.replay_buffer,
            actors=parts.actors,
            checkpoints=parts.checkpoints,
            clock=parts.clock,
            info_metrics=spec.info_metrics,
            schedules=schedules,
        )
        self.counters = reporting.counters
        self._timing = reporting.timing
        self._intake = Intake(
            parts.agent,
            parts.replay_buffer,
            counters=reporting.counters,
            window=reporting.window,
            observation=spec.observation,
            on_episode=_episode_hook(parts.callbacks, reporting),
        )
        self.post_step = PostStep(
            config,
            parts,
            reporting=reporting,
            intake=self._intake,
        )

    def stats(self) -> TrainerStats:
        """The learner's counters, scores and times so far."""
        reporting, scores = self.post_step.reporting, self.scores
        saved = self._checkpoints.report
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
            save_failures=saved.failures,
            recorder_failures=reporting.recording.failures,
            recorders_switched_off=dict(reporting.recording.switched_off),
            saves=saved.written,
            saves_skipped=self.post_step.schedule.skipped,
            save_seconds=saved.seconds,
            seconds=reporting.timing.seconds(),
        )

    @property
    def scores(self) -> Scores:
        """The scores of the evaluations so far."""
        return self.post_step.scores

    @abstractmethod
    def ingest(self, *, wait: bool) -> None:
        """Takes in samples; with `wait`, lets actors make some where none has arrived."""

    def resume(self, saved: Resumption) -> None:
        """Continues from a checkpoint; called before `train`, when everything is built.

        Raises CheckpointError where it does not fit; then nothing that was recorded is touched.
        """
        self.post_step.resume(saved)
        opt_steps = self.counters.opt_steps
        self._warm = opt_steps > 0
        self.replay_ratio = replace(self.replay_ratio, refill=self.post_step.refill)
        if saved.load_rows is None and self._warm:
            self.replay_ratio = self.replay_ratio.refilled(opt_steps, self.counters.samples_total)
            self.post_step.refill = self.replay_ratio.refill
        self._needed = self.replay_ratio.needed(opt_steps)

    def train(self) -> list[ActorStats]:
        """Runs to the end of the budget and returns what the actors did; saves whatever happens.

        Must be called within the manager's `with` block and the agent's `learner_thread`.
        """
        post_step = self.post_step
        post_step.heartbeat.claim()
        post_step.begin()
        try:
            post_step.start_actors()
            self._actors.permit(self.replay_ratio.permitted(self.counters.opt_steps))
            post_step.complete()
            while not self.done():
                self.step()
            post_step.reporting.show("stopping")
            self._save_last()
            post_step.finish()
        except (NotFinite, RunDeleted):
            # The weights may be spoilt, and where somebody has deleted files nothing is written.
            raise
        except BaseException:
            self._save_what_there_is()
            raise
        finally:
            post_step.wait_until_written()
        return self._actors.stats()

    def step(self) -> None:
        """Takes in what arrived, then makes one update if the replay ratio allows it."""
        self._stop.check()
        ready = self._ready()
        if not ready:  # an empty poll is no step, else no deadlock is found
            self.post_step.heartbeat.waiting_for = "samples"
        self.ingest(wait=not ready)
        if ready or self._ready():  # samples only become more
            self._update()
        else:
            phase = "learning" if self._warm else "warm-up"
            self.post_step.reporting.show_if_due(phase, self._timing.since_s)
            if self.post_step.schedule.requested:
                self.post_step.save()

    def done(self) -> bool:
        """Whether any limit is reached; then `ended_by` names it."""
        self.ended_by = self._callbacks.stopped_by or self._limit_reached()
        return self.ended_by is not None

    def _limit_reached(self) -> str | None:
        config, counters, scores = self.config, self.counters, self.post_step.scores
        if config.max_opt_steps is not None and counters.opt_steps >= config.max_opt_steps:
            return "max_opt_steps"
        if (
            config.max_time_s is not None
            and self.post_step.reporting.elapsed_s >= config.max_time_s
        ):
            return "max_time_s"
        if config.stop_at_score is not None and scores.in_a_row >= config.stop_evals:
            return "stop_at_score"
        if config.patience is not None and scores.without_best >= config.patience:
            return "patience"
        if config.max_env_steps is None or counters.env_steps < config.max_env_steps:
            return None
        # the updates that the last samples pay for are still made
        over = self.replay_ratio.samples_per_opt_step is None or not self._ready()
        return "max_env_steps" if over else None

    def _share_done(self) -> float:
        """The share of the run that is over by the nearest limit, 0 to 1; 0 where only a score ends
        it."""
        config, counters = self.config, self.counters
        shares = [0.0]
        if config.max_opt_steps is not None:
            shares.append(counters.opt_steps / config.max_opt_steps)
        if config.max_env_steps is not None:
            shares.append(counters.env_steps / config.max_env_steps)
        if config.max_time_s is not None:
            shares.append(self.post_step.reporting.elapsed_s / config.max_time_s)
        return min(1.0, max(shares))

    def _ready(self) -> bool:
        return self.counters.samples_total >= self._needed

    def _update(self) -> None:
        if not self._warm:
            self._warm = True
            self.post_step.sync()  # the actors leave the warm-up
            samples = counted(self.counters.samples_total, "sample")
            log.info("warm-up over after %s; learning starts", samples, extra=FILE_ONLY)
        self.post_step.heartbeat.beat()
        timing = self._timing
        timing.enter("sample")
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
        self.post_step.after_update(update)

    def _take(self, timeout_s: float) -> None:
        self._timing.enter("wait")
        arrived = self._actors.receive(timeout_s)
        if arrived:
            self._timing.enter("push")
            self.post_step.heartbeat.beat()
            self.post_step.heartbeat.waiting_for = None
            self._intake.take(arrived)

    def _save_last(self) -> None:
        """Stops the actors and saves what a resume continues from.

        Reproducible actors are saved with what they have gathered, as if they had not been stopped;
        of all others everything under way is pushed first.
        """
        if self._actors.reproducible:  # what a round gave that an error cut short
            self._intake.take(self._actors.undelivered())
        else:
            self._stop_actors()
        self.post_step.save_last()
        self._stop_actors()

    def _stop_actors(self) -> None:
        waiting = self.post_step.heartbeat.waiting("the actors to stop")
        with self._timing.section("other"), waiting:
            arrived = self._actors.stop()
        with self._timing.section("push"):
            self._intake.take(arrived)

    def _save_what_there_is(self) -> None:
        """Saves on the way out; a second failure is logged and never hides the first."""
        try:
            self.post_step.reporting.show("stopping")
            self._save_last()
            self.post_step.interrupted()
        except RunDeleted:
            raise
        except Exception as error:
            log.error("could not save the final checkpoint", exc_info=error)


class AsyncTrainer(Trainer):
    """Actors collect transitions while the learner updates; it waits only where the replay ratio
    asks for more samples."""

    def ingest(self, *, wait: bool) -> None:
        self._take(WAIT_S if wait else 0.0)


class SyncTrainer(Trainer):
    """Each round steps every actor once, always with the newest weights, then makes the updates
    that the replay ratio allows (one where it is null)."""

    _round_is_new = False

    def ingest(self, *, wait: bool) -> None:
        if wait:
            self.post_step.sync(warm_up=not self._warm)
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
