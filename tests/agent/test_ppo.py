"""PPO: losses, densities, and updates on a rollout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
import user_networks
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from border_cli.agent.on_policy_policies import LOG_PROB, UNCLIPPED
from border_cli.agent.ppo import Ppo, normalize_advantages, policy_loss, value_loss
from border_cli.agent.ppo_config import OnPolicyExploration, PpoConfig
from border_cli.core.interfaces import Policy
from border_cli.core.spaces import (
    ACTION_MASK,
    BoxSpace,
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
    Space,
)
from border_cli.core.state import load_state, save_state
from border_cli.core.types import EPISODE, Array, Batch, Transitions
from border_cli.errors import ConfigError
from border_cli.settings.networks import Activation
from tests.support.libraries import both_backends, both_libraries
from tests.support.saved_states import same

ROWS = 40
RANGE = np.array([0.8, 1.2])
REALS = BoxSpace((3,), "float32", np.full(3, -np.inf), np.full(3, np.inf))


def spec_of(action: LeafSpace, observation: Space = REALS) -> EnvSpec:
    return EnvSpec(id="fake", observation=observation, action=action, max_episode_steps=None)


def masked(size: int) -> DictSpace:
    low, high = np.zeros(size, np.uint8), np.ones(size, np.uint8)
    mask = BoxSpace((size,), "uint8", low, high)
    return DictSpace({"seen": REALS, ACTION_MASK: mask}, masked=True)


DISCRETE = DiscreteSpace(4)
SEVERAL = MultiDiscreteSpace((2, 3))
HALF_OPEN = np.array([0.5, np.inf], np.float32)
BOX = BoxSpace((2,), "float32", np.array([-0.5, -2.0], np.float32), HALF_OPEN)
SPECS = {
    "Discrete": spec_of(DISCRETE),
    "Discrete, masked": spec_of(DISCRETE, masked(4)),
    "MultiDiscrete": spec_of(SEVERAL),
    "MultiDiscrete, masked": spec_of(SEVERAL, masked(5)),
    "Box": spec_of(BOX),
    "Box, gSDE": spec_of(BOX),
}


def agent_of(name: str = "Discrete", **settings: Any) -> Ppo:
    settings = {"normalize_obs": False, "normalize_reward": False, **settings}
    if name == "Box, gSDE":
        settings |= {"exploration": OnPolicyExploration.gsde}
    config = PpoConfig(hidden=[8, 8], batch_size=10, **settings)
    return Ppo(config, spec=SPECS[name], device="cpu", seed=3)


def policy_of(agent: Ppo, seed: int = 0) -> Policy:
    policy = agent.policy_factory(np.random.default_rng(seed))
    policy.load_snapshot(agent.snapshot())
    return policy


def observations(spec: EnvSpec, rng: np.random.Generator) -> Array:
    values = rng.normal(size=(ROWS, 3)).astype(np.float32)
    if not isinstance(spec.observation, DictSpace):
        return values
    size = spec.observation.spaces[ACTION_MASK]
    assert isinstance(size, BoxSpace)
    mask = rng.integers(0, 2, (ROWS, *size.shape)).astype(np.uint8)
    mask[:, [0, -1]] = 1  # at least one valid choice per component
    if isinstance(spec.action, MultiDiscreteSpace):
        mask[:, 1] = 0
    return {"seen": values, ACTION_MASK: mask}


def rollout_of(agent: Ppo, seed: int = 0) -> Transitions:
    """Builds a rollout of four interleaved episodes with actions from the agent's own policy."""
    rng = np.random.default_rng(seed)
    obs = observations(agent.spec, rng)
    action, extras = policy_of(agent, seed).explore(obs)
    ends = rng.random(ROWS) < 0.1
    return Transitions(
        obs=obs,
        action=action,
        reward=rng.normal(size=ROWS).astype(np.float32),
        discount=np.where(ends, 0, 0.99).astype(np.float32),
        next_obs=observations(agent.spec, rng),
        extras={**extras, EPISODE: np.arange(ROWS) % 4},
    )


