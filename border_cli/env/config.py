"""Settings of the environments. Never imports gymnasium."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from border_cli.core.config import EnvConfig
from border_cli.core.settings import setting
from border_cli.registry import ENVS


@dataclass(kw_only=True)
class GymConfig(EnvConfig):
    """Any Gymnasium environment by its id; `module:Id-v0` imports the module first."""

    kwargs: dict[str, Any] = setting({}, "arguments of the environment's constructor")
    wrappers: list[Any] = setting(
        [],
        "names in gymnasium.wrappers, innermost first, or {Name: {argument: value}}",
    )


ENVS.register("gym", GymConfig, "border_cli.env.gym:GymEnvFactory")
