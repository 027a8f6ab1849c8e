"""What surrounds an optimisation step, in one fixed order:
evaluate, keep the best, record, sync, save."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.config import TrainerConfig
from border_cli.core.interfaces import ActorManager, Agent, EvaluationRunner, ReplayBuffer
from border_cli.core.output import Checkpoints
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import Clock
from border_cli.core.types import PAST_SCHEDULES, Snapshot, State, Update
from border_cli.trainer.evaluating import Evaluating, Verdict
from border_cli.trainer.recording import Recording
from border_cli.trainer.reporting import Reporting
from border_cli.trainer.saving import Saving
from border_cli.trainer.update_log import check_losses, check_weights

LOOK_EVERY = 10  # updates between two looks for the verdict of an evaluation in the background


class PostStep:
    """Owned by the learner's thread; the only one that evaluates, records and publishes.

    The checkpoint comes last, when all else of the step is done, and is the trainer's to take.
    """

    def __init__(
        self,
        config: TrainerConfig,
        *,
        agent: Agent,
        replay_buffer: ReplayBuffer,
        actors: ActorManager,
        judge: EvaluationRunner,
        checkpoints: Checkpoints,
        saving: Saving,
        recording: Recording,
        clock: Clock,
    ) -> None:
        self.config = config
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._actors = actors
        self._intervals = (
            *(config.eval_interval, config.save_interval),
            *(config.record_interval, config.sync_interval),
        )
        self._next_due = 0.0  # opt steps; no interval ends before
        self._unfinished = False  # what is due at this step is being done
        self._published: Snapshot | None = None  # the newest weights of the actors
        self._begins_trained = False  # then nobody acts at random in the warm-up
        self.heartbeat = Heartbeat("learner")
        self.saving = saving
        self.evaluating = Evaluating(
            judge, agent=agent, checkpoints=checkpoints, threshold=config.stop_at_score
        )
        self.scores = self.evaluating.scores
        self.reporting = Reporting(
            recording, replay_buffer=replay_buffer, actors=actors, saving=saving, clock=clock
        )
        self.timing = self.reporting.timing
        self.counters = self.reporting.counters

    def begin(self) -> None:
        """Starts the clocks."""
        self.reporting.begin()
        self.saving.begin()

    def after_update(self, update: Update, index: NDArray[np.int64]) -> bool:
        """Does what is due at this number of optimisation steps; `index` are the batch's slots.

        Returns whether a checkpoint is due now. Where nothing is due it costs a few comparisons;
        the clock is that of the update's end.
        """
        opt_steps, now_s = self.counters.opt_steps, self.timing.since_s
        if self.reporting.updates.add(opt_steps, update.metrics, index):
            self._check_losses()
        save = False
        if opt_steps >= self._next_due or self.saving.is_urgent(now_s):
            self._do_what_is_due()
            save = self.saving.is_due(opt_steps, now_s)
        self.reporting.show_if_due("learning", now_s)
        return save

    def complete(self) -> None:
        """Does what was due where a run stopped before it was done."""
        if self._unfinished:
            self._do_what_is_due()

    def _do_what_is_due(self) -> None:
        config, opt_steps = self.config, self.counters.opt_steps
        self._unfinished = True
        row: dict[str, float] = {}
        if _due(opt_steps, config.eval_interval):
            self._submit()
        verdict = self._collect() if self.evaluating.pending else None
        if verdict is not None and verdict.step.opt_steps == opt_steps:
            row |= verdict.metrics
        elif verdict is not None:
            self.reporting.write(verdict.metrics, verdict.step)
        if _due(opt_steps, config.record_interval):
            self._check_losses()
            row |= self.reporting.close_window()
        if row:
            self.reporting.write(row)
        if _due(opt_steps, config.sync_interval):
            self.sync()
        ends = [(opt_steps // each + 1) * each for each in self._intervals if each]
        if self.evaluating.pending:
            ends.append(opt_steps + LOOK_EVERY)
        self._next_due = min(ends, default=math.inf)
        self._unfinished = False

    def finish(self) -> None:
        """The end of a run that reached it: evaluates what was not yet.

        A resumed run goes on from before, and supersedes all that is recorded here.
        """
        self.check()
        row: dict[str, float] = self.reporting.close_window()
        if self.evaluating.pending:
            verdict = self._wait()
            self.reporting.write(verdict.metrics, verdict.step)
        final = self.scores.last_opt_steps != self.counters.opt_steps
        if final:
            self._submit()
            row |= self._wait().metrics
        self.reporting.write(row, final=final)

    def interrupted(self) -> None:
        """The end of a run that did not reach it: records the last window."""
        self.reporting.write(self.reporting.close_window())

    def sync(self, *, warm_up: bool = False) -> None:
        """Publishes the newest weights to the actors (Border's SyncModel), where there are any."""
        if self._actors.idle:
            return
        trained = self._begins_trained
        with self.timing.section("sync"):
            self._published = self._agent.snapshot(
                env_steps=PAST_SCHEDULES if trained else self.counters.env_steps,
                warm_up=warm_up and not trained,
            )
            self._actors.publish(self._published)

    def sync_first(self) -> None:
        """Publishes the first weights, or those that were the newest where the run stopped."""
        if self._published is None:
            self.sync(warm_up=True)
        else:
            self._actors.publish(self._published)

    def begin_trained(self) -> None:
        """The agent has the weights of another run: actors use them in the warm-up, too, and
        explore as at the end of their schedules."""
        self._begins_trained = True

    def check(self) -> None:
        """Raises `NotFinite`: what follows from a NaN is not worth keeping."""
        self._check_losses()
        check_weights(self._agent)

    def _check_losses(self) -> None:
        check_losses(self.reporting.updates, self._replay_buffer)

    def _submit(self) -> None:
        self.check()
        in_line = not self.evaluating.judge.in_background
        if in_line:
            self.reporting.show("evaluating")
        with self.timing.section("evaluate"), self.heartbeat.waiting("the evaluation"):
            self.evaluating.submit(self.reporting.step, self.reporting.saved_counters())

    def _collect(self) -> Verdict | None:
        with self.timing.section("evaluate"):
            return self.evaluating.collect()

    def _wait(self) -> Verdict:
        self.reporting.show("evaluating")
        with self.timing.section("evaluate"), self.heartbeat.waiting("the evaluation"):
            return self.evaluating.wait()

    def state_dict(self) -> State:
        """Where evaluations, records and the actors' weights stand."""
        published = self._published
        return {
            **self.reporting.state_dict(),
            "evaluating": self.evaluating.state_dict(),
            "unfinished": self._unfinished,
            "weights": {
                "opt_steps": published.opt_steps,
                "env_steps": published.env_steps,
                "warm_up": published.warm_up,
                "arrays": dict(published.arrays),
            }
            if published is not None
            else None,
        }

    def load_state_dict(self, state: Mapping[str, Any], counters: Mapping[str, float]) -> None:
        """Restores what `state_dict` and `Reporting.saved_counters` gave; `begin` follows."""
        self._unfinished = bool(state["unfinished"])
        if state["weights"] is not None:
            self._published = Snapshot(**state["weights"])
        self.evaluating.load_state_dict(state["evaluating"])
        self.reporting.load_state_dict(state, counters)


def _due(opt_steps: int, interval: int) -> bool:
    return interval > 0 and opt_steps % interval == 0