def batch_of(rollout: Transitions, columns: dict[str, NDArray[Any]], rows: slice) -> Batch:
    def part(array: Array) -> Any:
        return {k: v[rows] for k, v in array.items()} if isinstance(array, dict) else array[rows]

    size = len(rollout.reward[rows])
    return Batch(
        obs=part(rollout.obs),
        action=rollout.action[rows],
        reward=rollout.reward[rows],
        discount=rollout.discount[rows],
        next_obs=part(rollout.next_obs),
        weight=np.ones(size, np.float32),
        index=np.arange(size),
        extras={name: column[rows] for name, column in (dict(rollout.extras) | columns).items()},
    )


@both_libraries
def test_the_loss_of_the_policy_is_that_of_the_paper(wrap: Any) -> None:
    rng = np.random.default_rng(0)
    new, old, advantage = rng.normal(size=(3, 50))
    ratio = np.exp(new - old)
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
    result = policy_loss(*map(wrap, (new, old, advantage)), *wrap(RANGE))
    assert float(result.loss) == pytest.approx(-surrogate.mean(), rel=1e-12)
    assert float(result.approx_kl) == pytest.approx((ratio - 1 - np.log(ratio)).mean(), rel=1e-10)
    assert float(result.clip_fraction) == pytest.approx((abs(ratio - 1) > 0.2).mean())


@both_libraries
def test_a_ratio_that_gains_nothing_has_no_gradient(wrap: Any) -> None:
    """The gradient is 0 only if the ratio has left the range in the direction of the advantage."""
    new, advantage = np.array([[0.5, -0.5, 0.5, -0.5], [1.0, -1.0, -1.0, 1.0]])
    grad = policy_loss(wrap(new), wrap(np.zeros(4)), wrap(advantage), *wrap(RANGE)).grad
    assert (grad != 0).tolist() == [False, False, True, True]


@both_libraries
def test_derivatives_are_those_of_autograd(wrap: Any) -> None:
    first, old, third = np.random.default_rng(2).normal(size=(3, 50))
    for loss, rest in (
        (policy_loss, [RANGE[0], RANGE[1]]),
        (value_loss, [None]),
        (value_loss, [0.3]),
    ):
        tensors = list(map(torch.from_numpy, (first, old, third)))
        tensors[0].requires_grad_()
        (expected,) = torch.autograd.grad(loss(*tensors, *rest).loss, tensors[0])
        result = loss(*map(wrap, (first, old, third)), *rest)
        np.testing.assert_allclose(result.grad, expected, rtol=1e-10)


@both_libraries
@pytest.mark.parametrize("clip_range", [None, 0.3])
def test_the_loss_of_the_values_takes_the_larger_error(wrap: Any, clip_range: float | None) -> None:
    rng = np.random.default_rng(1)
    value, old, target = rng.normal(size=(3, 50))
    error = (value - target) ** 2
    if clip_range is not None:
        near = old + np.clip(value - old, -clip_range, clip_range)
        error = np.maximum(error, (near - target) ** 2)
    loss = value_loss(*map(wrap, (value, old, target)), clip_range).loss
    assert float(loss) == pytest.approx(error.mean(), rel=1e-12)


@both_libraries
def test_advantages_of_a_minibatch_are_normalised_but_a_single_one(wrap: Any) -> None:
    advantage = wrap(np.array([1.0, 2.0, 6.0]))
    expected = (np.array([1, 2, 6]) - 3) / (np.std([1, 2, 6], ddof=1) + 1e-8)
    np.testing.assert_allclose(normalize_advantages(advantage), expected, rtol=1e-12)
    assert normalize_advantages(advantage[:1]).tolist() == [1.0]


@both_backends
@pytest.mark.parametrize("name", SPECS)
def test_actors_and_learner_agree_on_log_probabilities(name: str, backend: str) -> None:
    shared = name == "MultiDiscrete"
    agent = agent_of(name, share_network=shared, log_std_init=-0.3, backend=backend)
    rollout = rollout_of(agent)
    columns = agent.prepare(rollout, env_steps=0, done=0.0)
    np.testing.assert_allclose(columns["old_log_prob"], rollout.extras[LOG_PROB], atol=1e-5)
    update = agent.update(batch_of(rollout, dict(columns), slice(0, 10)))
    assert update is not None
    assert float(update.metrics["log_prob_gap"]) < 1e-5
    assert float(update.metrics["approx_kl"]) == pytest.approx(0, abs=1e-6)  # all ratios are 1
    assert float(update.metrics["clip_fraction"]) == 0


class Normalised(nn.Sequential):
    """A user's network whose outputs differ between `train()` and `eval()`."""

    def __init__(self, space: Any) -> None:
        super().__init__(nn.Linear(space.shape[0], 8), nn.BatchNorm1d(8), nn.Dropout(0.5))


