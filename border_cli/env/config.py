"""Settings of the environments. Never imports gymnasium."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

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

    kwargs: dict[str, Any] = setting({}, "keyword arguments of the environment's constructor")
    wrappers: list[Any] = setting(
        [],
        "wrappers in gymnasium.wrappers or module:Class, innermost first: Name or "
        "{Name: {argument: value}}",
    )
    vectorization: Vectorization = setting(
        Vectorization.auto,
        "how an actor steps several environments: auto uses the environment's own vector "
        "implementation where possible; sync steps them one by one, with a separate seed for "
        "each episode. Bit-reproducible runs (trainer=sync, actor_manager=serial) always use "
        "sync",
    )

    def one_by_one(self) -> Self:
        return replace(self, vectorization=Vectorization.sync)


ENVS.register("gym", GymConfig, "border_cli.env.gym:GymEnvFactory")
