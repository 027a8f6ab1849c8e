"""Saved states of agents: exact resumption, loading weights alone, and states that do not fit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from border_cli.agent.config import DqnConfig, RandomConfig
from border_cli.agent.dqn import Dqn
from border_cli.agent.learning_agent import LearningAgent
from border_cli.agent.random import RandomAgent
from border_cli.core.returns import Moments
from border_cli.core.spaces import DictSpace, EnvSpec
from border_cli.core.state import load_state, save_state
from border_cli.core.types import Batch
from border_cli.errors import CheckpointError
from border_cli.nn import matmul
from border_cli.nn.architecture import Activation
from border_cli.nn.numpy_learner import Parameters
from border_cli.registry import AGENTS, register_builtin
from border_cli.settings.networks import Matmul
from tests.support.case_sampling import sampled, thinned, weekly
from tests.support.compilers import needs_compiler
from tests.support.continuous_env import batch, counted, spec
from tests.support.libraries import LIBRARIES, both_backends
from tests.support.policies import policy_of
from tests.support.soft_agents import sac
from tests.support.spaces import box, reals


def dqn(spec: EnvSpec, seed: int, **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [9, 4], "learning_rate": 0.01, **settings})
    return Dqn(config, spec=spec, device="cpu", seed=seed)


def bits(state: Any, name: str = "") -> dict[str, Any]:
    """Returns the leaves of a state by path: type, shape and bytes."""
    if isinstance(state, np.ndarray | torch.Tensor):
        array = np.asarray(state)
        return {name: (array.dtype, array.shape, array.tobytes())}
    if isinstance(state, dict | list):
        pairs = state.items() if isinstance(state, dict) else enumerate(state)
        return {
            key: leaf
            for part, value in pairs
            for key, leaf in bits(value, f"{name}.{part}").items()
        }
    return {name: state}


@both_backends
@pytest.mark.parametrize(
    ("change", "matches"),
    [
        (
            lambda state: state.pop("online"),
            dict.fromkeys(LIBRARIES, "it has no 'online', but target, optimizer; it"),
        ),
        (
            lambda state: state.update(online=3),
            {"torch": "online: .*dict", "numpy": "online: 'int' object"},
        ),
        (
            lambda state: state["online"].pop("mlp.layers.0.bias"),
            {
                "torch": r'online: .*Missing key\(s\).*"mlp\.layers\.0\.bias"',
                "numpy": r"online: it has mlp\.layers\.0\.weight, mlp\.layers\.1.* instead of "
                r"mlp\.layers\.0\.weight, mlp\.layers\.0\.bias",
            },
        ),
        (
            lambda state: state["online"].update(x=np.ones(1)),
            {
                "torch": r'online: .*Unexpected key\(s\).*"x"',
                "numpy": r"online: it has .*\.bias, x instead of ",
            },
        ),
        (lambda state: state.update(statistics=3), dict.fromkeys(LIBRARIES, "statistics: 'int' ")),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    spec, backend: str, change: Any, matches: dict[str, str]
):
    state = dqn(spec, 1, backend=backend).state_dict()
    change(state)
    with pytest.raises(CheckpointError, match=matches[backend]) as raised:
        dqn(spec, 2, backend=backend).load_weights(state)
    assert str(raised.value).startswith("the saved agent does not fit agent=dqn: ")


@both_backends
@pytest.mark.parametrize(
    "other",
    [{"hidden": [8, 4]}, {"noisy": True, "backend": "torch"}],
    ids=str,
)
def test_weights_of_another_form_are_refused_with_the_settings_that_make_it(
    spec, backend: str, other: dict[str, Any]
):
    match = r"agent=dqn: online: .*agent\.hidden, .* must match the saved agent"
    with pytest.raises(CheckpointError, match=match):
        dqn(spec, 2, backend=backend).load_weights(dqn(spec, 1, **other).state_dict())


@pytest.mark.parametrize(
    ("backend", "match"),
    [
        ("torch", r"layers\.0\.weight: .*\[\d+, 7\].* the shape .*\[\d+, 3\]"),
        ("numpy", r"layers\.0\.weight has shape \(9, 7\) instead of \(9, 3\)"),
    ],
)
def test_weights_of_another_environment_are_refused_with_both_sizes(spec, backend: str, match: str):
    wider = replace(spec, observation=reals(7))
    state = dqn(wider, 1).state_dict()
    with pytest.raises(CheckpointError, match=match):
        dqn(spec, 2, backend=backend).load_weights(state)


def test_weights_learned_with_another_activation_are_refused(spec, tmp_path: Path):
    """The weights have the right shapes but would compute something else."""
    save_state(dqn(spec, 1, activation=Activation.tanh).state_dict(), tmp_path / "agent.npz")
    saved = load_state(tmp_path / "agent.npz")
    match = r"the saved agent does not fit agent\.activation=relu: it has tanh"
    with pytest.raises(CheckpointError, match=match):
        dqn(spec, 2).load_weights(saved)
    dqn(spec, 2, activation=Activation.tanh).load_weights(saved)


def test_weights_learned_on_other_atoms_are_refused(spec):
    """The same probabilities would stand for different returns."""
    saved = dqn(spec, 1, num_atoms=5, v_max=100.0).state_dict()
    match = r"the saved agent does not fit agent\.v_max=10\.0: it has 100\.0"
    with pytest.raises(CheckpointError, match=match):
        dqn(spec, 2, num_atoms=5).load_weights(saved)
    dqn(spec, 2, num_atoms=5, v_max=100.0).load_weights(saved)
    # Without atoms, v_max has no effect.
    dqn(spec, 2, v_max=3.0).load_weights(dqn(spec, 1).state_dict())


def test_an_agent_that_learns_nothing_has_no_weights_to_begin_with(spec):
    agent = RandomAgent(RandomConfig(), spec=spec, device="cpu", seed=0)
    with pytest.raises(CheckpointError, match="RandomAgent has no weights"):
        agent.load_weights(agent.state_dict())
    assert agent.first_not_finite() is None


@pytest.mark.parametrize(
    ("which", "index", "name"),
    [
        ("online", "mlp.layers.0.weight", "online/mlp.layers.0.weight"),
        ("target", "mlp.layers.2.bias", "target/mlp.layers.2.bias"),
        ("optimizer", "squares", "optimizer/squares/1"),
    ],
)
def test_a_weight_that_is_not_finite_is_named(spec, make_batch, which, index, name):
    agent = dqn(spec, 1)
    agent.update(make_batch(0))
    assert agent.first_not_finite() is None
    state = agent.state_dict()
    part = state[which][index]
    (part[1] if isinstance(part, list) else part).flat[-1] = float("-inf")
    agent.load_state_dict(state)
    assert agent.first_not_finite() == name


def test_an_update_that_breaks_the_weights_is_found(spec, make_batch):
    agent, batch = dqn(spec, 1), make_batch(0)
    batch.reward[3] = np.nan
    agent.update(batch)
    assert agent.first_not_finite() == "online/mlp.layers.0.weight"


SMALL: dict[str, Any] = {"hidden": [9, 4], "learning_rate": 0.01, "batch_size": 8}
NORMALISED = {"normalize_obs": True, "normalize_reward": True}
FOLLOWED = {"target_interval": 7, "tau": 0.3}
SINGLE = {"num_critics": 1, "policy_delay": 1, "target_noise": 0.0}
# By kind: name of the agent, whether its actions are discrete, and its settings.
KINDS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "dqn": ("dqn", True, {"double": True, **FOLLOWED}),
    "dqn, torch": ("dqn", True, {"double": True, "backend": "torch", **FOLLOWED}),
    "c51": ("dqn", True, {"double": True, "dueling": True, "num_atoms": 5, **FOLLOWED}),
    "rainbow": (
        *("dqn", True),
        {"dueling": True, "noisy": True, "num_atoms": 5, "exploration": "greedy", **FOLLOWED},
    ),
    "dqn, conservative": (
        "dqn",
        True,
        {"conservative_weight": 1.0, "target_interval": 7, "tau": 1.0, **NORMALISED},
    ),
    "qrdqn": ("qrdqn", True, {"num_quantiles": 5, **FOLLOWED}),
    "discrete_sac": ("discrete_sac", True, {"policy_delay": 3, "tau": 0.3}),
    "iqn": ("iqn", True, {"double": True, **FOLLOWED}),
    "sac": ("sac", False, NORMALISED),
    "redq": ("sac", False, {"num_critics": 4, "subset": 2, "policy_delay": 3}),
    "droq": ("sac", False, {"dropout": 0.2, "critic_layer_norm": True}),
    "tqc": ("tqc", False, {"num_quantiles": 5, "dropped_quantiles": 1}),
    "td3": ("td3", False, {"policy_delay": 3, "tau": 0.3}),
    "ddpg": ("td3", False, SINGLE),
    "td3_bc": ("td3_bc", False, NORMALISED),
    "bc": ("bc", False, {}),
    "bc, stochastic": ("bc", False, {"stochastic": True}),
    "bc, counted": ("bc", True, {}),
    "awac": ("awac", False, {"tau": 0.3}),
    "awac, counted": ("awac", True, {}),
    "iql": ("iql", False, {"tau": 0.3, **NORMALISED}),
    "iql, counted": ("iql", True, {}),
    "cql": ("cql", False, {"sampled_actions": 3}),
    "cql, gap": (
        *("cql", False),
        {"sampled_actions": 3, "conservative_gap": 0.5, "backup_entropy": True},
    ),
}
all_kinds = pytest.mark.parametrize("kind", KINDS)
IN_NUMPY = ("dqn", "c51", "dqn, conservative", "qrdqn")  # with agent.backend=auto


def agent_of(kind: str, seed: int, **more: Any) -> LearningAgent:
    register_builtin()
    name, counts, settings = KINDS[kind]
    config = AGENTS.entry(name).config_type(**{**SMALL, **settings, **more})
    env_spec = counted() if counts else spec()
    agent: LearningAgent = AGENTS.build(config, spec=env_spec, device="cpu", seed=seed)
    return agent


def rows(kind: str, seed: int) -> Batch:
    return batch(seed, actions=3 if KINDS[kind][1] else None)


def has_td_errors(kind: str) -> bool:
    """Returns whether the agent has TD errors."""
    return KINDS[kind][0] != "bc"


def learn(agent: LearningAgent, kind: str, seeds: range) -> list[bytes]:
    """Updates the agent once per seed; returns the TD errors and metrics of every update."""
    results = []
    for seed in seeds:
        batch = rows(kind, seed)
        agent.observe(batch)
        agent.observe_returns(Moments.of(batch.reward.astype(np.float64)))
        update = agent.update(batch)
        metrics = [float(metric) for metric in update.metrics.values()]
        errors = update.td_error() if has_td_errors(kind) else np.zeros(8)
        results.append(errors.tobytes() + np.array(metrics).tobytes())
    return results


@all_kinds
def test_one_seed_gives_one_agent_and_leaves_the_global_generator_still(kind: str):
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].tobytes()
    agents = [agent_of(kind, seed) for seed in (4, 4, 5)]
    for agent in agents:
        learn(agent, kind, range(3))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tobytes() == before_numpy
    first, again, other = (bits(agent.state_dict()) for agent in agents)
    assert first == again
    assert first != other


@all_kinds
def test_nothing_is_learned_once_the_learning_rate_has_come_to_zero(kind: str):
    inherits = {"critic_learning_rate": None} if kind.startswith("cql") else {}
    rate = {"initial": 0.01, "final": 0.0, "steps": 1}  # 0.01 in the first update, then 0
    agent = agent_of(kind, 1, learning_rate=rate, **inherits)

    def learned() -> dict[str, Any]:
        state = agent.state_dict()
        modules = [part for part in state if "target" not in part and "optimizer" not in part]
        return bits({part: state[part] for part in modules if isinstance(state[part], dict)})

    before = learned()
    agent.update(rows(kind, 1))
    after = learned()
    for seed in range(4):
        agent.update(rows(kind, seed))
    assert learned() == after != before


@all_kinds
def test_twenty_updates_saved_and_twenty_more_are_forty(kind: str, tmp_path: Path):
    agent, restored = agent_of(kind, 1), agent_of(kind, 2)
    learn(agent, kind, range(20))
    save_state(agent.state_dict(), tmp_path / "agent.npz")
    restored.load_state_dict(load_state(tmp_path / "agent.npz"))
    assert bits(restored.state_dict()) == bits(agent.state_dict())
    later_seeds = range(20, 40)
    assert learn(restored, kind, later_seeds) == learn(agent, kind, later_seeds)
    assert bits(restored.state_dict()) == bits(agent.state_dict())
    arrays, others = agent.snapshot().arrays, restored.snapshot().arrays
    assert all(array.tobytes() == others[name].tobytes() for name, array in arrays.items())


@all_kinds
def test_numpy_computes_the_kinds_that_it_can(kind: str):
    assert (agent_of(kind, 1).backend.name == "numpy") == (kind in IN_NUMPY)


@pytest.mark.parametrize("kind", IN_NUMPY)
@pytest.mark.parametrize(("old", "new"), [("numpy", "torch"), ("torch", "numpy")])
def test_a_state_saved_by_one_backend_goes_on_with_the_other(
    kind: str, old: str, new: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    agent = agent_of(kind, 1, backend=old)
    learn(agent, kind, range(20))
    save_state(agent.state_dict(), tmp_path / "agent.npz")
    again, moved = (agent_of(kind, 2, backend=backend) for backend in (old, new))
    again.load_state_dict(load_state(tmp_path / "agent.npz"))
    assert not caplog.messages
    moved.load_state_dict(load_state(tmp_path / "agent.npz"))
    assert caplog.messages == [
        f"the saved state was computed by agent.backend={old} and continues with {new}: results "
        "differ from those of an undivided run in the last bits"
    ]
    for seed in range(20, 25):
        errors = []
        for member in (agent, moved):
            batch = rows(kind, seed)
            member.observe(batch)
            errors.append(member.update(batch).td_error())
        np.testing.assert_allclose(*errors, rtol=0, atol=1e-5)
    state, expected = moved.state_dict(), agent.state_dict()
    assert (state["backend"], state["opt_steps"]) == (new, expected["opt_steps"])
    for part in ("online", "target"):
        for name, array in state[part].items():
            np.testing.assert_allclose(array, expected[part][name], rtol=0, atol=1e-5)


@all_kinds
def test_an_update_reports_norms_if_gradients_are_clipped_and_td_errors_that_stay_unchanged(
    kind: str,
):
    unclipped, clipped = (agent_of(kind, 1, max_grad_norm=norm) for norm in (None, 1e-3))
    assert not any("grad_norm" in name for name in unclipped.update(rows(kind, 0)).metrics)
    update = clipped.update(rows(kind, 0))
    metrics = {name: float(metric) for name, metric in update.metrics.items()}
    assert np.isfinite(list(metrics.values())).all()
    norms = [metric for name, metric in metrics.items() if "grad_norm" in name]
    assert norms
    assert min(norms) > 1e-3
    if has_td_errors(kind):
        errors = update.td_error()
        before = errors.copy()
        clipped.update(rows(kind, 1))
        assert (errors.shape, errors.dtype) == ((8,), np.float32)
        assert update.td_error().tobytes() == before.tobytes()


def assert_close(agent: LearningAgent, other: LearningAgent, *, atol: float) -> None:
    """Compares the weights that the two agents act with."""
    arrays = agent.snapshot().arrays
    for name, array in other.snapshot().arrays.items():
        np.testing.assert_allclose(arrays[name], array, rtol=1e-3, atol=atol)


@all_kinds
def test_updates_with_onednn_are_those_with_mkl(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(matmul, "WORTHWHILE", 0)  # otherwise these products are too small
    agents = [agent_of(kind, 1, matmul=Matmul(backend)) for backend in ("mkl", "onednn")]
    for agent in agents:
        learn(agent, kind, range(10))
    assert_close(agents[1], agents[0], atol=1e-4)


@all_kinds
def test_weights_alone_begin_a_new_training_of_every_kind(kind: str):
    """Target networks equal their online networks, optimisers are new and opt_steps is 0."""
    old, new = agent_of(kind, 1), agent_of(kind, 2)
    learn(old, kind, range(8))
    saved, initial = old.state_dict(), new.state_dict()
    new.load_weights(saved)
    state = new.state_dict()
    optimizers = [part for part in state if part.endswith("optimizer")]
    assert optimizers
    for part in {*state} - {*optimizers, "noise", "opt_steps"}:
        assert bits(state[part]) == bits(saved[new.targets.get(part, part)]), part
    for part in [*optimizers, "noise"]:
        assert bits(state[part]) == bits(initial[part]), part
    for target, online in new.targets.items():
        assert bits(saved[target]) != bits(saved[online]), "the target equals the online network"
    assert new.opt_steps == 0


@all_kinds
def test_weights_of_another_agent_are_refused(kind: str):
    name = KINDS[kind][0]
    other = {"td3": "bc", "td3_bc": "bc"}.get(name, "td3")
    if kind == "bc":
        other = "bc, stochastic"  # has twice as many outputs
    state, agent = agent_of(other, 1).state_dict(), agent_of(kind, 1)
    state.pop("statistics", None)
    if "statistics" in agent.state_dict():
        state["statistics"] = agent.state_dict()["statistics"]
    # Either the shapes or the parts differ.
    match = rf"does not fit agent={name}: ([a-z]+: Error\(s\) in loading|it has no '[a-z]+', but )"
    with pytest.raises(CheckpointError, match=match):
        agent.load_weights(state)


@all_kinds
def test_a_snapshot_never_changes(kind: str):
    agent = agent_of(kind, 1)
    arrays = agent.snapshot().arrays
    before = {name: array.tobytes() for name, array in arrays.items()}
    learn(agent, kind, range(6))
    assert {name: array.tobytes() for name, array in arrays.items()} == before
    assert any(array.tobytes() != before[name] for name, array in agent.snapshot().arrays.items())


@all_kinds
def test_modules_that_share_memory_have_the_loaded_weights(kind: str):
    agent, other = agent_of(kind, 1), agent_of(kind, 2)
    learn(agent, kind, range(3))
    other.load_state_dict(agent.state_dict())
    for name, twin in vars(other).items():
        original = getattr(agent, name)
        if isinstance(twin, nn.Module | Parameters):
            assert bits(dict(twin.state_dict())) == bits(dict(original.state_dict())), name


@pytest.mark.parametrize(
    ("shape", "dtype"),
    sampled([((10, 10, 2), "bool"), ((36, 36, 1), "uint8")], every=2, ids=["small", "large"]),
)
@all_kinds
def test_images_beside_numbers_are_learned_from_acted_on_and_saved(
    kind: str, shape: tuple[int, ...], dtype: str
):
    register_builtin()
    name, counts, settings = KINDS[kind]
    largest = 255 if dtype == "uint8" else 1
    screen = box(shape, dtype, high=largest)
    observation = DictSpace({"screen": screen, "speed": spec().observation})  # type: ignore[dict-item]
    env_spec = replace(counted() if counts else spec(), observation=observation)
    config = AGENTS.entry(name).config_type(**{**SMALL, **settings})
    agent, other = (AGENTS.build(config, spec=env_spec, device="cpu", seed=i) for i in (1, 2))
    vectors = rows(kind, 0)
    pixels = np.random.default_rng(0).integers(largest, size=(8, *shape), endpoint=True)
    screens = pixels.astype(dtype)
    batch = replace(
        vectors,
        obs={"screen": screens, "speed": vectors.obs},
        next_obs={"screen": screens[::-1].copy(), "speed": vectors.next_obs},
    )
    for _ in range(3):
        agent.observe(batch)
        update = agent.update(batch)
    assert not has_td_errors(kind) or np.isfinite(update.td_error()).all()
    assert agent.first_not_finite() is None
    other.load_state_dict(agent.state_dict())
    actions = []
    for member in (agent, other):
        policy = policy_of(member)
        actions.append(policy.act(batch.obs, explore=True))
    assert actions[0].shape == batch.action.shape
    assert actions[0].tobytes() == actions[1].tobytes()


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        *((kind, "aot_eager") for kind in thinned([*KINDS], 9)),
        pytest.param("rainbow", "inductor", marks=weekly),
        pytest.param("cql", "inductor", marks=weekly),
    ],
)
def test_a_compiled_agent_learns_what_an_eager_one_learns(
    kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
):
    """The kinds are traced by torch; the two with the most parts are also compiled to C++."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    eager, compiled = agent_of(kind, 1), agent_of(kind, 1, compile=True)
    learn(eager, kind, range(7))
    with compiled.learner_thread():
        assert compiled.opt_steps == 0
        learn(compiled, kind, range(7))
    assert_close(compiled, eager, atol=1e-5)


