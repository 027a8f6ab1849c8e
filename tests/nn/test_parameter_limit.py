"""Agents that are too large are refused during construction, before memory is allocated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from border_cli.config.compose import compose
from border_cli.launch.build import build_agent, env_factory
from border_cli.launch.effective import effective_settings
from border_cli.nn.parameter_limit import PARAMETER_NBYTES, count_modules, parameters_within
from border_cli.system.machine import resident_bytes
from tests.support.case_sampling import sampled

MIB = 2**20
AGENTS = (
    ("env=cartpole", "agent=dqn"),
    ("env=cartpole", "agent=dqn", "agent.backend=torch"),
    ("env=cartpole", "agent=dqn", "agent.backend=numpy", "agent.dueling=true"),
    ("env=cartpole", "agent=ppo", "agent.backend=numpy"),
    ("env=cartpole", "agent=dqn", "agent.noisy=true", "agent.dueling=true", "agent.num_atoms=51"),
    ("env=cartpole", "agent=iqn"),
    ("env=cartpole", "agent=qrdqn"),
    ("env=pendulum", "agent=sac", "agent.num_critics=3", "agent.layer_norm=true"),
    ("env=pendulum", "agent=td3", "agent.normalize_obs=true"),
    ("env=pendulum", "agent=tqc"),
)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("typed", sampled([*AGENTS], every=3), ids=" ".join)
def test_an_agent_that_is_too_large_is_refused_before_it_takes_memory(
    typed: tuple[str, ...],
) -> None:
    effective = effective_settings(compose(*typed, "agent.hidden=[8000,8000]"))
    spec = env_factory(effective).spec
    before = resident_bytes()
    refused = pytest.raises(
        MemoryError, match=r"at least \d+,\d{3},\d{3} parameters needs [24]\.\d+ GiB"
    )
    with refused, parameters_within(1024 * MIB):  # enough for 29 million parameters
        build_agent(effective, spec)
    assert resident_bytes() - before < 150 * MIB


class UserNetwork(nn.Module):
    """A user-defined network with a layer that infers its size from its first input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.LazyLinear(3), nn.Linear(3, 2)


def test_a_network_within_the_limit_is_built() -> None:
    with parameters_within(8 * PARAMETER_NBYTES):
        count_modules()
        network = UserNetwork()
    assert network.last(torch.zeros(1, 3)).shape == (1, 2)
    refused = pytest.raises(MemoryError, match="at least 8 parameters")
    with parameters_within(7 * PARAMETER_NBYTES):
        count_modules()
        with refused:
            UserNetwork()
    count_modules()
    UserNetwork()  # no limit outside of the block
