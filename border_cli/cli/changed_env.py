"""The settings of a saved run with another environment, as `border-eval` and `border-record` take
them: `env=NAME`, `env.id=ID`, `env.kwargs.obstacles=5`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.settings.base import flat
from border_cli.system.files import settings_of

if TYPE_CHECKING:
    from border_cli.launch.effective import EffectiveSettings
    from border_cli.settings.run import RunConfig

OF_ENV = re.compile(r"(\+\+|[+~])?env(\.[\w.]+)?=")
NOT_COMPARED = ("env.option", "env.num_envs", "env.action_mask", "env.own_generators")


def split_env(typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides of the environment, and the other words."""
    chosen = [word for word in typed if OF_ENV.match(word) and not Path(word).is_dir()]
    return chosen, [word for word in typed if word not in chosen]


def settings_in_env(run_dir: Path, chosen: Sequence[str], *, trust: bool) -> RunConfig:
    """The settings of a run with these overrides of `env`, as `border-train --from` composes them.
    They count for the environment of evaluations, too."""
    # imported late: Hydra
    from border_cli.config.beginning import composing
    from border_cli.config.overrides import parsed
    from border_cli.config.saved import ADDRESSES

    typed = [*chosen, f"trust={str(trust).lower()}"]
    with composing(typed, origin=str(run_dir), unused=ADDRESSES) as (composer, overrides):
        config = composer.job(overrides).config
    of_evaluations = deepcopy(config.evaluator.env)
    for override in parsed(chosen):
        if override.key_or_group == "env":
            of_evaluations.clear()
        for name in flat(override.value(), override.key_or_group):
            *around, key = name.split(".")[1:] or [""]
            inner = of_evaluations
            for part in around:
                inner = inner.get(part, {})
            inner.pop(key, None)
    return replace(config, evaluator=replace(config.evaluator, env=of_evaluations))


def env_changes(run_dir: Path, effective: EffectiveSettings) -> list[str]:
    """`env.kwargs.obstacles: 3 -> 5`: how the environment differs from the one that evaluated the
    run."""
    from border_cli.config.describe import shown
    from border_cli.config.saved import read_saved

    saved: Mapping[str, Any] = read_saved(settings_of(run_dir))
    before = flat(saved.get("env", {}), "env")
    before |= flat(saved.get("evaluator", {}).get("env") or {}, "env")
    after = flat(effective.evaluation_env, "env")
    pairs = {name: (before.get(name, {}), after.get(name, {})) for name in {**before, **after}}
    return [
        f"{name}: " + " -> ".join("absent" if each == {} else shown(each) for each in pair)
        for name, pair in pairs.items()
        if name not in NOT_COMPARED and pair[0] != pair[1]
    ]
