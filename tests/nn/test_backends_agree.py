"""Updates in numpy and in torch: equal initial weights, and equal results within 1e-5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from border_cli.agent.config import DqnConfig, Loss, QrdqnConfig, ValueConfig
from border_cli.agent.learning_agent import LearningAgent
from border_cli.agent.numpy_backend import NumpyBackend
from border_cli.agent.ppo import Ppo
from border_cli.agent.ppo_config import PpoConfig
from border_cli.agent.torch_backend import TorchBackend
from border_cli.core.returns import Moments
from border_cli.core.spaces import (
    ACTION_MASK,
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
)
from border_cli.core.types import EPISODE, Array, Batch, Transitions, Update, map_array
from border_cli.registry import AGENTS, register_builtin
from border_cli.settings.networks import Activation, BackendName
from tests.support.spaces import box, reals

ROWS, SIZE, CLOSE = 40, 4, 1e-5
BACKENDS = {BackendName.numpy: NumpyBackend, BackendName.torch: TorchBackend}


def masked(choices: int) -> DictSpace:
    return DictSpace({"seen": reals(SIZE), ACTION_MASK: box((choices,), "uint8")}, masked=True)


def spec_of(action: LeafSpace, *, mask: int = 0) -> EnvSpec:
    """Builds a spec whose observations have a mask of this size, or none."""
    observation = masked(mask) if mask else reals(SIZE)
    return EnvSpec(id="fake", observation=observation, action=action, max_episode_steps=None)


@pytest.fixture
def pair() -> Iterator[Any]:
    """Returns a function that builds an agent with either backend, in the learner's thread."""
    register_builtin()
    with ExitStack() as stack:

        def build(config: Any, spec: EnvSpec) -> list[Any]:
            agents = []
            for backend, kind in BACKENDS.items():
                settings = {**vars(config), "backend": backend}
                agent = AGENTS.build(type(config)(**settings), spec=spec, device="cpu", seed=0)
                assert isinstance(agent.backend, kind)
                stack.enter_context(agent.learner_thread())
                agents.append(agent)
            return agents

        yield build


def assert_close(ours: Any, expected: Any, name: str = "") -> None:
    """Compares nested states of the same structure."""
    if isinstance(expected, Mapping):
        assert list(ours) == list(expected)
        for key, part in expected.items():
            assert_close(ours[key], part, f"{name}.{key}")
    elif isinstance(expected, list):
        for i, (part, reference) in enumerate(zip(ours, expected, strict=True)):
            assert_close(part, reference, f"{name}.{i}")
    elif isinstance(expected, str):
        assert ours == expected, name
    else:
        assert np.shape(ours) == np.shape(expected)
        np.testing.assert_allclose(ours, expected, rtol=CLOSE, atol=CLOSE, err_msg=name)


def assert_equal_weights(agents: list[LearningAgent]) -> None:
    """Compares initial weights bit by bit."""
    ours, expected = (agent.weights() for agent in agents)
    assert list(ours) == list(expected)
    for name, arrays in expected.items():
        assert list(ours[name]) == list(arrays)
        np.testing.assert_equal(ours[name], arrays)


def assert_same_state(agents: list[Any]) -> None:
    """Compares all parts of the state except those that name the backend and its noise."""
    ours, expected = (agent.state_dict() for agent in agents)
    for state in (ours, expected):
        del state["backend"], state["noise"]
    assert_close(ours, expected)


def assert_same_update(ours: Update, expected: Update) -> None:
    assert ours.metrics.keys() == expected.metrics.keys()
    for name, value in expected.metrics.items():
        actual = ours.metrics[name]
        assert float(actual) == pytest.approx(float(value), rel=1e-4, abs=CLOSE), name


def observations(spec: EnvSpec, rng: np.random.Generator, rows: int = ROWS) -> Array:
    seen = rng.normal(size=(rows, SIZE)).astype(np.float32)
    if not isinstance(spec.observation, DictSpace):
        return seen
    (choices,) = spec.observation.spaces[ACTION_MASK].shape  # type: ignore[union-attr]
    mask = rng.integers(0, 2, (rows, choices)).astype(np.uint8)
    mask[:, [0, -1]] = 1  # at least one valid choice per component
    return {"seen": seen, ACTION_MASK: mask}


