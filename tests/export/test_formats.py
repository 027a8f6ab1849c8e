"""Exported policies act like their agent, for every agent, kind of observation and format."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from user_networks import Tanh, registered

from border_cli.agent.learning_agent import LearningAgent
from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.core.spaces import BoxSpace, DictSpace, EnvSpec, Space
from border_cli.core.types import Array
from border_cli.env.gym_spaces import MaskedDict, raw_spaces
from border_cli.errors import CheckpointError, ConfigError
from border_cli.export.verify import verify_export
from border_cli.export.write import form_of, seal, write_formats
from border_cli.registry import AGENTS, register_builtin
from border_cli.run.exported import (
    MODEL,
    POLICY_NPZ,
    POLICY_ONNX,
    VERIFICATION,
    ExportedFolder,
    open_export,
)
from tests.support.case_sampling import ALL, thinned

register_builtin()

ROWS = 32
REALS = spaces.Box(-5.0, 5.0, (3,), np.float32)
STACK = spaces.Box(0, 255, (4, 36, 36), np.uint8)  # channels first, as in stacked frames
OBSERVATIONS: dict[str, gym.Space[Any]] = {
    "reals": REALS,
    "float64": spaces.Box(-5.0, 5.0, (2, 2), np.float64),
    "integers": spaces.Box(np.array([-3, 0], np.int16), np.array([3, 9], np.int16), dtype=np.int16),
    "discrete": spaces.Discrete(5, start=-2),
    "choices": spaces.MultiDiscrete([3, 4], start=[1, -1]),
    "bits": spaces.MultiBinary([2, 2]),
    "stack": STACK,
    "colours": spaces.Box(0, 255, (40, 38, 3), np.uint8),
    "grey": spaces.Box(0, 255, (10, 11), np.uint8),
    "flags": spaces.Box(0, 1, (10, 10, 4), np.bool_),
    "dict": spaces.Dict(eye=STACK, arm=REALS, room=spaces.Discrete(4, start=1)),
}
ACTIONS: dict[str, gym.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=5),
    "choices": spaces.MultiDiscrete([2, 3], start=[1, -4]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([[-1.0, 0.5]]), np.array([[3.0, 9.0]]), (1, 2), np.float64),
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {}),
    "dueling": ("dqn", {"dueling": True, "layer_norm": True}),
    "c51": ("dqn", {"v_min": -2.0, "v_max": 3.0, "num_atoms": 11}),
    "rainbow": (
        "dqn",
        {"dueling": True, "noisy": True, "num_atoms": 11, "activation": "elu"},
    ),
    "qrdqn": ("qrdqn", {"num_quantiles": 8, "risk_high": 0.5}),
    "iqn": ("iqn", {}),
    "normalised": ("iqn", {"normalize_obs": True, "activation": "silu"}),
    "discrete_sac": ("discrete_sac", {}),
    "bc": ("bc", {}),
    "stochastic_bc": ("bc", {"stochastic": True}),
    "awac": ("awac", {}),
    "iql": ("iql", {"activation": "tanh"}),
    "sac": ("sac", {"normalize_obs": True}),
    "tqc": ("tqc", {}),
    "td3": ("td3", {"layer_norm": True}),
    "ddpg": ("td3", {"noise": "ornstein_uhlenbeck"}),
    "td3_bc": ("td3_bc", {"normalize_obs": True}),
    "cql": ("cql", {}),
}
OF_BOXES = ("sac", "tqc", "td3", "ddpg", "td3_bc", "cql", "stochastic_bc")
EITHER = ("bc", "awac", "iql")


def spec_of(observation: gym.Space[Any], action: gym.Space[Any]) -> EnvSpec:
    raw = raw_spaces(observation, action, "Any-v0")
    return EnvSpec("Any-v0", *raw.converted, None, raw=raw)


def has_reals(observation: Space) -> bool:
    parts = observation.spaces.values() if isinstance(observation, DictSpace) else [observation]
    return any(isinstance(part, BoxSpace) and part.dtype == "float32" for part in parts)


def agent_of(variant: str, spec: EnvSpec, *, seed: int = 0, **more: Any) -> LearningAgent:
    """Builds an agent whose weights and statistics differ greatly from their initial values."""
    name, base = VARIANTS[variant]
    if not has_reals(spec.observation):
        base = {key: value for key, value in base.items() if key != "normalize_obs"}
    config = AGENTS.entry(name).config_type(**{"hidden": [16, 12], "matmul": "mkl", **base, **more})
    agent: LearningAgent = AGENTS.build(config, spec=spec, device="cpu", seed=seed)
    rng = np.random.default_rng(seed)
    # On a CPU the arrays share the memory of the network.
    network = agent.backend.to_arrays(agent.acting_parts["network"].state_dict())
    for weights in network.values():
        scale = 0.4 / weights[0].size ** 0.5 if weights.ndim else 0.2
        weights += scale * rng.standard_normal(weights.shape, np.float32)
    for statistics in agent._normalization.statistics.values():
        rows = rng.standard_normal((50, len(statistics.mean)), np.float32)
        statistics.update(2 * rows + 0.7)
    agent._normalization.refresh()
    return agent


def policy_of(agent: LearningAgent) -> Any:
    policy = agent.policy_factory(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    return policy


def sampled(spec: EnvSpec, space: gym.Space[Any], rows: int = ROWS) -> Array:
    """Random observations from a raw space, in the form that policies receive."""
    space.seed(zlib.crc32(str(space).encode()))
    values = [space.sample() for _ in range(rows)]
    if isinstance(space, spaces.Dict):
        batch: Any = {key: np.stack([value[key] for value in values]) for key in space.spaces}
    else:
        batch = np.stack(values)
    no_policy: Any = None
    return LoadedPolicy(no_policy, spec).rows(batch)[0]


def exported(
    place: Path, agent: LearningAgent, rows: Array, *, onnx: bool = True, name: str = "any"
) -> list[str]:
    """Writes and verifies the exported formats. `verify_export` needs the settings of a run to load
    `model.safetensors`, so its weights are loaded into another agent here instead."""
    policy, form = policy_of(agent), form_of(agent, policy_of(agent), name)
    place.mkdir()
    write_formats(place, agent, policy, form, rows, onnx=onnx)
    seal(place, agent, form)
    folder = open_export(place)
    other = AGENTS.build(agent.config, spec=agent.spec, device="cpu", seed=1)
    other.load_weights(folder.weights())
    expected = policy.act(rows, explore=False)
    np.testing.assert_array_equal(policy_of(other).act(rows, explore=False), expected)
    files = {file: entry for file, entry in folder.content["files"].items() if file != MODEL}
    return verify_export(ExportedFolder(place, {**folder.content, "files": files}))


def actions_of(variant: str) -> list[str]:
    if variant in OF_BOXES:
        return ["box"]
    return ["discrete", "choices", "bits", *(["box"] if variant in EITHER else [])]


# Each variant is combined with every kind of observation, cycling through its kinds of actions.
EVERY = [
    (variant, kind, actions_of(variant)[(first + i) % len(actions_of(variant))])
    for first, variant in enumerate(VARIANTS)
    for i, kind in enumerate(OBSERVATIONS)
]


def test_weights_in_another_memory_order_are_exported_exactly(tmp_path: Path) -> None:
    spec = spec_of(OBSERVATIONS["reals"], ACTIONS["discrete"])
    agent = agent_of("dqn", spec)
    for weight in agent.acting_parts["network"].parameters():
        weight.data = weight.data.T.contiguous().T if weight.ndim == 2 else weight.data
    exported(tmp_path / "to", agent, sampled(spec, OBSERVATIONS["reals"]), onnx=False)


def formats_of(lines: list[str]) -> list[str]:
    return [line.partition(":")[0] for line in lines]


@pytest.mark.parametrize("variant", ["dqn", "dueling", "c51", "qrdqn"])
def test_agents_that_learn_in_numpy_are_exported_as_well(tmp_path: Path, variant: str) -> None:
    spec = spec_of(REALS, ACTIONS["choices"])
    agent = agent_of(variant, spec, backend="numpy", matmul="auto")
    assert formats_of(exported(tmp_path / "to", agent, sampled(spec, REALS), onnx=False)) == [
        POLICY_NPZ
    ]


@pytest.mark.parametrize(("variant", "kind", "action"), EVERY)
def test_numpy_and_the_weights_act_as_the_agent_does(
    tmp_path: Path, variant: str, kind: str, action: str
) -> None:
    spec = spec_of(OBSERVATIONS[kind], ACTIONS[action])
    rows = sampled(spec, OBSERVATIONS[kind])
    lines = exported(tmp_path / "to", agent_of(variant, spec), rows, onnx=False)
    assert formats_of(lines) == [POLICY_NPZ]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "kind", "action"), thinned(EVERY, 70))
def test_onnx_acts_as_the_agent_does(tmp_path: Path, variant: str, kind: str, action: str) -> None:
    spec = spec_of(OBSERVATIONS[kind], ACTIONS[action])
    lines = exported(
        tmp_path / "to", agent_of(variant, spec), sampled(spec, OBSERVATIONS[kind], 1000)
    )
    assert formats_of(lines) == [POLICY_NPZ, POLICY_ONNX]


@pytest.mark.slow
@pytest.mark.parametrize("action", ["discrete", "choices"])
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in OF_BOXES])
def test_masks_are_a_part_of_the_observation(tmp_path: Path, variant: str, action: str) -> None:
    choices = 3 if action == "discrete" else 5
    mask = spaces.Box(0, 1, (choices,), np.uint8)
    spec = spec_of(MaskedDict({"observation": REALS, "action_mask": mask}), ACTIONS[action])
    rng = np.random.default_rng(0)
    masks = rng.integers(2, size=(1000, choices), dtype=np.uint8)
    masks[:, [0, choices - 1]] = 1  # one choice of each component is allowed
    rows = {"observation": rng.normal(size=(1000, 3)).astype(np.float32), "action_mask": masks}
    onnx = ALL or (variant, action) == ("rainbow", "discrete")
    exported(tmp_path / "to", agent_of(variant, spec), rows, onnx=onnx)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["impala_resnet", "user"])
def test_networks_without_a_twin_are_exported_to_onnx_alone(tmp_path: Path, network: str) -> None:
    space = STACK if network != "user" else REALS
    spec = spec_of(space, ACTIONS["discrete"])
    with registered(user=Tanh):
        agent = agent_of("dqn", spec, network=network, normalize_obs=network == "user")
        lines = exported(tmp_path / "to", agent, sampled(spec, space))
    assert formats_of(lines) == [POLICY_ONNX]


class Counting(torch.nn.Module):
    """A network that torch cannot export: the number of additions depends on the input."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(*space.shape, 4)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.layer(obs)
        for _ in range(int(obs.abs().sum().item()) % 3):
            rows = rows + 1
        return rows