def test_a_learned_entropy_coefficient_is_loaded_and_frozen_critics_have_the_loaded_weights():
    old, new = sac(1), sac(2)
    for seed in range(12):
        old.update(batch(seed))
    new.load_weights(old.state_dict())
    assert torch.equal(new.ent_coef(), old.ent_coef())
    assert torch.equal(new.critics.frozen.mlp.weights[0], new.critics.online.mlp.weights[0])


def test_a_fixed_weight_of_entropy_is_that_of_the_settings_and_not_of_a_checkpoint():
    old, new = sac(ent_coef=0.3), sac(ent_coef=0.1)
    new.load_weights(old.state_dict())
    assert new.ent_coef().item() == pytest.approx(0.1)


@pytest.mark.parametrize(("old", "new"), [(None, 0.1), (0.3, None)])
def test_a_coefficient_that_one_of_two_runs_learned_is_that_of_the_settings(
    old: float | None, new: float | None
):
    """The networks themselves fit."""
    before, after = sac(1, ent_coef=old), sac(2, ent_coef=new)
    first = after.ent_coef().item()
    for seed in range(5):
        before.update(batch(seed))
    after.load_weights(before.state_dict())
    assert after.ent_coef().item() == first
    assert torch.equal(after.actor.mlp.layers[0].weight, before.actor.mlp.layers[0].weight)
    with pytest.raises(CheckpointError, match=r"saved state does not fit .*: agent\.ent_coef: "):
        after.load_state_dict(before.state_dict())


def test_weights_of_another_number_of_critics_are_refused():
    match = r"critic: .*size mismatch for \S+: .*\[3, .*\[2, "
    with pytest.raises(CheckpointError, match=match):
        sac().load_weights(sac(num_critics=3).state_dict())


def test_a_weight_of_entropy_that_is_not_finite_is_named():
    agent = sac()
    agent.update(batch(0))
    assert agent.first_not_finite() is None
    agent.ent_coef.log.fill_(float("nan"))
    assert agent.first_not_finite() == "ent_coef/log"