def test_the_learner_evaluates_a_rollout_with_a_users_network_as_actors_do() -> None:
    with user_networks.registered(normalised=Normalised):
        agent = agent_of(network="normalised")
        rollout = rollout_of(agent)
        rollout.extras[EPISODE][:] = 0  # one episode: the value of a single next observation
        columns = dict(agent.prepare(rollout, env_steps=0, done=0.0))
        np.testing.assert_allclose(columns["old_log_prob"], rollout.extras[LOG_PROB], atol=1e-5)
        before = agent.state_dict()["policy"]
        agent.update(batch_of(rollout, columns, slice(0, 10)))
        after = agent.state_dict()["policy"]
        name = "torso.network.1.running_mean"  # which only `train()` changes
        assert (after[name] != before[name]).any()


@both_backends
@pytest.mark.parametrize("name", ["Discrete, masked", "MultiDiscrete, masked"])
def test_an_impossible_choice_is_never_taken_and_has_no_part_in_the_entropy(
    name: str, backend: str
) -> None:
    agent = agent_of(name, ent_coef=0.1, backend=backend)
    for seed in range(5):
        rollout = rollout_of(agent, seed)
        assert isinstance(rollout.obs, dict)
        mask = rollout.obs[ACTION_MASK].astype(bool)
        greedy = policy_of(agent).act(rollout.obs, explore=False)
        for action in (rollout.action, greedy):
            columns = action if action.ndim == 1 else action + np.array([0, 2])
            rows = np.arange(ROWS) if action.ndim == 1 else np.arange(ROWS)[:, None]
            assert mask[rows, columns].all()
    features, valid = agent._split_obs(rollout.obs)
    outputs = agent.policy.predict(features)
    entropy = agent.density(outputs, None, valid, agent._unclipped_actions(rollout)).entropy
    most = np.log(mask.sum(1)) if rollout.action.ndim == 1 else np.log(mask[:, 2:].sum(1))
    assert (np.asarray(entropy) <= most + 1e-5).all()
    columns = dict(agent.prepare(rollout, env_steps=0, done=0.0))
    assert agent.update(batch_of(rollout, columns, slice(0, ROWS))) is not None
    assert agent.first_not_finite() is None


def test_an_actor_clips_what_it_sends_and_the_learner_sees_what_was_drawn() -> None:
    agent = agent_of("Box", log_std_init=1.0)
    rollout = rollout_of(agent)
    unclipped = rollout.extras[UNCLIPPED]
    np.testing.assert_array_equal(rollout.action, np.clip(unclipped, BOX.low, BOX.high))
    assert (rollout.action != unclipped).any()
    assert (unclipped[:, 1] > 2).any()  # this dimension has no upper bound


def constant_obs(rows: int = 3) -> NDArray[np.float32]:
    return np.tile(np.array([0.3, -1.0, 2.0], np.float32), (rows, 1))


def unclipped_action(policy: Policy) -> NDArray[np.float32]:
    action: NDArray[np.float32] = policy.explore(constant_obs())[1][UNCLIPPED]
    return action


