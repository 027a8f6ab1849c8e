"""The choice between numpy and torch, with its reason, without importing torch for it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.backend_choice import has_cuda, make_backend, why_not_numpy
from border_cli.agent.config import DqnConfig, IqnConfig, QrdqnConfig
from border_cli.agent.learner_config import Augmentation, LearnerConfig
from border_cli.agent.ppo_config import PpoConfig
from border_cli.core.spaces import Space
from border_cli.errors import ConfigError
from border_cli.nn.architecture import Architecture
from border_cli.nn.backend import Backend
from border_cli.settings.networks import Activation, BackendName, Matmul, MatmulPrecision
from tests.support.spaces import pixels, reals

VECTOR, IMAGE = reals(4), pixels(12, 12, 3)


@dataclass(kw_only=True)
class InheritingConfig(DqnConfig):
    """The config of a user's agent, whose networks may be in torch."""


@dataclass(kw_only=True)
class DeclaringConfig(DqnConfig):
    """The config of a user's agent that can be run in numpy."""

    numpy_networks = True


def backend_of(config: LearnerConfig, space: Space = VECTOR, device: str = "cpu") -> Backend:
    architecture = config.architecture(space)
    rng = np.random.default_rng(0)
    return make_backend(config, architecture, device=device, generator=rng, noise_seed=0)


def header_of(backend: Backend) -> str:
    """Returns the line of the header that names the backend and the reason."""
    return dict(backend.describe())["backend"]


@pytest.mark.parametrize(
    "config",
    [
        DqnConfig(),
        DqnConfig(dueling=True, num_atoms=51, layer_norm=True, activation=Activation.tanh),
        DqnConfig(optimizer="AdamW", optimizer_kwargs={"weight_decay": 0.1}, num_threads=1),
        DqnConfig(normalize_obs=True, normalize_reward=True),
        DqnConfig(hidden=[]),
        QrdqnConfig(),
        PpoConfig(share_network=True),
        DeclaringConfig(),
    ],
)
@pytest.mark.parametrize("backend", [BackendName.auto, BackendName.numpy])
def test_dense_layers_on_a_cpu_are_run_by_numpy(config: Any, backend: BackendName) -> None:
    config = type(config)(**{**vars(config), "backend": backend})
    chosen = backend_of(config)
    assert (chosen.name, str(chosen.device)) == ("numpy", "cpu")
    assert header_of(chosen).startswith(f"numpy (agent.backend={backend}: ")


def test_pixels_as_numbers_are_dense_layers() -> None:
    assert backend_of(DqnConfig(network="mlp", hidden=[8]), IMAGE).name == "numpy"


