"""A baseline agent that acts at random and learns nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from border_cli.agent.config import RandomConfig
from border_cli.agent.policies import RandomPolicy
from border_cli.core.interfaces import Agent, PolicyFactory
from border_cli.core.spaces import EnvSpec, has_masks
from border_cli.core.types import Batch, Snapshot, Update


class RandomAgent(Agent):
    """Acts at random and only counts updates, so that the rest of a run works as usual."""

    observes = False

    def __init__(
        self,
        config: RandomConfig,
        *,
        spec: EnvSpec,
        device: str,
        seed: int,  # noqa: ARG002 - no weights to initialise; policies have their own generators
    ) -> None:
        self.config = config
        self._spec = spec
        self._device = "cpu"
        if device not in ("auto", "cpu"):
            from border_cli.nn.device import resolve_device  # imported late: needs torch

            self._device = str(resolve_device(device))  # raises if there is no such device
        self._opt_steps = 0

    @property
    def opt_steps(self) -> int:
        return self._opt_steps

    @property
    def device_name(self) -> str:
        """Device on which updates would run."""
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
