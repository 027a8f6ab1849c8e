"""Parts of a run from its settings."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli import compose
from border_cli.cli.header import actors_line
from border_cli.core.errors import ConfigError
from border_cli.core.interfaces import Env
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.threads import available_cores
from border_cli.env.gym_env import GymEnv
from border_cli.env.vector import GymVectorEnv
from border_cli.launch.build import build_agent, env_factory, hyperparameters, torch_threads

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
        (("agent=cql", "env=pendulum", "~tuned", "agent.hidden=[64,64]"), available_cores()),
        (("agent=cql", "env=pendulum"), 1),
    ],
)
def test_what_is_bound_by_arithmetic_gets_the_cores_that_are_spare(
    overrides: tuple[str, ...], threads: int
) -> None:
    config = compose(*overrides)
    assert torch_threads(config, env_factory(config).spec) == threads


@pytest.mark.parametrize(("network", "shared"), [("auto", True), ("mlp", False)])
def test_convolutions_are_bound_by_arithmetic_whoever_chose_them(
    network: str, shared: bool
) -> None:
    """A single row suffices."""
    config = compose(*SMALL, f"agent.network={network}", "agent.batch_size=1")
    found = torch_threads(config, with_image())
    assert found == (available_cores() if shared else 1)


@pytest.mark.parametrize(("rows", "shared"), [(32, False), (128, True)])
def test_of_the_minatar_network_the_dense_layer_says_so(rows: int, shared: bool) -> None:
    """16 * 8 * 8 inputs and 128 units: 4 million products of 32 rows, 17 million of 128."""
    config = compose(*SMALL, "agent.hidden=[128]", f"agent.batch_size={rows}")
    found = torch_threads(config, with_image(side=10))
    assert found == (available_cores() if shared else 1)


def with_image(side: int = 36) -> EnvSpec:
    shape = (side, side, 3)
    low, high = np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8)
    image = BoxSpace(shape=shape, dtype="uint8", low=low, high=high)
    return EnvSpec(id="Seen-v0", observation=image, action=DiscreteSpace(2), max_episode_steps=None)


def test_an_agent_is_built_with_the_threads_that_are_in_effect() -> None:
    config = compose(*LARGE)
    agent = build_agent(config, env_factory(config).spec)
    assert agent.num_threads == available_cores()


@pytest.mark.parametrize(
    ("overrides", "env"),
    [
        (("trainer=sync",), GymEnv),
        (("actor_manager=serial",), GymEnv),
        (("actor_manager=thread",), GymVectorEnv),
        (("actor_manager=process",), GymVectorEnv),
        (("actor_manager=thread", "env.vectorization=sync"), GymEnv),
    ],
)
def test_environments_are_stepped_one_by_one_where_runs_are_bit_reproducible(
    overrides: tuple[str, ...], env: type[Env]
) -> None:
    config = compose(*SMALL, "env.num_envs=2", *overrides)
    made = env_factory(config).make(training=True)
    assert type(made) is env
    made.close()
    said = "2 env" in actors_line(config) and "env.vectorization=sync" in actors_line(config)
    assert said == (overrides[0] in ("trainer=sync", "actor_manager=serial"))


@pytest.mark.parametrize("agent", ["bc", "random"])
def test_prioritized_replay_is_refused_for_an_agent_without_errors(agent: str) -> None:
    assert compose("agent=iql", "env=cartpole", "replay_buffer=prioritized")
    match = rf"the agent \({agent}\) has no TD errors to prioritize transitions by"
    with pytest.raises(ConfigError, match=match):
        compose(f"agent={agent}", "env=cartpole", "replay_buffer=prioritized")


def test_settings_that_compare_runs_are_flat_and_named_as_they_are_typed() -> None:
    found = hyperparameters(compose(*SMALL, "seed=7", "agent.hidden=[8,4]", "run_dir=x"))
    assert (found["agent"], found["agent.hidden"], found["seed"]) == ("dqn", "[8, 4]", 7)
    assert (found["env.id"], found["env.max_episode_steps"]) == ("CartPole-v1", "null")
    assert found["device"] == "auto"
    assert {name for name in found if name.startswith("step_processor")} == {
        "step_processor",
        "step_processor.n_steps",
    }
    groups = {name.partition(".")[0] for name in found}
    assert groups.isdisjoint({"run_dir", "name", "recorder", "checkpoint", "quiet"})
    assert all(isinstance(each, bool | int | float | str) for each in found.values())
