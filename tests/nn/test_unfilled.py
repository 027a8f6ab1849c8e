"""Networks that are built to be counted: as large as real ones, and without any memory."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from sampling import sampled
from torch import nn

from border_cli.config.compose import compose
from border_cli.launch.build import build_agent, build_dry_agent, env_factory
from border_cli.launch.effective import effective_settings
from border_cli.launch.needs import agent_part
from border_cli.nn.unfilled import LARGE_NBYTES, Unfilled
from border_cli.system.machine import resident_bytes

MIB = 2**20
LARGE = LARGE_NBYTES // 4  # numbers
AGENTS = (
    ("env=cartpole", "agent=dqn"),
    ("env=cartpole", "agent=dqn", "agent.noisy=true", "agent.dueling=true", "agent.num_atoms=51"),
    ("env=cartpole", "agent=iqn"),
    ("env=cartpole", "agent=qrdqn"),
    ("env=pendulum", "agent=sac", "agent.num_critics=3", "agent.layer_norm=true"),
    ("env=pendulum", "agent=td3", "agent.normalize_obs=true"),
    ("env=pendulum", "agent=tqc"),
)


@pytest.mark.parametrize("typed", sampled([*AGENTS], every=3), ids=" ".join)
def test_an_agent_counts_the_same_without_contents(typed: tuple[str, ...]) -> None:
    effective = effective_settings(compose(*typed, "agent.hidden=[600,600]"))  # above 1 MiB
    spec = env_factory(effective).spec
    counted, built = build_dry_agent(effective, spec), build_agent(effective, spec)
    assert agent_part(effective, counted) == agent_part(effective, built)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("typed", sampled([*AGENTS], every=3), ids=" ".join)
def test_what_is_counted_takes_no_memory(typed: tuple[str, ...]) -> None:
    effective = effective_settings(compose(*typed, "agent.hidden=[8000,8000]"))
    spec = env_factory(effective).spec
    before = resident_bytes()
    agent = build_dry_agent(effective, spec)
    assert agent_part(effective, agent).nbytes > 4 * 8000 * 8000 * 4
    assert resident_bytes() - before < 150 * MIB


def test_layers_of_torch_and_their_copies_have_no_contents() -> None:
    with Unfilled():
        layer = nn.Linear(LARGE, 2)
        nn.init.normal_(layer.weight, std=0.1)
        twin = copy.deepcopy(layer)
        assert twin.weight.shape == layer.weight.shape
        assert twin.weight.data_ptr() != layer.weight.data_ptr()
        assert twin.weight.requires_grad
        assert torch.zeros_like(layer.weight).shape == (2, LARGE)


def test_small_tensors_and_those_outside_of_the_block_are_filled() -> None:
    with Unfilled():
        assert torch.ones(3).tolist() == [1, 1, 1]
    assert torch.ones(LARGE).all()
