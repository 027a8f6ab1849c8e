"""Every agent and every kind of observation in every exported format, against the acting policy."""

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

from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Array
from border_cli.env.gym_spaces import MaskedDict, raw_spaces
from border_cli.errors import CheckpointError, ConfigError
from border_cli.export.verify import verified
from border_cli.export.write import form_of, seal, write_formats
from border_cli.registry import AGENTS, register_builtin
from border_cli.run.exported import (
    MODEL,
    POLICY_NPZ,
    POLICY_ONNX,
    VERIFICATION,
    opened_folder,
)

register_builtin()

ROWS = 32
REALS = spaces.Box(-5.0, 5.0, (3,), np.float32)
STACK = spaces.Box(0, 255, (4, 36, 36), np.uint8)  # channels first, as stacked frames have them
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
    return EnvSpec("Any-v0", *raw.ours, None, raw=raw)


def agent_of(variant: str, spec: EnvSpec, **more: Any) -> TorchAgent:
    """An agent whose weights and statistics are far from their beginnings."""
    name, own = VARIANTS[variant]
    config = AGENTS.entry(name).config_type(**{"hidden": [16, 12], "matmul": "mkl", **own, **more})
    agent: TorchAgent = AGENTS.build(config, spec=spec, device="cpu", seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for each in agent.acting_modules.parameters():
            scale = 0.4 / each[0].numel() ** 0.5 if each.ndim else 0.2
            each += scale * torch.randn(each.shape, generator=generator)
        if agent.features.normalizes:
            size = agent.architecture.row_size
            agent.features.refresh(torch.full((size,), 0.7), torch.full((size,), 2.0))
    return agent


def sampled(spec: EnvSpec, space: gym.Space[Any], rows: int = ROWS) -> Array:
    """Observations that an environment may give, as rows."""
    space.seed(zlib.crc32(str(space).encode()))
    values = [space.sample() for _ in range(rows)]
    if isinstance(space, spaces.Dict):
        together: Any = {key: np.stack([each[key] for each in values]) for key in space.spaces}
    else:
        together = np.stack(values)
    nobody: Any = None
    return LoadedPolicy(nobody, spec).rows(together)[0]


def exported(
    folder: Path, agent: TorchAgent, rows: Array, *, onnx: bool = True, name: str = "any"
) -> list[str]:
    """Writes what acts, and verifies it; all but the agent itself, which needs a run's settings."""
    policy: Any = agent.policy_factory(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    form = form_of(agent, policy, name)
    folder.mkdir()
    write_formats(folder, agent, policy, form, rows, onnx=onnx)
    (folder / MODEL).unlink()
    seal(folder, agent, form)
    return verified(opened_folder(folder))


def actions_of(variant: str) -> list[str]:
    if variant in OF_BOXES:
        return ["box"]
    return ["discrete", "choices", "bits", *(["box"] if variant in EITHER else [])]


EVERY_AGENT = [(variant, action) for variant in VARIANTS for action in actions_of(variant)]
EVERY_OBSERVATION = [
    (variant, kind) for kind in OBSERVATIONS for variant in ("rainbow", "iqn", "td3")
]


@pytest.mark.parametrize(("variant", "action"), EVERY_AGENT)
def test_every_agent_acts_alike_in_numpy(tmp_path: Path, variant: str, action: str) -> None:
    spec = spec_of(REALS, ACTIONS[action])
    lines = exported(tmp_path / "to", agent_of(variant, spec), sampled(spec, REALS), onnx=False)
    assert [line.partition(":")[0] for line in lines] == [POLICY_NPZ]


@pytest.mark.parametrize(("variant", "kind"), EVERY_OBSERVATION)
def test_every_observation_is_encoded_alike_in_numpy(
    tmp_path: Path, variant: str, kind: str
) -> None:
    space = OBSERVATIONS[kind]
    spec = spec_of(space, ACTIONS["box" if variant == "td3" else "discrete"])
    exported(tmp_path / "to", agent_of(variant, spec), sampled(spec, space), onnx=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "action"), [each for i, each in enumerate(EVERY_AGENT) if i % 2 or each[1] == "box"]
)
def test_every_agent_acts_alike_in_onnx(tmp_path: Path, variant: str, action: str) -> None:
    spec = spec_of(REALS, ACTIONS[action])
    lines = exported(tmp_path / "to", agent_of(variant, spec), sampled(spec, REALS, 1000))
    assert [line.partition(":")[0] for line in lines] == [POLICY_NPZ, POLICY_ONNX]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "kind"),
    [
        each
        for i, each in enumerate(EVERY_OBSERVATION)
        if i % 3 == (i // 3) % 3 or each[1] == "dict"
    ],
)
def test_every_observation_is_encoded_alike_in_onnx(
    tmp_path: Path, variant: str, kind: str
) -> None:
    space = OBSERVATIONS[kind]
    spec = spec_of(space, ACTIONS["box" if variant == "td3" else "choices"])
    exported(tmp_path / "to", agent_of(variant, spec), sampled(spec, space))


@pytest.mark.slow
@pytest.mark.parametrize("action", ["discrete", "choices"])
@pytest.mark.parametrize("variant", ["rainbow", "discrete_sac"])
def test_masks_are_a_part_of_the_observation(tmp_path: Path, variant: str, action: str) -> None:
    choices = 3 if action == "discrete" else 5
    mask = spaces.Box(0, 1, (choices,), np.uint8)
    spec = spec_of(MaskedDict({"observation": REALS, "action_mask": mask}), ACTIONS[action])
    rng = np.random.default_rng(0)
    masks = rng.integers(2, size=(ROWS, choices), dtype=np.uint8)
    masks[:, [0, choices - 1]] = 1  # a choice of each component
    rows = {"observation": rng.normal(size=(ROWS, 3)).astype(np.float32), "action_mask": masks}
    exported(tmp_path / "to", agent_of(variant, spec), rows)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["impala_resnet", "user"])
def test_networks_without_a_twin_are_exported_to_onnx_alone(tmp_path: Path, network: str) -> None:
    space = STACK if network != "user" else REALS
    spec = spec_of(space, ACTIONS["discrete"])
    with registered(user=Tanh):
        agent = agent_of("dqn", spec, network=network, normalize_obs=network == "user")
        lines = exported(tmp_path / "to", agent, sampled(spec, space))
    assert [line.partition(":")[0] for line in lines] == [POLICY_ONNX]


class Counting(torch.nn.Module):
    """A network of which torch makes no graph: it asks what its numbers are."""

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
    kept: Any = opened_folder(folder).arrays(VERIFICATION)
    kept[what][3] += 1e-3
    np.savez(folder / VERIFICATION, **kept)
    policy: Any = agent.policy_factory(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    (folder / "policy.json").unlink()
    seal(folder, agent, form_of(agent, policy, "td3"))
    with pytest.raises(
        CheckpointError, match=rf"policy\.npz differs .*: {what} by .*, most in row 3 of"
    ):
        verified(opened_folder(folder))
