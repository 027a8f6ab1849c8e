"""A user's agent with an additional column in the replay buffer: `imports=[remembering]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.agent.policies import QPolicy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Array, Column, Update
from border_cli.nn.batch import TensorBatch
from border_cli.registry import AGENTS
from border_cli.settings.run import AgentConfig

SUM = "sum"  # column with the sum of the observation that was acted on


@dataclass(kw_only=True)
class RememberingConfig(DqnConfig):
    """Settings of a DQN agent that stores an additional number per step."""


class RememberingPolicy(QPolicy):
    """A policy that returns the sum of the observation with each action."""

    def explore(self, obs: Array) -> tuple[NDArray[Any], Mapping[str, NDArray[Any]]]:
        assert isinstance(obs, np.ndarray)
        return self.act(obs, explore=True), {SUM: obs.sum(1)}


class Remembering(Dqn):
    """A DQN agent that checks the column against the observations in every update."""

    batches = 0  # number of updates, of all agents in this process

    @classmethod
    def extras(cls, config: AgentConfig, spec: EnvSpec) -> Sequence[Column]:
        del config, spec
        return [(SUM, np.dtype(np.float32), ())]

    @property
    def policy_factory(self) -> PolicyFactory:
        factory: Any = super().policy_factory
        return partial(RememberingPolicy, *factory.args, **factory.keywords)

    def learn(self, batch: TensorBatch) -> Update | None:
        assert batch.extras is not None
        assert not isinstance(batch.obs, dict)
        np.testing.assert_allclose(batch.extras[SUM], batch.obs.sum(1, keepdim=True), atol=1e-6)
        Remembering.batches += 1
        return super().learn(batch)


AGENTS.register("remembering", RememberingConfig, "remembering:Remembering")
