"""Small soft actor-critic agents."""

from __future__ import annotations

from typing import Any

from border_cli.agent.config import SacConfig, TqcConfig
from border_cli.agent.sac import Sac, SoftActorCritic
from border_cli.agent.tqc import Tqc
from border_cli.core.spaces import EnvSpec
from tests.support.continuous_env import spec

SMALL: dict[str, Any] = {"hidden": [8, 6], "learning_rate": 0.01, "batch_size": 8}
REDQ = {"num_critics": 5, "subset": 2, "actor_critics": "mean", "policy_delay": 3}
DROQ = {"dropout": 0.2, "critic_layer_norm": True, "actor_critics": "mean", "policy_delay": 2}


def sac(seed: int = 0, env: EnvSpec | None = None, **settings: Any) -> Sac:
    config = SacConfig(**{**SMALL, **settings})
    return Sac(config, spec=env or spec(), device="cpu", seed=seed)


def tqc(seed: int = 0, env: EnvSpec | None = None, **settings: Any) -> Tqc:
    small = {**SMALL, "num_critics": 3, "num_quantiles": 5, "dropped_quantiles": 2}
    config = TqcConfig(**{**small, **settings})
    return Tqc(config, spec=env or spec(), device="cpu", seed=seed)


def agent_of(kind: str, seed: int = 0, **settings: Any) -> SoftActorCritic:
    if kind == "tqc":
        return tqc(seed, **settings)
    return sac(seed, **{**{"sac": {}, "redq": REDQ, "droq": DROQ}[kind], **settings})


KINDS = ("sac", "redq", "droq", "tqc")
