"""What `policy.json` says of a policy: all from an observation, as the environment gives it, to the
greedy action as it takes it, apart from the weights.

Nothing here, and nothing that it imports, needs torch, Gymnasium or Hydra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from border_cli.agent.greedy_form import GreedyForm
from border_cli.core.spaces import EnvSpec, without_mask
from border_cli.nn.architecture import Architecture
from border_cli.run.exported import FORMAT, VERSION
from border_cli.run.spec import spec_as_json, spec_from_json
from border_cli.settings.networks import Activation


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyForm:
    """A policy without its weights."""

    agent: str  # as `agent=…` has it
    opt_steps: int
    spec: EnvSpec  # its `raw` spaces are known
    architecture: Architecture
    twin: str  # the class of `nn.numpy_network.TWINS` that computes its dense layers
    twin_form: Mapping[str, Any] = field(default_factory=dict)  # that class's own arguments
    greedy: GreedyForm

    def as_json(self) -> dict[str, Any]:
        """Its entries of `policy.json`."""
        network = self.architecture
        return {
            "format": FORMAT,
            "version": VERSION,
            "agent": self.agent,
            "opt_steps": self.opt_steps,
            "env": spec_as_json(self.spec),
            "network": {
                "kind": network.kind,
                "hidden": list(network.hidden),
                "activation": str(network.activation),
                "layer_norm": network.layer_norm,
                "twin": self.twin,
                "twin_form": dict(self.twin_form),
            },
            "greedy": asdict(self.greedy),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PolicyForm:
        """What `as_json` gave; raises LookupError, TypeError or ValueError for anything else."""
        spec, network, greedy = (content[each] for each in ("env", "network", "greedy"))
        spec, atoms = spec_from_json(spec), greedy["atoms"]
        return cls(
            agent=str(content["agent"]),
            opt_steps=int(content["opt_steps"]),
            spec=spec,
            architecture=Architecture(
                observation=without_mask(spec.observation),
                kind=str(network["kind"]),
                hidden=tuple(map(int, network["hidden"])),
                activation=Activation(network["activation"]),
                layer_norm=bool(network["layer_norm"]),
            ),
            twin=str(network["twin"]),
            twin_form=dict(network["twin_form"]),
            greedy=GreedyForm(str(greedy["kind"]), None if atoms is None else (*atoms,)),
        )
