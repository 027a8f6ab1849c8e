"""The description of a policy in `policy.json`: everything except the weights that is needed to map
an observation of the environment to the greedy action.

This module and its imports require no torch, Gymnasium or Hydra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from border_cli.agent.greedy import GreedyForm
from border_cli.core.spaces import EnvSpec, without_mask
from border_cli.nn.architecture import Architecture
from border_cli.run.spec import spec_as_json, spec_from_json

OF_NETWORK = ("kind", "hidden", "activation", "layer_norm")  # fields of `Architecture` to save


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyForm:
    """A policy without its weights."""

    agent: str  # name of the agent, as in `agent=…`
    opt_steps: int
    spec: EnvSpec  # `spec.raw` is not None
    architecture: Architecture
    twin: str  # name of the class in `nn.numpy_network.TWINS` that computes the dense layers
    twin_form: Mapping[str, Any]  # additional arguments of that class
    greedy: GreedyForm

    def as_json(self) -> dict[str, Any]:
        """Returns the entries of `policy.json`."""
        return {
            "agent": self.agent,
            "opt_steps": self.opt_steps,
            "env": spec_as_json(self.spec),
            "network": {name: getattr(self.architecture, name) for name in OF_NETWORK},
            "twin": self.twin,
            "twin_form": self.twin_form,
            "greedy": asdict(self.greedy),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PolicyForm:
        """Restores a form from the result of `as_json`; raises various errors for other content."""
        spec = spec_from_json(content["env"])
        return cls(
            agent=content["agent"],
            opt_steps=content["opt_steps"],
            spec=spec,
            architecture=Architecture(without_mask(spec.observation), **content["network"]),
            twin=content["twin"],
            twin_form=content["twin_form"],
            greedy=GreedyForm(**content["greedy"]),
        )
