"""Runs in environments that raise on invalid actions: agents respect the action mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from masked import PLACES, mask_at
from numpy.typing import NDArray

from border_cli import compose, load_policy, resume, train
from border_cli.core.state import load_state
from tests.support.case_sampling import sampled, thinned, weekly
from tests.support.commands import eval_status, train_status

pytestmark = pytest.mark.usefixtures("folder")
VALUE = ("dqn", "discrete_cql", "qrdqn", "iqn")
EPSILON, SOFTMAX = ("agent.epsilon.initial=0.5",), ("agent.exploration=softmax",)
SMALL = (
    *("imports=[masked]", "~tuned", "run_dir=run", "recorder=[jsonl]", "quiet=true"),
    *("trainer.warmup_period=30", "trainer.eval_interval=50", "trainer.sync_interval=10"),
    *("evaluator.num_episodes=2", "actor_manager.n_buffer=5", "replay_buffer.capacity=500"),
)
LEARNER = ("agent.hidden=[8]", "agent.batch_size=8")


AGENTS = [
    *((agent, ()) for agent in ("random", "bc", "awac", "iql", "rainbow", "discrete_sac")),
    *((agent, how) for agent in VALUE for how in (EPSILON, SOFTMAX)),
]


def settings(agent: str, *more: str) -> list[str]:
    learner = () if agent == "random" else LEARNER
    return [f"agent={agent}", "env.id=masked/Strict-v0", *SMALL, *learner, *more]


def trained(agent: str, updates: int, *more: str) -> None:
    train(compose(*settings(agent, f"trainer.max_opt_steps={updates}", *more)))


CASES = [
    (agent, how, backend, by_key)
    for number, (agent, how) in enumerate(AGENTS)
    for backend, by_key in zip(
        ("serial", "thread", "process"), ("true", "false", str(number % 2 > 0).lower()), strict=True
    )
]


@pytest.mark.parametrize(
    ("agent", "how", "backend", "by_key", "updates"),
    [
        *((*case, 40) for case in CASES[::9]),
        *(pytest.param(*case, 500, marks=pytest.mark.slow) for case in thinned(CASES, 16)),
    ],
)
def test_agents_take_valid_actions_only(
    agent: str, how: tuple[str, ...], backend: str, by_key: str, updates: int
) -> None:
    """Runs ten env steps per update."""
    more = (f"actor_manager={backend}", f"+env.kwargs={{by_key: {by_key}}}", *how)
    trained(agent, updates, "trainer.samples_per_opt_step=10", *more)


@pytest.mark.parametrize("agent", ["random", "dqn", "discrete_sac", "iql"])
def test_agents_take_valid_choices_of_several_components_only(agent: str) -> None:
    trained(agent, 40, "env.id=masked/Pairs-v0", "trainer=sync", "env.num_envs=2")


@pytest.mark.parametrize("agent", sampled(["ppo", "a2c"], every=2))
def test_on_policy_agents_learn_the_shortest_way(agent: str) -> None:
    """The shortest path takes five steps; random valid actions take ten on average."""
    settings = (
        *(f"agent={agent}", "env.id=masked/Strict-v0", "imports=[masked]", "run_dir=run"),
        *("agent.hidden=[16]", "agent.batch_size=64", "agent.learning_rate=1e-2"),
        *("replay_buffer.n_steps=16", "trainer.max_opt_steps=300", "recorder=none", "quiet=true"),
    )
    train(compose(*settings))
    policy, env = load_policy("run", "latest"), gym.make("masked/Strict-v0")
    (obs, info), done, steps = env.reset(seed=0), False, 0
    while not done:
        obs, _, terminated, truncated, info = env.step(policy.act(obs, info["action_mask"]))
        done, steps = terminated or truncated, steps + 1
    assert steps == PLACES - 1


@weekly
@pytest.mark.long
@pytest.mark.ray
def test_actors_of_a_cluster_take_valid_actions_only() -> None:
    trained("dqn", 60, "actor_manager=ray")


@pytest.mark.parametrize("by_key", [False, True])
def test_a_saved_run_acts_and_is_evaluated_with_its_masks(by_key: bool) -> None:
    trained("dqn", 40, f"+env.kwargs={{by_key: {str(by_key).lower()}}}", "env.num_envs=2")
    assert eval_status("run", "checkpoint=latest") == 0
    policy = load_policy("run", "latest")
    env = gym.make("masked/Strict-v0", by_key=by_key)
    (obs, info), done = env.reset(seed=0), False
    while not done:
        obs, _, terminated, truncated, info = env.step(policy.act(obs, info.get("action_mask")))
        done = terminated or truncated
    batch = {"observation": np.zeros((4, PLACES), "f4"), "action_mask": np.eye(4, dtype=np.int8)}
    assert policy.act(batch).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_rows_of_several_steps_have_the_masks_of_both_observations(replay: str) -> None:
    trained("dqn", 40, "trainer=sync", "step_processor.n_steps=3", f"replay_buffer={replay}")
    [chunk] = Path("run/checkpoints/replay").glob("*.npy")
    rows = np.load(chunk)
    for name in ("obs", "next_obs"):
        masks = [mask_at(place) for place in rows[f"{name}.observation"].argmax(1)]
        expected = [mask if mask.any() else np.ones_like(mask) for mask in masks]
        np.testing.assert_array_equal(rows[f"{name}.action_mask"], expected)


def online_of(run_dir: str) -> dict[str, NDArray[np.float32]]:
    saved = load_state(Path(run_dir, "checkpoints/latest/agent.npz"))
    weights: dict[str, NDArray[np.float32]] = saved["online"]
    return weights


def test_a_resumed_run_ends_to_the_bit_as_one_that_never_stopped() -> None:
    more = ("trainer=sync", "env.num_envs=2")
    trained("dqn", 80, *more, "run_dir=whole")
    trained("dqn", 40, *more)
    resume("run", "trainer.max_opt_steps=80")
    whole, resumed = (online_of(run_dir) for run_dir in ("whole", "run"))
    np.testing.assert_equal(resumed, whole)


def test_a_repeated_command_goes_on_with_the_masks_that_it_found() -> None:
    command = [*settings("dqn"), "resume=auto"]
    assert train_status(*command, "trainer.max_opt_steps=10") == 0
    assert train_status(*command, "trainer.max_opt_steps=20") == 0
    assert "action_mask: true" in Path("run/.hydra/resolved.yaml").read_text()


def test_without_masks_the_network_is_the_same_and_invalid_actions_are_taken() -> None:
    trained("dqn", 40, "env.id=masked/Lenient-v0", "trainer=sync")
    trained("dqn", 40, "env.id=masked/Lenient-v0", "env.action_mask=false", "run_dir=without")
    masked, unmasked = (online_of(run_dir) for run_dir in ("run", "without"))
    assert [part.shape for part in masked.values()] == [part.shape for part in unmasked.values()]


def test_evaluations_with_other_masks_are_refused(capsys: Any) -> None:
    status = train_status(
        *settings("dqn"), "+evaluator.env.action_mask=false", "env.id=masked/Lenient-v0"
    )
    assert status == 2
    assert "evaluator.env: the training environment has action masks" in capsys.readouterr().err
