"""Environment overrides of `border-eval` and `border-record`, such as `env=NAME`, `env.id=ID` or
`env.kwargs.obstacles=5`, applied to the settings of a saved run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.settings.base import flat
from border_cli.system.files import settings_path

if TYPE_CHECKING:
    from border_cli.launch.effective import EffectiveSettings
    from border_cli.settings.run import RunConfig

ENV_OVERRIDE = re.compile(r"(\+\+|[+~])?env(\.[\w.]+)?=")
NOT_COMPARED = ("env.option", "env.num_envs", "env.action_mask", "env.own_generators")


def split_env(typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits the typed words into overrides of the environment and all others."""
    env_overrides = [word for word in typed if ENV_OVERRIDE.match(word) and not Path(word).is_dir()]
    return env_overrides, [word for word in typed if word not in env_overrides]


def settings_in_env(run_dir: Path, env_overrides: Sequence[str], *, trust: bool) -> RunConfig:
    """Returns the settings of a run with `env` overridden, composed as by `border-train --from`.
    The overrides apply to the environment of evaluations as well."""
    # imported late: Hydra is slow to import
    from border_cli.config.open_composer import open_composer
    from border_cli.config.overrides import chooses, parse_overrides
    from border_cli.config.saved import ADDRESSES

    typed = [*env_overrides, f"trust={str(trust).lower()}"]
    with open_composer(typed, origin=str(run_dir), unused=ADDRESSES) as (composer, overrides):
        config = composer.job(overrides).config
    evaluation_env = deepcopy(config.evaluator.env)
    for override in parse_overrides(env_overrides):
        if chooses(override):
            evaluation_env.clear()
        for name in flat(override.value(), override.key_or_group):
            *parents, key = name.split(".")[1:] or [""]
            section = evaluation_env
            for parent in parents:
                if not isinstance(section.get(parent), dict):
                    key = parent
                    break
                section = section[parent]
            section.pop(key, None)
    return replace(config, evaluator=replace(config.evaluator, env=evaluation_env))


def env_changes(run_dir: Path, effective: EffectiveSettings) -> list[str]:
    """Returns the differences from the environment in which the run was evaluated, as lines like
    `env.kwargs.obstacles: 3 -> 5`."""
    from border_cli.config.describe import format_setting
    from border_cli.config.saved import read_saved
    from border_cli.launch.effective import DEFAULT

    saved: Mapping[str, Any] = read_saved(settings_path(run_dir))
    evaluation = flat(saved.get("evaluator", {}).get("env") or {}, "env")
    before = flat(saved.get("env", {}), "env") | evaluation
    before = {name: value for name, value in before.items() if evaluation.get(name) != DEFAULT}
    after = flat(effective.evaluation_env, "env")
    pairs = {name: (before.get(name, {}), after.get(name, {})) for name in {**before, **after}}
    return [
        f"{name}: "
        + " -> ".join("absent" if value == {} else format_setting(value) for value in pair)
        for name, pair in pairs.items()
        if name not in NOT_COMPARED and pair[0] != pair[1]
    ]
