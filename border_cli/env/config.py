"""Settings of the environments. Never imports gymnasium."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from border_cli.core.config import EnvConfig
from border_cli.core.settings import setting
from border_cli.registry import ENVS


class Vectorization(StrEnum):
    """Who steps the environments of one actor."""

    auto = "auto"
    sync = "sync"


@dataclass(kw_only=True)
class GymConfig(EnvConfig):
    """Any Gymnasium environment by its id; `module:Id-v0` imports the module first."""

    kwargs: dict[str, Any] = setting({}, "arguments of the environment's constructor")
    wrappers: list[Any] = setting(
        [],
        "names in gymnasium.wrappers, innermost first, or {Name: {argument: value}}",
    )
    vectorization: Vectorization = setting(
        Vectorization.auto,
        "of several environments of an actor: auto takes the environment's own vector "
        "implementation where it fits; sync steps them one by one, each episode with its own seed, "
        "as runs that are bit-reproducible always do (trainer=sync, actor_manager=serial)",
    )


ENVS.register("gym", GymConfig, "border_cli.env.gym:GymEnvFactory")
