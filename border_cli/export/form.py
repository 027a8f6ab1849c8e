"""What `policy.json` says of a policy: all from an observation, as the environment gives it, to the
greedy action as it takes it, apart from the weights.

Nothing here, and nothing that it imports, needs torch, Gymnasium or Hydra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from border_cli.agent.greedy import GreedyForm
from border_cli.core.spaces import EnvSpec, without_mask
from border_cli.nn.architecture import Architecture
from border_cli.run.spec import spec_as_json, spec_from_json

OF_NETWORK = ("kind", "hidden", "activation", "layer_norm")  # fields of an Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyForm:
    """A policy without its weights."""

    agent: str  # as `agent=…` has it
    opt_steps: int
    spec: EnvSpec  # its `raw` spaces are known
    architecture: Architecture
    twin: str  # the class of `nn.numpy_network.TWINS` that computes its dense layers
    twin_form: Mapping[str, Any]  # that class's own arguments
    greedy: GreedyForm

    def as_json(self) -> dict[str, Any]:
        """Its entries of `policy.json`."""
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
        """What `as_json` gave; raises errors of many kinds for anything else."""
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
