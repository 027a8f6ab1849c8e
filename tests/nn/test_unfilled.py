"""Networks that are built to be counted: as large as real ones, and without any memory."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from sampling import sampled
from torch import nn

from border_cli.config.compose import compose
from border_cli.core.interfaces import Agent
from border_cli.core.machine import Room, resident_bytes
from border_cli.launch.build import build_agent, build_dry_agent, env_factory
from border_cli.launch.effective import effective_settings
from border_cli.launch.needs import agent_sizes
from border_cli.nn.unfilled import LARGE_NBYTES, MOST_FILLED_NBYTES, Unfilled

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


def room(nbytes: int) -> Room:
    return Room("a limit", nbytes)


@pytest.mark.parametrize("typed", sampled([*AGENTS], every=3), ids=" ".join)
def test_an_agent_counts_the_same_without_contents(typed: tuple[str, ...]) -> None:
    config = compose(*typed, "agent.hidden=[2100,2100]")  # 17 MiB: above what is filled
    spec = env_factory(effective_settings(config)).spec
    assert agent_sizes(build_dry_agent(effective_settings(config), spec)) == agent_sizes(
        build_agent(effective_settings(config), spec)
    )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("agent", ["env=cartpole agent=dqn", "env=pendulum agent=sac"])
def test_what_is_counted_takes_no_memory(agent: str) -> None:
    config = compose(*agent.split(), "agent.hidden=[8000,8000]")
    spec = env_factory(effective_settings(config)).spec
    before = resident_bytes()
    counted: Agent = build_dry_agent(effective_settings(config), spec)
    sizes = agent_sizes(counted)
    assert sizes.state > 4 * 8000 * 8000 * 4
    assert resident_bytes() - before < 150 * MIB


def test_small_networks_are_as_they_would_be() -> None:
    config = compose("env=pendulum", "agent=sac")
    spec = env_factory(effective_settings(config)).spec
    with Unfilled():
        counted = build_agent(effective_settings(config), spec).snapshot().arrays
    built = build_agent(effective_settings(config), spec).snapshot().arrays
    assert counted.keys() == built.keys()
    assert all((counted[name] == built[name]).all() for name in built)


def test_more_than_there_is_room_for_is_refused_before_it_is_allocated() -> None:
    with Unfilled(lambda: room(2**30)):
        kept = torch.zeros(2**27)  # 512 MiB
        with pytest.raises(
            MemoryError, match=r"at least 1\.50 GiB are needed and 1\.00 GiB are av"
        ):
            torch.rand(2**28)
        with pytest.raises(MemoryError, match=r"at least 74,506\.\d GiB are needed"):
            torch.empty(10**6, 10**6, 10, dtype=torch.float64)
    assert len(kept) == 2**27


def test_what_was_dropped_makes_room() -> None:
    with Unfilled(lambda: room(2**30)):
        for _ in range(10):
            assert torch.empty(2**27).numel() == 2**27


def test_many_small_tensors_count_like_one_large_one() -> None:
    most = MOST_FILLED_NBYTES // (4 * 2**20)
    with Unfilled(lambda: room(MOST_FILLED_NBYTES)):
        kept = [torch.zeros(2**20) for _ in range(most)]
        with pytest.raises(MemoryError, match="are needed"):
            torch.zeros(2**20)
    assert len(kept) == most


def test_layers_of_torch_and_their_copies_are_counted_too() -> None:
    with Unfilled():
        layer = nn.Linear(LARGE, 2)
        nn.init.orthogonal_(layer.weight)
        nn.init.normal_(layer.weight, std=0.1)
        twin = copy.deepcopy(layer)
        assert twin.weight.shape == layer.weight.shape
        assert twin.weight.data_ptr() != layer.weight.data_ptr()
        assert twin.weight.requires_grad
        assert torch.zeros_like(layer.weight).shape == (2, LARGE)
        assert torch.ones(3).tolist() == [1, 1, 1]


def test_outside_of_the_block_nothing_is_left_out() -> None:
    with Unfilled():
        pass
    assert torch.ones(LARGE).all()
