"""Settings that say one thing in two ways, of which the nearest to the command line counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from border_cli.config.sources import ConfigFile, Files, settings_in
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


def drop_weaker_alternatives(files: Files, typed: set[str]) -> None:
    """Serves files without a setting where a nearer file, or the command line, says it in the other
    way. Both in one place are left to be refused."""
    written = [
        (part, settings_in(part.content, part.package))
        for part in reversed(files.parts)
        if part.file
    ]
    for name, others in ALTERNATIVES.items():
        ways, nearer = ({name}, {*others}), typed
        for part, found in written:
            nearer = nearer if any(way & nearer for way in ways) else found
            dropped = [way & found for way in ways if not way & nearer]
            if len(dropped) == 1 and dropped[0]:
                _drop(files, part, dropped[0])


def _drop(files: Files, part: ConfigFile, names: set[str]) -> None:
    content = files.copied(part.path).config
    for name in names:
        folder, _, key = name.removeprefix(f"{part.package}.").rpartition(".")
        node: Any = OmegaConf.select(content, folder) if folder else content
        node.pop(key)