def test_gsde_repeats_actions_until_its_random_functions_are_sampled_again() -> None:
    agent = agent_of("Box, gSDE", sample_freq=3)
    policy = policy_of(agent)
    actions = [unclipped_action(policy) for _ in range(7)]
    assert all((actions[i] == actions[3 * (i // 3)]).all() for i in range(7))
    assert (actions[0] != actions[3]).all()
    assert (actions[3] != actions[6]).all()
    assert (actions[0][0] != actions[0][1]).all()  # each environment has its own function
    greedy = policy.act(constant_obs(), explore=False)
    assert (greedy == greedy[0]).all()


def test_gsde_samples_new_random_functions_with_new_weights() -> None:
    agent = agent_of("Box, gSDE", learning_rate=1e-9)
    policy = policy_of(agent)
    before = unclipped_action(policy)
    policy.load_snapshot(agent.snapshot())
    np.testing.assert_array_equal(unclipped_action(policy), before)
    learn(agent, 0)
    policy.load_snapshot(agent.snapshot())
    after = unclipped_action(policy)
    assert (np.abs(after - before) > 1e-3).all()
    np.testing.assert_array_equal(unclipped_action(policy), after)


def test_gsde_noise_has_the_standard_deviations_of_its_density() -> None:
    agent = agent_of("Box, gSDE", sample_freq=1, log_std_init=0.5)
    policy, obs = policy_of(agent), constant_obs(20_000)
    _, extras = policy.explore(obs)
    features, mask = agent._split_obs(obs[:1])
    outputs, hidden, _ = agent.policy.forward_with_hidden(features)
    std = np.exp(0.5) * np.sqrt((hidden**2).sum())
    np.testing.assert_allclose(extras[UNCLIPPED].std(0), std, rtol=0.03)
    np.testing.assert_allclose(extras[UNCLIPPED].mean(0), outputs[0], atol=0.05 * std)
    entropy = agent.density(outputs, hidden, mask, np.zeros((1, 2), np.float32)).entropy
    assert -extras[LOG_PROB].mean() == pytest.approx(float(entropy[0]), abs=0.05)


def test_a_saved_gsde_policy_continues_with_its_random_functions(tmp_path: Path) -> None:
    agent = agent_of("Box, gSDE", sample_freq=3)
    policy = policy_of(agent)
    for _ in range(2):
        unclipped_action(policy)
    save_state(policy.state_dict(), tmp_path / "policy.npz")
    restored = policy_of(agent, seed=1)
    restored.load_state_dict(load_state(tmp_path / "policy.npz"))
    for _ in range(5):
        np.testing.assert_array_equal(unclipped_action(restored), unclipped_action(policy))


def test_gsde_is_refused_without_a_box() -> None:
    with pytest.raises(ConfigError, match=r"agent.exploration needs a Box; env.id=fake has Discr"):
        agent_of("Discrete", exploration=OnPolicyExploration.gsde)


def by_name(agent: Ppo) -> dict[str, NDArray[np.float32]]:
    """Returns copies of all weights by part and name."""
    state = agent.state_dict()
    parts = [part for part in ("policy", "value", "deviation") if part in state]
    return {f"{part}.{name}": array for part in parts for name, array in state[part].items()}


def forward(weights: dict[str, Tensor], network: str, rows: Tensor) -> Tensor:
    """Three layers with tanh."""
    return dense(weights, network, 2, hidden_layer(weights, network, rows))


def hidden_layer(weights: dict[str, Tensor], network: str, rows: Tensor) -> Tensor:
    for layer in range(2):
        rows = torch.tanh(dense(weights, network, layer, rows))
    return rows


def dense(weights: dict[str, Tensor], network: str, layer: int, rows: Tensor) -> Tensor:
    prefix = f"{network}.mlp.layers.{layer}"
    return F.linear(rows, weights[f"{prefix}.weight"], weights[f"{prefix}.bias"])


def evaluate(
    agent: Ppo, weights: dict[str, Tensor], rollout: Transitions, part: slice
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the log-probabilities, entropies and values of some rows, in float64."""
    obs, action = rollout.obs, rollout.action[part]
    mask = None
    if isinstance(obs, dict):
        obs, mask = obs["seen"], torch.from_numpy(obs[ACTION_MASK][part] == 1)
    rows = torch.from_numpy(obs[part]).double()
    outputs = forward(weights, "policy", rows)
    value = outputs[:, -1]
    if "value.mlp.layers.0.weight" in weights:
        value = forward(weights, "value", rows)[:, 0]
    if "deviation.log_std" in weights:
        std = weights["deviation.log_std"].exp()
        if agent.config.exploration == OnPolicyExploration.gsde:
            with torch.no_grad():
                hidden = hidden_layer(weights, "policy", rows)
            std = ((hidden**2) @ std**2 + 1e-6).sqrt()
        normal = Normal(outputs[:, :2], std)  # a shared network adds the value
        unclipped = torch.from_numpy(rollout.extras[UNCLIPPED][part]).double()
        return normal.log_prob(unclipped).sum(1), normal.entropy().sum(1), value
    space = agent.spec.action
    nvec = [space.n] if isinstance(space, DiscreteSpace) else list(space.nvec)  # type: ignore[union-attr]
    logits = outputs[:, : sum(nvec)]
    if mask is not None:
        logits = logits.masked_fill(~mask, -1e30)
    choices = [Categorical(logits=component) for component in logits.split(nvec, 1)]
    columns = torch.from_numpy(action.reshape(len(action), -1)).T
    log_prob = sum(choice.log_prob(c) for choice, c in zip(choices, columns, strict=True))
    return log_prob, sum(choice.entropy() for choice in choices), value  # type: ignore[return-value]


def reference(
    agent: Ppo, rollout: Transitions, columns: dict[str, NDArray[Any]], parts: list[slice]
) -> dict[str, NDArray[np.float64]]:
    """Computes the weights after some updates in float64: networks, losses and Adam."""
    config = agent.config
    weights = {name: torch.from_numpy(w).double() for name, w in by_name(agent).items()}
    leaves = [weight.requires_grad_() for weight in weights.values()]
    first, second = [torch.zeros_like(w) for w in leaves], [torch.zeros_like(w) for w in leaves]
    for step, part in enumerate(parts, 1):
        prepared = {
            name: torch.from_numpy(column[part]).double() for name, column in columns.items()
        }
        log_prob, entropy, value = evaluate(agent, weights, rollout, part)
        ratio = (log_prob - prepared["old_log_prob"]).exp()
        advantage = prepared["advantage"]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        error = (value - prepared["target"]) ** 2
        if config.value_clip_range is not None:
            limit = config.value_clip_range
            near = prepared["value"] + (value - prepared["value"]).clamp(-limit, limit)
            error = torch.max(error, (near - prepared["target"]) ** 2)
        loss = -surrogate + 0.5 * error.mean() - config.ent_coef * entropy.mean()
        gradient = torch.autograd.grad(loss, leaves)
        norm = torch.sqrt(sum((part_grad**2).sum() for part_grad in gradient))  # type: ignore[arg-type]
        scale = min(1.0, 0.5 / float(norm))
        with torch.no_grad():
            for w, g, m, v in zip(leaves, gradient, first, second, strict=True):
                m.mul_(0.9).add_(0.1 * g * scale)
                v.mul_(0.999).add_(0.001 * (g * scale) ** 2)
                m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.999**step)
                w -= 1e-2 * m_hat / (v_hat.sqrt() + 1e-5)
    return {name: w.detach().numpy() for name, w in weights.items()}


PARTS = [slice(0, 10), slice(10, 20), slice(20, 30), slice(30, 40), slice(5, 15)]
FORMS: dict[str, dict[str, Any]] = {
    "Discrete": {},
    "Discrete, masked": {"share_network": True, "value_clip_range": 0.2},
    "MultiDiscrete, masked": {},
    "Box": {},
    "Box, gSDE": {"share_network": True},
}


@both_backends
@pytest.mark.parametrize("name", FORMS)
def test_five_updates_move_the_weights_as_an_implementation_in_float64_does(
    name: str, backend: str
) -> None:
    agent = agent_of(name, ent_coef=0.01, learning_rate=1e-2, backend=backend, **FORMS[name])
    rollout = rollout_of(agent)
    columns = dict(agent.prepare(rollout, env_steps=0, done=0.0))
    before, expected = by_name(agent), reference(agent, rollout, columns, PARTS)
    for part in PARTS:
        agent.update(batch_of(rollout, columns, part))
    after = by_name(agent)
    assert after.keys() == expected.keys()
    for weight, target in expected.items():
        assert np.abs(target - before[weight]).max() > 1e-3
        np.testing.assert_allclose(after[weight], target, rtol=0, atol=1e-5, err_msg=weight)
    assert agent.opt_steps == 5


def learn(agent: Ppo, seed: int) -> None:
    """Learns from a whole rollout."""
    rollout = rollout_of(agent, seed)
    columns = dict(agent.prepare(rollout, env_steps=40 * seed, done=0.0))
    for part in PARTS:
        agent.update(batch_of(rollout, columns, part))
    agent.finish(rollout)


NORMALISED = {"normalize_obs": True, "learning_rate": 1e-2}


@both_backends
@pytest.mark.parametrize("name", ["Discrete, masked", "Box", "Box, gSDE"])
def test_a_saved_agent_goes_on_to_the_bit(name: str, backend: str, tmp_path: Path) -> None:
    agent = agent_of(name, backend=backend, **NORMALISED)
    learn(agent, 0)
    save_state(agent.state_dict(), tmp_path / "agent.npz")
    restored = agent_of(name, backend=backend, **NORMALISED)
    restored.load_state_dict(load_state(tmp_path / "agent.npz"))
    for seed in (1, 2):
        for member in (agent, restored):
            learn(member, seed)
    assert same(restored.state_dict(), agent.state_dict())
    assert same(dict(restored.snapshot().arrays), dict(agent.snapshot().arrays))


@pytest.mark.parametrize("name", ["Discrete, masked", "Box", "Box, gSDE"])
@pytest.mark.parametrize(("old", "new"), [("numpy", "torch"), ("torch", "numpy")])
def test_an_agent_goes_on_with_the_other_backend(
    name: str, old: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_of(name, backend=old, **NORMALISED)
    learn(agent, 0)
    moved = agent_of(name, backend=new, **NORMALISED)
    moved.load_state_dict(agent.state_dict())
    [message] = caplog.messages
    assert f"computed by agent.backend={old} and continues with {new}" in message
    rollout = rollout_of(agent, 1)
    for member in (agent, moved):
        columns = dict(member.prepare(rollout, env_steps=40, done=0.0))
        for part in PARTS:
            member.update(batch_of(rollout, columns, part))
    expected = by_name(agent)
    for weight, array in by_name(moved).items():
        np.testing.assert_allclose(array, expected[weight], rtol=0, atol=1e-5, err_msg=weight)


@both_backends
def test_beyond_the_target_divergence_nothing_is_applied_or_counted(backend: str) -> None:
    agent = agent_of(learning_rate=1.0, target_kl=1e-3, backend=backend)
    rollout = rollout_of(agent)
    columns = dict(agent.prepare(rollout, env_steps=0, done=0.0))
    batch = batch_of(rollout, columns, slice(0, ROWS))
    assert agent.update(batch) is not None
    before = agent.state_dict()
    assert agent.update(batch) is None
    assert agent.opt_steps == 1
    np.testing.assert_equal(agent.state_dict(), before)


def test_statistics_take_in_a_rollout_after_its_epochs() -> None:
    agent = agent_of(normalize_obs=True)
    rollout = rollout_of(agent)
    columns = dict(agent.prepare(rollout, env_steps=0, done=0.0))
    again = agent.prepare(rollout, env_steps=0, done=0.0)
    np.testing.assert_array_equal(columns["value"], again["value"])
    agent.finish(rollout)
    mean = agent.snapshot().arrays["features.mean"]
    np.testing.assert_allclose(mean, np.asarray(rollout.obs).mean(0), rtol=1e-5)


def test_schedules_follow_the_share_of_the_run() -> None:
    falling = {"initial": 0.4, "final": 0.0, "kind": "linear", "steps": None}
    agent = agent_of(learning_rate=falling, clip_range={**falling, "steps": 1_000})
    rollout = rollout_of(agent)
    columns = dict(agent.prepare(rollout, env_steps=750, done=0.25))
    update = agent.update(batch_of(rollout, columns, slice(0, 10)))
    assert update is not None
    assert float(update.metrics["learning_rate"]) == pytest.approx(0.3)
    assert float(update.metrics["clip_range"]) == pytest.approx(0.1)


@both_backends
@pytest.mark.parametrize("share", [False, True])
def test_first_weights_are_orthogonal_and_small_where_actions_are_chosen(
    share: bool, backend: str
) -> None:
    agent = agent_of(share_network=share, activation=Activation.tanh, backend=backend)
    weights = by_name(agent)
    last = weights["policy.mlp.layers.2.weight"]
    np.testing.assert_allclose(last[:4] @ last[:4].T, 1e-4 * np.eye(4), atol=1e-8)
    hidden = weights["policy.mlp.layers.1.weight"]
    np.testing.assert_allclose(hidden @ hidden.T, 2 * np.eye(8), atol=1e-5)
    of_values = last[4:] if share else weights["value.mlp.layers.2.weight"]
    assert float((of_values**2).sum()) == pytest.approx(1)
    assert not any(array.any() for name, array in weights.items() if name.endswith("bias"))


def test_a_rollout_with_rewards_divided_is_clipped() -> None:
    agent = agent_of(normalize_reward=True, clip_reward=0.5, gae_lambda=0.0)
    rollout = replace(rollout_of(agent), discount=np.zeros(ROWS, np.float32))
    large = replace(rollout, reward=rollout.reward * 100)
    columns = agent.prepare(large, env_steps=0, done=0.0)
    target = columns["target"]
    assert np.abs(target).max() == pytest.approx(0.5, abs=1e-5)