OBSTACLES: dict[str, tuple[LearnerConfig, Space, str]] = {
    "agent=iqn has networks in torch only": (IqnConfig(option="iqn"), VECTOR, "cpu"),
    "agent.noisy=true": (DqnConfig(option="dqn", noisy=True), VECTOR, "cpu"),
    "agent=this agent has networks in torch only": (InheritingConfig(), VECTOR, "cpu"),
    "agent.network=auto is more than dense layers": (DqnConfig(), IMAGE, "cpu"),
    "agent.activation=elu is not in numpy": (DqnConfig(activation=Activation.elu), VECTOR, "cpu"),
    "agent.activation=silu is not in numpy": (DqnConfig(activation=Activation.silu), VECTOR, "cpu"),
    "agent.optimizer=SGD is not in numpy": (DqnConfig(optimizer="SGD"), VECTOR, "cpu"),
    "agent.compile=true": (DqnConfig(compile=True), VECTOR, "cpu"),
    "agent.augment=shift": (DqnConfig(augment=Augmentation.shift), VECTOR, "cpu"),
    "agent.matmul=mkl": (DqnConfig(matmul=Matmul.mkl), VECTOR, "cpu"),
    "agent.matmul_precision=medium": (
        DqnConfig(matmul_precision=MatmulPrecision.medium),
        VECTOR,
        "cpu",
    ),
    "agent.num_threads=2": (DqnConfig(num_threads=2), VECTOR, "cpu"),
    "device=cuda:1": (DqnConfig(), VECTOR, "cuda:1"),
    "device=mps": (DqnConfig(), VECTOR, "mps"),
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_what_numpy_cannot_run_is_named_and_refused_if_numpy_is_requested(reason: str) -> None:
    config, space, device = OBSTACLES[reason]
    assert why_not_numpy(config, config.architecture(space), device) == reason
    requested = type(config)(**{**vars(config), "backend": BackendName.numpy})
    with pytest.raises(ConfigError, match=r"^agent.backend must be torch: ") as refused:
        backend_of(requested, space, device)
    assert reason in str(refused.value)
    assert str(refused.value).endswith("got 'numpy'")


def test_options_of_adamw_that_only_torch_has_are_left_to_it() -> None:
    config = DqnConfig(optimizer="AdamW", optimizer_kwargs={"amsgrad": True})
    reason = why_not_numpy(config, architecture_of(config), "cpu")
    assert reason == "agent.optimizer=AdamW with {'amsgrad': True} is not in numpy"


def architecture_of(config: LearnerConfig) -> Architecture:
    return config.architecture(VECTOR)


def test_a_network_of_a_user_needs_torch() -> None:
    architecture = Architecture(VECTOR, kind="mine", target="user_networks:Tanh")
    reason = why_not_numpy(DqnConfig(), architecture, "cpu")
    assert reason == "agent.network=mine is more than dense layers"


@pytest.mark.parametrize(
    ("config", "space", "reason"),
    [
        (DqnConfig(activation=Activation.silu), VECTOR, "agent.activation=silu is not in numpy"),
        (DqnConfig(), IMAGE, "agent.network=auto is more than dense layers"),
        (IqnConfig(option="iqn"), VECTOR, "agent=iqn has networks in torch only"),
    ],
)
def test_auto_gives_torch_what_numpy_cannot_run(config: Any, space: Space, reason: str) -> None:
    chosen = backend_of(config, space)
    assert chosen.name == "torch"
    assert header_of(chosen) == f"torch (agent.backend=auto: {reason})"


def test_torch_runs_what_numpy_could_run_if_it_is_requested() -> None:
    chosen = backend_of(DqnConfig(backend=BackendName.torch))
    assert header_of(chosen) == "torch (agent.backend=torch: as requested)"


def test_auto_chooses_torch_for_large_networks_and_says_so() -> None:
    small, large = [256, 256], [2048, 2048]
    assert backend_of(DqnConfig(hidden=small)).name == "numpy"
    chosen = backend_of(DqnConfig(hidden=large))
    weights = 4 * 2048 + 2048 * 2048
    assert header_of(chosen) == (
        f"torch (agent.backend=auto: a network of {weights:,} weights is large)"
    )
    assert backend_of(DqnConfig(hidden=large, backend=BackendName.numpy)).name == "numpy"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Returns a function that makes the machine look as if it had the drivers of GPUs."""

    def pretend(*, nvidia: bool = False, amd: bool = False, usable: bool = True) -> None:
        def load(name: str) -> object:
            if not nvidia:
                raise OSError(f"{name}: cannot open shared object file")
            return object()

        monkeypatch.setattr(ctypes, "CDLL", load)
        monkeypatch.setattr(Path, "exists", lambda path: amd and path == Path("/dev/kfd"))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)

    return pretend


def test_without_a_driver_torch_is_not_asked(driver: Callable[..., None]) -> None:
    driver(usable=True)  # what torch would say
    assert not has_cuda()
    config = DqnConfig()
    assert why_not_numpy(config, architecture_of(config), "auto") is None


@pytest.mark.parametrize("drivers", [{"nvidia": True}, {"amd": True}])
@pytest.mark.parametrize("usable", [True, False])
def test_with_a_driver_torch_decides(
    drivers: dict[str, bool], usable: bool, driver: Callable[..., None]
) -> None:
    driver(**drivers, usable=usable)
    assert has_cuda() == usable
    config = DqnConfig()
    reason = why_not_numpy(config, architecture_of(config), "auto")
    assert reason == ("device=auto found a GPU" if usable else None)
    assert why_not_numpy(config, architecture_of(config), "cpu") is None


@pytest.mark.skipif(has_cuda(), reason="this machine has a GPU, so torch is asked for it")
def test_agents_in_numpy_never_import_torch() -> None:
    code = """if True:
        import sys
        import numpy as np
        from border_cli.agent.config import DqnConfig, QrdqnConfig
        from border_cli.agent.ppo_config import PpoConfig
        from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
        from border_cli.nn.batch import empty_batch
        from border_cli.registry import AGENTS, register_builtin
        register_builtin()
        low = np.full(3, -np.inf, np.float32)
        seen = BoxSpace((3,), "float32", low, -low)
        spec = EnvSpec(id="x", observation=seen, action=DiscreteSpace(2), max_episode_steps=None)
        forms = dict(dueling=True, num_atoms=5, conservative_weight=1, layer_norm=True)
        for config in (DqnConfig(), DqnConfig(**forms), QrdqnConfig(), PpoConfig()):
            for device in ("cpu", "auto"):
                agent = AGENTS.build(config, spec=spec, device=device, seed=0)
            with agent.learner_thread():
                agent.update(empty_batch(spec, 4, agent.batch_columns))
            agent.load_state_dict(agent.state_dict())
            policy = agent.policy_factory(np.random.default_rng(0))
            policy.load_snapshot(agent.snapshot())
            policy.act(np.zeros((2, 3), np.float32), explore=True)
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
