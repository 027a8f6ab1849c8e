"""The trainer of on-policy agents, which alternates rollouts and epochs of minibatches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from border_cli.core.interfaces import OnPolicyAgent, RolloutStore
from border_cli.core.output import Resumption
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import State, Update
from border_cli.settings.run import TrainerConfig
from border_cli.trainer.online import WAIT_S, OnlineTrainer, SampleBudget
from border_cli.trainer.trainer import LearnerParts


class Rollouts(SampleBudget):
    """A sample budget of one rollout: updates need all of it, and actors wait for its epochs."""

    def __init__(self, size: int) -> None:
        self.size = size  # env steps of a rollout
        self.begun_at = 0  # number of samples at the start of the current rollout

    def needed(self, opt_steps: int) -> float:  # noqa: ARG002 - epochs may be cut short
        return self.begun_at + self.size

    def permitted(self, opt_steps: int) -> float:  # noqa: ARG002
        return self.begun_at + self.size

    def state_dict(self) -> State:
        return {"begun_at": self.begun_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.begun_at = int(state["begun_at"])


class RolloutTrainer(OnlineTrainer):
    """A trainer that collects a rollout, learns from it, and then publishes new weights."""

    waits_as = "collecting"
    pace: Rollouts

    def __init__(
        self,
        config: TrainerConfig,
        *,
        parts: LearnerParts,
        batch_size: int,
        spec: EnvSpec,
    ) -> None:
        """Takes no `schedules`: the agent itself records them, as they are fixed per rollout."""
        agent, buffer = parts.agent, parts.replay_buffer
        assert isinstance(agent, OnPolicyAgent)
        assert isinstance(buffer, RolloutStore)
        self._on_policy, self._rollout = agent, buffer
        super().__init__(
            config,
            parts=parts,
            batch_size=batch_size,
            pace=Rollouts(buffer.size),
            spec=spec,
        )

    def ingest(self, *, wait: bool) -> None:
        if wait:
            self._permit()
            self._receive(WAIT_S, everything=True)

    def _ready(self) -> bool:
        return self._rollout.prepared or super()._ready()

    def _update(self) -> Update | None:
        if not self._rollout.prepared:
            self.clock.timing.enter("update")
            self._rollout.prepare(
                self._on_policy.prepare(
                    self._rollout.rollout(),
                    env_steps=self.counters.env_steps,
                    done=self._fraction_done(),
                )
            )
        update = super()._update()
        if update is None or self._rollout.used_up:
            self._on_policy.finish(self._rollout.rollout())
            self._rollout.drop()
            self.pace.begun_at = self.counters.samples_total
            self._needed = self.pace.needed(self.counters.opt_steps)
            self.publish()
        return update

    def publish(self) -> None:
        """Publishes the newest weights, except during the epochs of a rollout."""
        if not self._rollout.prepared:
            super().publish()

    @property
    def _samples_used(self) -> bool:
        return not len(self._rollout)

    def resume(self, saved: Resumption) -> None:
        """Continues from a checkpoint; if it has no transitions, collects the rollout again."""
        super().resume(saved)
        if saved.load_rows is None:
            self._rollout.drop()
            self.pace.begun_at = self.counters.samples_total
            self._published = None  # the saved weights may be older than the agent's
