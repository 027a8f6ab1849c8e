"""Every shipped agent trains, evaluates, saves and resumes on every backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli import compose, load_policy, resume, train
from tests.support import commands
from tests.support.case_sampling import ALL, sampled, weekly
from tests.support.compilers import needs_compiler

AGENTS = sorted(file.stem for file in (Path(__file__).parents[1] / "conf" / "agent").glob("*.yaml"))
DISCRETE = {"dqn", "rainbow", "der", "discrete_cql", "qrdqn", "iqn", "discrete_sac"}
DISCRETE |= {"bc", "awac", "iql"}
CONTINUOUS = {
    *("sac", "redq", "droq", "tqc", "td3", "ddpg"),
    *("bc", "awac", "iql", "cql", "td3_bc"),
}
BOTH = {"random", "ppo", "a2c"}
ON_POLICY = ("ppo", "a2c")
BACKENDS = ("process", "thread", "sync", "serial")

pytestmark = pytest.mark.usefixtures("folder")
SMALL = (
    *("agent.batch_size=16", "agent.hidden=[16,16]"),
    *("trainer.warmup_period=50", "trainer.record_interval=10", "trainer.sync_interval=10"),
    *("replay_buffer.capacity=500", "env.max_episode_steps=50", "evaluator.num_episodes=2"),
    *("actor_manager.n_buffer=10", "recorder=[jsonl]", "~tuned"),
)


def pairs() -> list[tuple[str, str]]:
    listed = {*DISCRETE, *CONTINUOUS, *BOTH}
    assert listed >= set(AGENTS), f"no action spaces are listed for: {set(AGENTS) - listed}"
    agents_with_envs = []
    for agent in AGENTS:
        if agent in DISCRETE | BOTH:
            agents_with_envs.append((agent, "CartPole-v1"))
        if agent in CONTINUOUS | BOTH:
            agents_with_envs.append((agent, "Pendulum-v1"))
    return agents_with_envs


def pairs_on_backends() -> list[tuple[str, str, str]]:
    """Combines every fourth agent, and with EVERY every pair, with one of the backends in turn."""
    tried = pairs() if ALL else [*dict(pairs()).items()][::4]
    return [
        (agent, env, "serial" if agent in ON_POLICY else BACKENDS[number % len(BACKENDS)])
        for number, (agent, env) in enumerate(tried)
    ]


@pytest.mark.parametrize("agent", sampled([*AGENTS], every=8))
def test_agents_say_which_action_spaces_they_take(agent: str) -> None:
    takes = {*compose(f"agent={agent}").agent.actions}
    discrete = agent in DISCRETE | BOTH
    spaces = {"Discrete": discrete, "MultiDiscrete": discrete, "Box": agent in CONTINUOUS | BOTH}
    assert takes == {space for space, taken in spaces.items() if taken}


def settings(agent: str, env: str, backend: str, *more: str, device: str = "cpu") -> list[str]:
    actors = ["trainer=sync"] if backend == "sync" else [f"actor_manager={backend}"]
    small = [word for word in SMALL if agent != "random" or not word.startswith("agent.hidden")]
    if agent in ON_POLICY:
        unused = ("trainer.warmup", "trainer.sync", "replay_buffer.capacity")
        small = [word for word in small if not word.startswith(unused)]
        small += ["replay_buffer.n_steps=16", "actor_manager.num_actors=2"]
        actors = []  # their trainer steps the actors
    chosen = [f"agent={agent}", f"env.id={env}", f"device={device}", "run_dir=run"]
    return [*chosen, *actors, *small, *more]


def train_and_resume(
    agent: str, env: str, backend: str, updates: int, *more: str, device: str = "cpu"
) -> None:
    half = updates // 2
    more += (f"trainer.eval_interval={half}", f"trainer.save_interval={half}")
    more += (f"trainer.max_opt_steps={half}",)
    first = train(compose(*settings(agent, env, backend, *more, device=device)))
    assert first.trainer_stats.evaluations >= 1
    result = resume("run", f"trainer.max_opt_steps={updates}")
    assert result.trainer_stats.opt_steps == updates
    rows = commands.rows_of(Path("run"))
    losses = [row for row in rows if any(name.startswith("train/loss") for name in row)]
    assert agent == "random" or len(losses) == updates // 10
    numbers = [value for row in rows for value in row.values()]
    assert np.isfinite(numbers).all()
    assert_acts_as_saved(Path("run"), env)


def assert_acts_as_saved(run_dir: Path, env: str) -> None:
    """Asserts that the saved model returns an action of the right shape."""
    obs: Any = np.array([0.1, -0.2, 0.3, 0.05] if env == "CartPole-v1" else [0.6, 0.8, 1.0], "f4")
    policy = load_policy(run_dir, "latest")
    action = policy.act(obs)
    assert np.shape(action) == (() if env == "CartPole-v1" else (1,))


def test_an_agent_trains_with_process_actors_and_goes_on():
    train_and_resume("sac", "Pendulum-v1", "process", updates=40)


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "env", "backend"), pairs_on_backends())
def test_every_agent_makes_100_updates_on_backends_of_all_kinds(agent: str, env: str, backend: str):
    train_and_resume(agent, env, backend, updates=100)


@weekly
@pytest.mark.slow
@needs_compiler
def test_a_run_with_a_compiled_update_trains_and_goes_on():
    """agent/test_saved_state.py checks the results of compiled updates for every agent."""
    train_and_resume("dqn", "CartPole-v1", "serial", 40, "agent.compile=true")


@pytest.mark.gpu
@pytest.mark.parametrize(("agent", "env"), pairs())
def test_every_agent_learns_on_a_gpu(agent: str, env: str):
    train_and_resume(agent, env, "thread", 100, device="cuda")


@pytest.mark.gpu
@needs_compiler
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores", "ignore:The CUDA Graph is empty")
@pytest.mark.parametrize(("agent", "env"), pairs())
def test_every_agent_learns_on_a_gpu_with_a_compiled_update(agent: str, env: str):
    if agent != "random":
        train_and_resume(agent, env, "thread", 100, "agent.compile=true", device="cuda")