def batch_of(spec: EnvSpec, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    obs, next_obs = observations(spec, rng), observations(spec, rng)
    action = rng.integers(3, size=ROWS)
    if isinstance(obs, dict):
        action = np.where(obs[ACTION_MASK][np.arange(ROWS), action], action, 0)
    if isinstance(spec.action, MultiDiscreteSpace):
        action = rng.integers(spec.action.nvec, size=(ROWS, len(spec.action.nvec)))
    return Batch(
        obs=obs,
        action=action,
        reward=rng.normal(0, 2, ROWS).astype(np.float32),
        discount=np.where(rng.random(ROWS) < 0.2, 0, 0.99).astype(np.float32),
        next_obs=next_obs,
        weight=rng.random(ROWS).astype(np.float32),
        index=np.arange(ROWS),
    )


def transitions_of(batch: Batch) -> Transitions:
    return Transitions(
        obs=batch.obs,
        action=batch.action,
        reward=batch.reward,
        discount=batch.discount,
        next_obs=batch.next_obs,
    )


THREE = DiscreteSpace(3)
FORMS: dict[str, tuple[type[ValueConfig], dict[str, Any], EnvSpec]] = {
    "plain": (DqnConfig, {}, spec_of(THREE)),
    "without double, mse, copies": (
        DqnConfig,
        {"double": False, "loss": Loss.mse, "tau": 1.0, "target_interval": 2},
        spec_of(THREE),
    ),
    "no hidden layers": (DqnConfig, {"hidden": []}, spec_of(THREE)),
    "dueling": (DqnConfig, {"dueling": True}, spec_of(THREE)),
    "dueling without hidden layers": (DqnConfig, {"dueling": True, "hidden": []}, spec_of(THREE)),
    "layer norm": (DqnConfig, {"layer_norm": True}, spec_of(THREE)),
    "dueling, layer norm, tanh": (
        DqnConfig,
        {"dueling": True, "layer_norm": True, "activation": Activation.tanh},
        spec_of(THREE),
    ),
    "C51": (DqnConfig, {"num_atoms": 11}, spec_of(THREE)),
    "C51, dueling": (DqnConfig, {"num_atoms": 11, "dueling": True}, spec_of(THREE)),
    "CQL": (DqnConfig, {"conservative_weight": 1.0}, spec_of(THREE, mask=3)),
    "CQL, C51": (DqnConfig, {"conservative_weight": 1.0, "num_atoms": 11}, spec_of(THREE)),
    "AdamW": (
        DqnConfig,
        {"optimizer": "AdamW", "optimizer_kwargs": {"weight_decay": 0.1, "betas": [0.8, 0.9]}},
        spec_of(THREE),
    ),
    "no clipping": (DqnConfig, {"max_grad_norm": None}, spec_of(THREE)),
    "much clipping": (DqnConfig, {"max_grad_norm": 1e-3}, spec_of(THREE)),
    "learning rate of a schedule": (
        DqnConfig,
        {"learning_rate": {"initial": 0.1, "final": 0.0, "kind": "linear", "steps": 5}},
        spec_of(THREE),
    ),
    "masks": (DqnConfig, {}, spec_of(THREE, mask=3)),
    "joint actions": (DqnConfig, {}, spec_of(MultiDiscreteSpace((2, 3)))),
    "joint actions, masks": (DqnConfig, {}, spec_of(MultiDiscreteSpace((2, 3)), mask=5)),
    "normalised": (
        DqnConfig,
        {"normalize_reward": True, "normalize_obs": True},
        spec_of(THREE, mask=3),
    ),
    "qrdqn": (QrdqnConfig, {"num_quantiles": 5}, spec_of(THREE)),
    "qrdqn with risk": (
        QrdqnConfig,
        {"num_quantiles": 5, "risk_high": 0.3, "kappa": 0.0, "double": False},
        spec_of(THREE, mask=3),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_five_updates_of_values_are_the_same_in_numpy_and_torch(name: str, pair: Any) -> None:
    kind, settings, spec = FORMS[name]
    config = kind(**{"hidden": [8, 6], "learning_rate": 0.01, **settings})
    agents = pair(config, spec)
    assert_equal_weights(agents)
    before = [array.copy() for array in agents[0].online.state_dict().values()]
    for seed in range(5):
        batch = batch_of(spec, seed)
        for agent in agents:
            agent.observe(transitions_of(batch))
            agent.observe_returns(Moments(seed + 2, 0.3, 5.0))
        ours, expected = (agent.update(batch) for agent in agents)
        assert_same_update(ours, expected)
        np.testing.assert_allclose(ours.td_error(), expected.td_error(), rtol=1e-4, atol=CLOSE)
        assert_same_state(agents)
    for array, initial in zip(agents[0].online.state_dict().values(), before, strict=True):
        assert np.abs(array - initial).max() > 100 * CLOSE


BOX = box((2,), low=[-0.5, -2.0], high=[0.5, 2.0])
SEVERAL = MultiDiscreteSpace((2, 3))
POLICIES: dict[str, tuple[dict[str, Any], EnvSpec]] = {
    "Discrete": ({}, spec_of(THREE)),
    "Discrete, masks": ({"ent_coef": 0.05}, spec_of(THREE, mask=3)),
    "MultiDiscrete": ({"ent_coef": 0.05}, spec_of(SEVERAL)),
    "MultiDiscrete, masks": ({"ent_coef": 0.05}, spec_of(SEVERAL, mask=5)),
    "Box": ({"log_std_init": -0.3}, spec_of(BOX)),
    "Box, entropy": ({"ent_coef": 0.05, "max_grad_norm": None}, spec_of(BOX)),
    "shared network": ({"share_network": True, "ent_coef": 0.05}, spec_of(THREE)),
    "shared network, Box": ({"share_network": True}, spec_of(BOX)),
    "clipped values": ({"value_clip_range": 0.05}, spec_of(THREE)),
    "ReLU, layer norm": ({"activation": Activation.relu, "layer_norm": True}, spec_of(THREE)),
    "weights that are not orthogonal": ({"orthogonal_init": False}, spec_of(THREE)),
    "advantages as they are": ({"normalize_advantage": False}, spec_of(THREE)),
    "no hidden layers": ({"hidden": []}, spec_of(THREE)),
    "normalised": ({"normalize_obs": True, "normalize_reward": True}, spec_of(SEVERAL, mask=5)),
    "AdamW": ({"optimizer": "AdamW", "optimizer_kwargs": {"weight_decay": 0.1}}, spec_of(THREE)),
}


def rollout_of(agent: Ppo, seed: int) -> Transitions:
    """Builds a rollout of four interleaved episodes with actions from the agent's own policy."""
    rng = np.random.default_rng(seed)
    policy = agent.policy_factory(rng)
    policy.load_snapshot(agent.snapshot())
    obs = observations(agent.spec, rng)
    action, extras = policy.explore(obs)
    return Transitions(
        obs=obs,
        action=action,
        reward=rng.normal(size=ROWS).astype(np.float32),
        discount=np.where(rng.random(ROWS) < 0.1, 0, 0.99).astype(np.float32),
        next_obs=observations(agent.spec, rng),
        extras={**extras, EPISODE: np.arange(ROWS) % 4},
    )


def minibatch(rollout: Transitions, columns: Mapping[str, NDArray[Any]], rows: slice) -> Batch:
    extras = {**rollout.extras, **columns}
    size = len(rollout.reward[rows])
    return Batch(
        obs=map_array(lambda array: array[rows], rollout.obs),
        action=rollout.action[rows],
        reward=rollout.reward[rows],
        discount=rollout.discount[rows],
        next_obs=map_array(lambda array: array[rows], rollout.next_obs),
        weight=np.ones(size, np.float32),
        index=np.arange(size),
        extras={name: column[rows] for name, column in extras.items()},
    )


@pytest.mark.parametrize("name", POLICIES)
def test_two_rollouts_of_ppo_are_learned_the_same_in_numpy_and_torch(name: str, pair: Any) -> None:
    settings, spec = POLICIES[name]
    agents = pair(PpoConfig(**{"hidden": [8, 6], "learning_rate": 0.01, **settings}), spec)
    assert_equal_weights(agents)
    before = agents[0].policy.flat.copy()
    for seed in range(2):
        rollout = rollout_of(agents[0], seed)
        for agent in agents:
            agent.observe_returns(Moments(seed + 2, 0.3, 5.0))
        prepared = [dict(agent.prepare(rollout, env_steps=0, done=0.0)) for agent in agents]
        assert_close(*prepared)
        for first in range(0, ROWS, 10):
            updates = [
                agent.update(minibatch(rollout, columns, slice(first, first + 10)))
                for agent, columns in zip(agents, prepared, strict=True)
            ]
            assert_same_update(*updates)
        for agent in agents:
            agent.finish(rollout)
        assert_same_state(agents)
        snapshots = [agent.snapshot().arrays for agent in agents]
        assert_close(*snapshots)
    assert np.abs(agents[0].policy.flat - before).max() > 100 * CLOSE


@pytest.mark.parametrize("reward", [1e30, np.inf])
def test_numbers_that_overflow_give_no_warning_in_either(reward: float, pair: Any) -> None:
    config = DqnConfig(hidden=[8, 6], loss=Loss.mse)
    for agent in pair(config, spec_of(THREE)):
        batch = replace(batch_of(agent.spec, 0), reward=np.full(ROWS, reward, np.float32))
        assert not np.isfinite(float(agent.update(batch).metrics["loss"]))  # warnings are errors


def test_a_target_divergence_ends_both_at_the_same_update(pair: Any) -> None:
    agents = pair(PpoConfig(hidden=[8], learning_rate=1.0, target_kl=1e-3), spec_of(THREE))
    rollout = rollout_of(agents[0], 0)
    for agent in agents:
        columns = agent.prepare(rollout, env_steps=0, done=0.0)
        batch = minibatch(rollout, columns, slice(0, ROWS))
        assert agent.update(batch) is not None
        assert agent.update(batch) is None
        assert agent.opt_steps == 1
    assert_same_state(agents)


@pytest.mark.parametrize("name", ["dueling, layer norm, tanh", "qrdqn"])
def test_a_state_continues_with_the_other_backend(
    name: str, pair: Any, caplog: pytest.LogCaptureFixture
) -> None:
    kind, settings, spec = FORMS[name]
    config = kind(**{"hidden": [8, 6], "learning_rate": 0.01, **settings})
    for ours, other in (pair(config, spec), pair(config, spec)[::-1]):
        for seed in range(3):
            ours.update(batch_of(spec, seed))
        caplog.clear()
        other.load_state_dict(ours.state_dict())
        assert f"agent.backend={ours.backend.name} and continues with" in caplog.text
        assert other.opt_steps == 3
        np.testing.assert_equal(other.weights(), ours.weights())
        for seed in range(3, 5):
            updates = [agent.update(batch_of(spec, seed)) for agent in (ours, other)]
            assert_same_update(*updates)
        assert_same_state([ours, other])
