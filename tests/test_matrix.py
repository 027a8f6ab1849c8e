"""Every agent with all the action spaces, replay buffers, step processors and backends it supports.

Hindsight and frame buffers need special environments and are tested elsewhere; presets of agents
are tested in `test_every_agent.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import gymnasium as gym
import pytest

from border_cli import compose, load_policy, train
from border_cli.registry import AGENTS, register_builtin
from tests.support import commands
from tests.support.case_sampling import pairwise, sampled, thinned
from tests.support.commands import record_status, train_status
from tests.support.datasets import datasets_in

UPDATES = 100
ENVS = {
    "Discrete": "CartPole-v1",
    "MultiDiscrete": "border/Levers-v0",
    "MultiBinary": "border/Switches-v0",
    "Box": "Pendulum-v1",
}
BUFFERS = ("uniform", "prioritized", "dataset")
WAYS = ("sync", "serial", "thread", "process", "offline")
FEW = ("process", "offline")  # the ways to test n-step transitions and data sets with
SMALL = (
    *("agent.batch_size=16", "agent.hidden=[16]", "trainer.warmup_period=50", "~tuned"),
    *("replay_buffer.capacity=400", "env.max_episode_steps=10", "evaluator.num_episodes=1"),
    *("actor_manager.n_buffer=10", "trainer.sync_interval=10", "recorder=none", "run_dir=run"),
    *(f"trainer.max_opt_steps={UPDATES}", f"trainer.eval_interval={UPDATES}", "imports=[levers]"),
)

pytestmark = pytest.mark.usefixtures("folder")


def cells() -> list[tuple[str, str, str, int, str]]:
    """Returns all combinations (agent, actions, replay buffer, n_steps, way to run)."""
    register_builtin()
    combinations = []
    for entry in (agent for agent in AGENTS if agent.name != "random"):
        supported = {*entry.config_type.actions}
        if entry.config_type.on_policy:
            combinations += [(entry.name, kind, "rollout", 1, "sync") for kind in ENVS]
            continue
        kinds = [kind for kind in ENVS if kind.replace("Binary", "Discrete") in supported]
        for kind, buffer, steps, way in product(kinds, BUFFERS, (1, 3), WAYS):
            refused = buffer == "prioritized" and not entry.config_type.gives_priorities
            tried = way in FEW or (steps == 1 and buffer != "dataset")
            if tried and not refused and (way != "offline" or buffer == "dataset"):
                combinations.append((entry.name, kind, buffer, steps, way))
    return combinations


CELLS = pairwise(cells())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Records a data set of random actions in every environment."""
    folder = tmp_path_factory.mktemp("matrix")
    with commands.isolated(folder), datasets_in(folder):
        for kind, env in ENVS.items():
            small = [override for override in SMALL if not override.startswith("agent.hidden")]
            random = ("agent=random", f"env.id={env}", *small, "trainer=sync", "quiet=true")
            assert train_status(*random, f"run_dir={kind}") == 0
            request = (f"dataset=test/{kind.lower()}-v0", "episodes=20", "policy=random")
            assert record_status(kind, *request) == 0
    return folder


@pytest.mark.parametrize(
    ("agent", "kind", "buffer", "steps", "way"), sampled(thinned(CELLS, 4), every=4)
)
def test_every_agent_makes_100_updates_with_all_that_it_takes(
    agent: str, kind: str, buffer: str, steps: int, way: str, recorded: Path
) -> None:
    group = "trainer" if way in ("sync", "offline") else "actor_manager"
    chosen = [f"agent={agent}", f"env.id={ENVS[kind]}", f"replay_buffer={buffer}", f"{group}={way}"]
    chosen += ["step_processor=n_step", f"step_processor.n_steps={steps}"]
    if buffer == "dataset":
        chosen.append(f"replay_buffer.dataset=test/{kind.lower()}-v0")
    learning_alone = ("trainer.warmup_period", "trainer.sync", "replay_buffer.cap", "actor_manager")
    unused: tuple[str, ...] = learning_alone if way == "offline" else ()
    if buffer == "rollout":
        unused = ("trainer.warmup_period", "trainer.sync", "replay_buffer.cap")
        chosen.append("replay_buffer.n_steps=16")
    small = [override for override in SMALL if not override.startswith(unused)]
    with datasets_in(recorded):
        assert train(compose(*chosen, *small)).trainer_stats.opt_steps == UPDATES
    env = gym.make(ENVS[kind])
    obs, _ = env.reset(seed=0)
    assert load_policy("run", "latest").act(obs) in env.action_space
