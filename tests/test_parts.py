"""Parts of a run from its settings."""

from __future__ import annotations

import pytest

from border_cli import compose
from border_cli.core.errors import ConfigError
from border_cli.core.threads import available_cores
from border_cli.parts import build_agent, env_factory, torch_threads

SMALL = ("agent=dqn", "env=cartpole", "~tuned")
LARGE = (*SMALL, "agent.hidden=[512,512]", "agent.batch_size=256")


@pytest.mark.parametrize(
    ("overrides", "threads"),
    [
        (SMALL, 1),
        (LARGE, available_cores()),
        ((*LARGE, "agent.num_threads=3"), 3),
        ((*LARGE, "trainer.samples_per_opt_step=null"), max(1, available_cores() - 2)),
        (("agent=random", "env=cartpole"), 1),
        (("agent=sac", "env=pendulum", "~tuned"), available_cores()),
        (("agent=iqn", "env=cartpole", "~tuned"), available_cores()),
        ((*SMALL, "agent.network=nature_cnn"), available_cores()),
    ],
)
def test_what_is_bound_by_arithmetic_gets_the_cores_that_are_spare(
    overrides: tuple[str, ...], threads: int
) -> None:
    assert torch_threads(compose(*overrides)) == threads


def test_an_agent_is_built_with_the_threads_that_are_in_effect() -> None:
    config = compose(*LARGE)
    agent = build_agent(config, env_factory(config).spec)
    assert agent.config.num_threads == available_cores()  # type: ignore[attr-defined]


def test_prioritized_replay_is_refused_for_an_agent_without_errors() -> None:
    assert compose("agent=iql", "env=cartpole", "replay_buffer=prioritized")
    with pytest.raises(ConfigError, match=r"the agent \(bc\) has no TD errors to rank rows by"):
        compose("agent=bc", "env=cartpole", "replay_buffer=prioritized")
