"""Action masks: invalid actions are neither taken nor used as bootstrap targets."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from border_cli.agent import c51, dqn, qrdqn
from border_cli.agent.discrete_cql import conservative_gap
from border_cli.agent.discrete_sac import soft_value
from border_cli.agent.iqn import target_quantiles
from border_cli.agent.policies import RandomPolicy
from border_cli.core.spaces import (
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
)
from border_cli.core.types import Batch
from border_cli.nn.batch import TensorBatch
from border_cli.registry import AGENTS, register_builtin
from tests.support.libraries import both_backends, both_libraries
from tests.support.policies import policy_of
from tests.support.spaces import box, numbers

MASK = np.array([[True, False, True]])
ONES = np.ones((1, 1))
NONE = np.zeros((1, 1))
# r = 1 and d = 1/2, so y = 1 + Q(s', a') / 2. The action is 0.
BATCH = TensorBatch(NONE, np.array([[0]]), ONES, ONES / 2, NONE, ONES, MASK, MASK)
Q_NEXT = np.array([[1.0, 9.0, 3.0]])
ONLINE = np.array([[7.0, 8.0, 2.0]])
TARGETS = [(None, 1 + 3 / 2), (ONLINE, 1 + 1 / 2)]  # the online network selects a' = 0


def wrapped(wrap: Any, batch: TensorBatch = BATCH) -> TensorBatch:
    return TensorBatch(*(None if part is None else wrap(part) for part in batch))


@both_libraries
@pytest.mark.parametrize(("online", "target"), TARGETS)
def test_targets_of_dqn_leave_invalid_actions_out(wrap: Any, online: Any, target: float) -> None:
    ranking = None if online is None else wrap(online)
    assert dqn.td_target(wrapped(wrap), wrap(Q_NEXT), ranking).item() == target


@both_libraries
@pytest.mark.parametrize(("chosen", "atom"), [(None, 2), ([2, 3, 0], 0)])
def test_targets_of_c51_leave_invalid_actions_out(wrap: Any, chosen: Any, atom: int) -> None:
    """Every action has its mass on a single atom, the invalid action on the last one."""
    outputs, online = (
        None if atoms is None else wrap(50 * np.eye(4)[atoms].reshape(1, -1))
        for atoms in ([0, 3, 2], chosen)
    )
    assert outputs is not None
    atoms = wrap(np.arange(4.0))
    target = c51.td_loss(outputs, outputs, online, wrapped(wrap), atoms=atoms).target
    assert target is not None
    np.testing.assert_allclose(target.probabilities, np.eye(4)[[atom]], atol=1e-12)


@both_libraries
@pytest.mark.parametrize(("online", "target"), TARGETS)
def test_targets_of_qrdqn_leave_invalid_actions_out(wrap: Any, online: Any, target: float) -> None:
    """Each action has one quantile, its value. Q(s, a) is 0, so the error is y."""
    one = np.ones(1)
    outputs, ranking = wrap(np.zeros_like(Q_NEXT)), None if online is None else wrap(online)
    settings = {"fractions": wrap(one / 2), "shares": wrap(one), "kappa": 1.0}
    result = qrdqn.td_loss(outputs, wrap(Q_NEXT), ranking, wrapped(wrap), **settings)  # type: ignore[arg-type]
    assert result.td_error.item() == target


@pytest.mark.parametrize(("online", "target"), TARGETS)
def test_targets_of_iqn_leave_invalid_actions_out(online: Any, target: float) -> None:
    def network(q: Any) -> Any:
        parts = {"means": lambda *_: q, "quantiles": lambda *_: q[:, None]}
        return SimpleNamespace(embed=lambda obs: obs, **parts)

    double, fractions = online is not None, torch.zeros(1, 1)
    ranking = torch.from_numpy(online) if double else None
    batch, q_next = wrapped(torch.from_numpy), torch.from_numpy(Q_NEXT)
    quantiles = target_quantiles(
        network(ranking), network(q_next), batch, fractions, fractions, double=double
    )
    assert quantiles.item() == target


@both_libraries
def test_the_conservative_gap_is_over_valid_actions(wrap: Any) -> None:
    """exp Q is 2, e^9 and 3. Without the second, the gap is log(5 / 2) and softmax 2/5 and 3/5."""
    q, batch = wrap(np.array([[math.log(2), 9.0, math.log(3)]])), wrapped(wrap)
    gap, grad = conservative_gap(q, batch.action, batch.weight, batch.mask)
    assert gap.item() == pytest.approx(math.log(5 / 2), rel=1e-12)
    np.testing.assert_allclose(grad, [[2 / 5 - 1, 0, 3 / 5]], rtol=1e-12)


def masked_obs(mask: list[int], rows: int) -> Any:
    """Observations of zeros with this mask."""
    masks = np.tile(np.array(mask, np.uint8), (rows, 1))
    return {"action_mask": masks, "observation": np.zeros((rows, 2), np.float32)}


def agent_of(name: str, action: LeafSpace = DiscreteSpace(3), **settings: Any) -> Any:  # noqa: B008
    register_builtin()
    config = AGENTS.entry(name).config_type(hidden=[4], **settings)
    size = action.n if isinstance(action, DiscreteSpace) else sum(action.nvec)
    masks = box((size,), "uint8")
    space = DictSpace({"action_mask": masks, "observation": numbers(2)}, masked=True)
    spec = EnvSpec(id="Masked", observation=space, action=action, max_episode_steps=None)
    return AGENTS.build(config, spec=spec, device="cpu", seed=0)


SOFT = {"exploration": "softmax", "temperature": 100.0}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dqn", {"epsilon": {"initial": 0.6}}),
        ("dqn", {"num_atoms": 3, **SOFT}),
        ("iqn", SOFT),
        ("bc", {}),
    ],
)
@pytest.mark.parametrize("warm_up", [False, True])
def test_policies_take_every_valid_action_and_no_other(
    name: str, settings: dict[str, Any], warm_up: bool
) -> None:
    policy = policy_of(agent_of(name, **settings), warm_up=warm_up)
    counts = np.bincount(policy.act(masked_obs([1, 0, 1], 3000), explore=True), minlength=3)
    assert counts[1] == 0
    assert counts[[0, 2]].min() > (1380 if warm_up else 300)
    for only in np.eye(3, dtype=int).tolist():
        assert (policy.act(masked_obs(only, 5), explore=False) == only.index(1)).all()


@pytest.mark.parametrize("warm_up", [False, True])
@pytest.mark.parametrize("name", ["random", "dqn", "discrete_sac"])
def test_several_integers_follow_their_parts_of_the_mask(name: str, warm_up: bool) -> None:
    space = MultiDiscreteSpace((2, 3))
    policy: Any = RandomPolicy(space, np.random.default_rng(0), masked=True)
    if name != "random":
        policy = policy_of(agent_of(name, space), warm_up=warm_up)
    actions = policy.act(masked_obs([0, 1, 1, 0, 1], 500), explore=True)
    assert {tuple(action) for action in actions.tolist()} == {(1, 0), (1, 2)}


@both_backends
def test_joint_actions_are_masked_as_their_parts_are(backend: str) -> None:
    """The mask allows (1, 0) and (1, 2), which have the numbers 3 and 5. The action is (1, 2)."""
    agent = agent_of("dqn", MultiDiscreteSpace((2, 3)), backend=backend)
    mask = np.array([[0, 1, 1, 0, 1]]).astype(bool)
    batch = BATCH._replace(action=np.array([[1, 2]]), next_mask=mask, mask=None)
    numbered = agent.to_joint_actions(wrapped(agent.backend.tensor, batch))
    assert numbered.action.tolist() == [[5]]
    assert numbered.next_mask.tolist() == [[False, False, False, True, False, True]]
    q_next = agent.backend.tensor(np.array([[9.0, 9.0, 9.0, 3.0, 9.0, 1.0]]))
    assert dqn.td_target(numbered, q_next, None).item() == 1 + 3 / 2


def test_soft_values_and_the_target_entropy_use_valid_actions_only() -> None:
    """Values 1, 9 and 3 have probabilities 1/2, 0 and 1/2, and the entropy is log 2."""
    agent = agent_of("discrete_sac")
    agent.actor = lambda _: torch.zeros(1, 3)
    mask, ones, q_next = (torch.from_numpy(part) for part in (MASK, ONES, Q_NEXT))
    chances = agent.choice_probabilities(None, mask)
    torch.testing.assert_close(chances.probability, torch.tensor([[0.5, 0.0, 0.5]]))
    assert soft_value(q_next, chances, 2 * ones).item() == pytest.approx(2 + 2 * math.log(2))
    assert agent.target_entropy(mask).item() == pytest.approx(0.3 * math.log(2))


LEARNERS = ("dqn", "qrdqn", "iqn", "bc", "awac", "iql", "discrete_sac")


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "torch") for name in LEARNERS), ("dqn", "numpy"), ("qrdqn", "numpy")],
)
def test_nothing_is_learned_of_an_action_that_is_never_valid(name: str, backend: str) -> None:
    """Updates change the output biases of the other actions only."""
    settings = {"conservative_weight": 1.0} if name == "dqn" else {}
    agent = agent_of(name, backend=backend, **settings)

    def output_bias() -> NDArray[np.float32]:
        state = agent.state_dict()
        [*_, bias] = [
            array
            for key, array in state["actor" if "actor" in state else "online"].items()
            if key.endswith("bias")
        ]
        return bias.reshape(3, -1)

    before, ones, obs = output_bias(), np.ones(4, "f4"), masked_obs([1, 0, 1], 4)
    rows = {"obs": obs, "next_obs": obs, "action": np.array([0, 2, 0, 2])}
    for _ in range(3):
        agent.update(Batch(**rows, reward=ones, discount=ones, weight=ones, index=np.arange(4)))
    assert (output_bias() != before).any(1).tolist() == [True, False, True]


def test_critics_of_awac_bootstrap_from_valid_actions() -> None:
    """All valid actions are worth 0, so y is the reward."""
    agent = agent_of("awac")
    agent.critics.target = lambda _, action: action[None, :, 1:2]
    one_row = wrapped(torch.from_numpy)
    batch = TensorBatch(*(column.expand(64, -1) for column in one_row[:-1]))  # type: ignore[union-attr]
    batch = batch._replace(obs=torch.zeros(64, 2), next_obs=torch.zeros(64, 2))
    noise = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
    assert (agent.critic_loss(batch, noise).target == 1).all()
