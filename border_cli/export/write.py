"""Writes the folder of an exported policy."""

from __future__ import annotations

from border_cli.agent.policies import NetworkPolicy
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.interfaces import Agent, Policy
from border_cli.errors import ConfigError
from border_cli.export.form import PolicyForm
from border_cli.nn.numpy_network import TWINS


def form_of(agent: Agent, policy: Policy, name: str) -> PolicyForm:
    """What `policy.json` says of the policy of an agent, which messages call by this name.

    Raises ConfigError where its greedy action is none that `policy.json` can describe.
    """
    greedy = policy.greedy_form if isinstance(policy, NetworkPolicy) else None
    if not isinstance(agent, TorchAgent) or not isinstance(policy, NetworkPolicy) or greedy is None:
        raise ConfigError(
            f"agent={name} cannot be exported: its policy, {type(policy).__name__}, does not say "
            "how its greedy action follows from a network (greedy_form of a NetworkPolicy)"
        )
    twin = next((each for each, kind in TWINS.items() if type(policy.network) is kind), None)
    if twin is None:
        raise ConfigError(
            f"agent={name} cannot be exported: its acting network is a "
            f"{type(policy.network).__name__}; known: "
            f"{', '.join(each.__name__ for each in TWINS.values())}"
        )
    if agent.spec.raw is None:
        raise ConfigError(
            f"env.id={agent.spec.id} cannot be exported: it does not tell its spaces as Gymnasium "
            "has them (EnvSpec.raw)"
        )
    return PolicyForm(
        agent=name,
        opt_steps=agent.opt_steps,
        spec=agent.spec,
        architecture=agent.architecture,
        twin=twin,
        twin_form=policy.network.form,
        greedy=greedy,
    )
