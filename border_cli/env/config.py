"""Settings of the environments. Never imports gymnasium."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from border_cli.core.config import EnvConfig
from border_cli.core.settings import setting
from border_cli.registry import ENVS

SUCCESS = "is_success"
NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
# Metrics of their own under `episode/` and `eval/`.
RESERVED = ("return", "return_std", "return_min", "return_max", "length", "normalized_score")


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
    info_metrics: list[str] = setting(
        [],
        "numbers in info to record as episode/NAME and eval/NAME: those of an episode's last step; "
        "is_success is always recorded where present",
    )
    vectorization: Vectorization = setting(
        Vectorization.auto,
        "how an actor steps several environments: auto uses the environment's own vector "
        "implementation where possible; sync steps them one by one, with a separate seed for "
        "each episode. Bit-reproducible runs (trainer=sync, actor_manager=serial) always use "
        "sync",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.info_metrics:
            if not NAME.fullmatch(name) or name in RESERVED:
                self.refuse(
                    "info_metrics",
                    self.info_metrics,
                    "must be names in info, of letters, digits, '.', '_' and '-', and none of "
                    f"{', '.join(RESERVED)}",
                )

    @property
    def recorded_info(self) -> tuple[str, ...]:
        """All names in `info` that are recorded where they are present."""
        return tuple(dict.fromkeys([SUCCESS, *self.info_metrics]))

    def one_by_one(self) -> Self:
        return replace(self, vectorization=Vectorization.sync)


ENVS.register("gym", GymConfig, "border_cli.env.gym:GymEnvFactory")
