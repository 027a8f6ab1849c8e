"""Takes the state of a whole run for a checkpoint, and brings a run to where one was taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import ActorManager, Agent, ReplayBuffer
from border_cli.core.output import Resumption, RunState
from border_cli.core.types import State
from border_cli.trainer.intake import Intake
from border_cli.trainer.post_step import PostStep


class Checkpointing:
    """Everything that has a state, seen from the learner's thread, which owns it."""

    def __init__(
        self,
        *,
        agent: Agent,
        replay_buffer: ReplayBuffer,
        actors: ActorManager,
        intake: Intake,
        post_step: PostStep,
    ) -> None:
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._actors = actors
        self._intake = intake
        self._post_step = post_step
        self._timing = post_step.timing
        self._pending: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None

    def save(self, own: State) -> None:
        """Hands a checkpoint over while the actors go on; `own` is the trainer's part of it."""
        self._post_step.check()
        with self._timing.section("save"):
            self._post_step.saving.hand_over(self._state(own))
        self._post_step.reporting.flush()

    def save_last(self, own: State) -> None:
        """Stops the actors and hands over what a resume goes on from: before all that only an end
        records.

        Reproducible actors are saved with what they have gathered, as if they had not been
        stopped; of all others everything in flight is pushed first.
        """
        if self._actors.reproducible:
            self._intake.take(self._actors.undelivered())  # of a round that an error cut short
        else:
            self._stop_actors()
        self._post_step.check()
        saving = self._post_step.saving
        with self._timing.section("save"):
            saving.finish(self._post_step.heartbeat)
            if not saving.has(self._post_step.reporting.saved_counters()):
                saving.hand_over(self._state(own))
        self._stop_actors()

    def _stop_actors(self) -> None:
        waiting = self._post_step.heartbeat.waiting("the actors to stop")
        with self._timing.section("other"), waiting:
            arrived = self._actors.stop()
        with self._timing.section("push"):
            self._intake.take(arrived)

    def _state(self, own: State) -> RunState:
        """All of the run as it is between two steps."""
        return RunState(
            counters=self._post_step.reporting.saved_counters(),
            agent=self._agent.state_dict(),
            run={
                **self._post_step.state_dict(),
                "intake": self._intake.state_dict(),
                "actors": self._actors.state_dict(),
                "replay_buffer": self._replay_buffer.state_dict(),
                "trainer": own,
            },
            replay_buffer=self._replay_buffer,
            candidate=self._post_step.evaluating.candidate_state,
        )

    def resume(self, saved: Resumption) -> State:
        """Brings all to where the checkpoint was taken; returns the trainer's own part.

        Raises CheckpointError where it does not fit; then nothing that was recorded is touched.
        """
        run = saved.run
        try:
            own: State = {"refill": int(run["trainer"]["refill"])}
            self._agent.load_state_dict(saved.agent)
            self._replay_buffer.load_state_dict(run["replay_buffer"])
            if saved.load_rows is not None:
                saved.load_rows(self._replay_buffer)
            self._actors.load_state_dict(run["actors"])
            self._intake.load_state_dict(run["intake"])
            self._post_step.load_state_dict(run, saved.counters)  # rewinds what was recorded
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the saved state of the run is incompatible with this version: {error!r}"
            ) from error
        if saved.candidate is not None:
            self._pending = (run["evaluating"], saved.candidate)
        return own

    def begin(self) -> None:
        """Has the actors act, and completes what was under way where the run stopped."""
        if self._pending is not None:
            self._post_step.evaluating.resubmit(*self._pending)
        self._post_step.sync_first()
