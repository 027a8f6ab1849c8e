"""Components chosen by agent=rainbow and agent=discrete_cql, and how they are overridden."""

from __future__ import annotations

import pytest

from border_cli.agent.config import DqnConfig, Exploration
from border_cli.config.compose import compose
from border_cli.errors import ConfigError
from border_cli.replay_buffer.config import DatasetConfig, PrioritizedConfig, UniformConfig


def test_rainbow_is_dqn_with_all_of_its_parts_and_prioritized_replay() -> None:
    config = compose("agent=rainbow", "env=acrobot", "~tuned")
    agent = config.agent
    assert isinstance(agent, DqnConfig)
    forms = (agent.double, agent.dueling, agent.noisy, agent.categorical)
    assert all(forms)
    assert agent.num_atoms == 51
    assert agent.exploration == Exploration.greedy
    assert isinstance(config.replay_buffer, PrioritizedConfig)


def test_the_command_line_wins_over_the_buffer_that_rainbow_chooses() -> None:
    config = compose("agent=rainbow", "env=acrobot", "replay_buffer=uniform")
    assert isinstance(config.replay_buffer, UniformConfig)


def test_learning_from_a_data_set_wins_over_the_buffer_that_rainbow_chooses() -> None:
    words = ("agent=rainbow", "env=cartpole", "trainer=offline", "replay_buffer.dataset=my/a-v0")
    config = compose(*words)
    assert isinstance(config.replay_buffer, DatasetConfig)


def test_rainbow_without_noise_says_how_it_may_explore() -> None:
    with pytest.raises(ConfigError, match=r"agent\.exploration .*epsilon_greedy, softmax"):
        compose("agent=rainbow", "env=mountaincar", "agent.noisy=false")
    agent = compose(
        "agent=rainbow", "env=mountaincar", "agent.noisy=false", "agent.exploration=epsilon_greedy"
    ).agent
    assert isinstance(agent, DqnConfig)
    assert agent.plain is False


def test_discrete_cql_is_dqn_that_is_conservative() -> None:
    agent = compose("agent=discrete_cql", "env=cartpole").agent
    assert isinstance(agent, DqnConfig)
    assert agent.conservative_weight > 0
