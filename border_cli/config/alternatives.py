"""Settings that say one thing in two ways, of which the nearest to the command line counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from border_cli.config.sources import Files, Part
from border_cli.settings.base import flat
from border_cli.settings.run import INTERVALS

# Each setting, and those that it stands for.
ALTERNATIVES: Mapping[str, Sequence[str]] = {
    "agent.epsilon": ("agent.epsilon_start", "agent.epsilon_final", "agent.epsilon_steps"),
    "replay_buffer.beta": (
        *("replay_buffer.beta_0", "replay_buffer.beta_final"),
        "replay_buffer.n_opts_final",
    ),
    **{f"trainer.{each}_interval_env_steps": (f"trainer.{each}_interval",) for each in INTERVALS},
}
BOTH_WAYS = {*ALTERNATIVES, *(name for names in ALTERNATIVES.values() for name in names)}


def drop_weaker_alternatives(files: Files, overrides: Sequence[Override]) -> None:
    """Serves files without a setting where a nearer file, or the command line, says it in the other
    way. Both in one place are left to be refused."""
    typed = {
        name
        for each in overrides
        if not (each.is_sweep_override() or each.is_delete())
        for name in _set_in(each.value(), each.key_or_group)
    }
    written = [
        (part, _set_in(part.content, part.package)) for part in reversed(files.parts) if part.file
    ]
    for name, others in ALTERNATIVES.items():
        ways, nearer = ({name}, {*others}), typed
        for part, found in written:
            nearer = nearer if any(way & nearer for way in ways) else found
            dropped = [way & found for way in ways if not way & nearer]
            if len(dropped) == 1 and dropped[0]:
                _drop(files, part, dropped[0])


def _set_in(value: object, path: str) -> set[str]:
    """Which of these settings a file, or what is typed for a path, sets."""
    if isinstance(value, DictConfig):
        value = OmegaConf.to_container(value, resolve=False)
    keys = [key for key, each in flat(value, path).items() if each is not None]
    return {".".join(key.split(".")[:2]) for key in keys} & BOTH_WAYS  # of a schedule, its setting


def _drop(files: Files, part: Part, names: set[str]) -> None:
    found = files.served(part.path)
    assert found is not None
    content = deepcopy(found.config)
    for name in names:
        folder, _, key = name.removeprefix(f"{part.package}.").rpartition(".")
        node: Any = OmegaConf.select(content, folder) if folder else content
        node.pop(key)
    files.made[part.path] = replace(found, config=content)