@pytest.mark.slow
def test_a_network_that_torch_cannot_export_is_named(tmp_path: Path) -> None:
    spec = spec_of(REALS, ACTIONS["discrete"])
    rows = sampled(spec, REALS)
    with registered(counting=Counting):
        agent = agent_of("dqn", spec, network="counting")
        with pytest.raises(
            ConfigError, match=r"agent\.network=counting cannot be exported to ONNX"
        ):
            exported(tmp_path / "to", agent, rows)


@pytest.mark.parametrize("what", ["action", "values"])
def test_another_answer_is_told_with_its_row(tmp_path: Path, what: str) -> None:
    spec = spec_of(REALS, ACTIONS["box"])
    agent = agent_of("td3", spec)
    folder = tmp_path / "to"
    exported(folder, agent, sampled(spec, REALS), onnx=False)
    arrays: Any = open_export(folder).arrays(VERIFICATION)
    arrays[what][3] += 1e-3
    np.savez(folder / VERIFICATION, **arrays)
    (folder / "policy.json").unlink()
    seal(folder, agent, form_of(agent, policy_of(agent), "td3"))
    with pytest.raises(
        CheckpointError, match=rf"policy\.npz differs .*: {what} by .*, most in row 3 of"
    ):
        verify_export(open_export(folder))


