"""An agent that asks for a column of its own, as a user's module: `imports=[remembering]`."""

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
from border_cli.nn.tensor_batch import TensorBatch
from border_cli.registry import AGENTS
from border_cli.settings.run import AgentConfig

SUM = "sum"  # column: of the observation that was acted on


@dataclass(kw_only=True)
class RememberingConfig(DqnConfig):
    """DQN that stores a number per step."""


class RememberingPolicy(QPolicy):
    """Gives the sum of what it acts on with each action."""

    def explore(self, obs: Array) -> tuple[NDArray[Any], Mapping[str, NDArray[Any]]]:
        assert isinstance(obs, np.ndarray)
        return self.act(obs, explore=True), {SUM: obs.sum(1)}


class Remembering(Dqn):
    """Finds the number in each batch beside the observation of which it is the sum."""

    batches = 0  # of all agents of this process

    @classmethod
    def extras(cls, config: AgentConfig, spec: EnvSpec) -> Sequence[Column]:
        del config, spec
        return [(SUM, np.dtype(np.float32), ())]

    @property
    def policy_factory(self) -> PolicyFactory:
        made: Any = super().policy_factory
        return partial(RememberingPolicy, *made.args, **made.keywords)

    def learn(self, batch: TensorBatch) -> Update | None:
        assert batch.extras is not None
        assert not isinstance(batch.obs, dict)
        np.testing.assert_allclose(batch.extras[SUM], batch.obs.sum(1, keepdim=True), atol=1e-6)
        Remembering.batches += 1
        return super().learn(batch)


AGENTS.register("remembering", RememberingConfig, "remembering:Remembering")
