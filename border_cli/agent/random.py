"""The baseline that learns nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from border_cli.agent.config import RandomConfig
from border_cli.agent.policies import RandomPolicy
from border_cli.core.interfaces import Agent, PolicyFactory
from border_cli.core.spaces import EnvSpec, has_masks
from border_cli.core.types import Batch, Snapshot, Update
from border_cli.nn.device import resolve_device


class RandomAgent(Agent):
    """Counts its updates and acts at random; everything around it runs as with any agent."""

    observes = False

    def __init__(
        self,
        config: RandomConfig,
        *,
        spec: EnvSpec,
        device: str,
        seed: int,  # noqa: ARG002 - there are no weights; a policy brings its own generator
    ) -> None:
        self.config = config
        self._spec = spec
        self._device = resolve_device(device)  # refuses a missing GPU, as every agent does
        self._opt_steps = 0

    @property
    def opt_steps(self) -> int:
        return self._opt_steps

    @property
    def device_name(self) -> str:
        """Where updates would run."""
        return str(self._device)

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(RandomPolicy, self._spec.action, masked=has_masks(self._spec.observation))

    def update(self, batch: Batch) -> Update:
        del batch
        self._opt_steps += 1
        return Update(metrics={})

    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        return Snapshot(opt_steps=self._opt_steps, env_steps=env_steps, warm_up=warm_up, arrays={})

    def state_dict(self) -> dict[str, Any]:
        return {"opt_steps": self._opt_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._opt_steps = int(state["opt_steps"])