def test_components_of_choices_are_never_multiplied_out() -> None:
    spec = spec_of(REALS, spaces.MultiDiscrete([50] * 12))
    action = policy_of(agent_of("discrete_sac", spec)).act(sampled(spec, REALS), explore=True)
    assert action.shape == (ROWS, 12)


@pytest.mark.slow
def test_actions_of_onnx_are_within_float64_bounds(tmp_path: Path) -> None:
    action = spaces.Box(-0.1, 0.1, (1,), np.float64)  # 0.1 as float32 is above 0.1
    spec = spec_of(REALS, action)
    agent = agent_of("td3", spec)
    for weight in agent.acting_parts["network"].parameters():
        weight.data *= 20  # saturates the tanh
    rows = sampled(spec, REALS)
    exported(tmp_path / "to", agent, rows)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(tmp_path / "to" / POLICY_ONNX)
    (actions,) = session.run(["action"], {"observation": rows})
    assert all(action.contains(each) for each in actions)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["action", "values"])
def test_an_observation_with_the_name_of_an_output_is_refused(tmp_path: Path, key: str) -> None:
    observation = spaces.Dict({"arm": REALS, key: REALS})
    spec = spec_of(observation, ACTIONS["discrete"])
    with pytest.raises(ConfigError, match=rf"the part {key}\. Set onnx=false"):
        exported(tmp_path / "to", agent_of("dqn", spec), sampled(spec, observation))
