"""Intervals of the trainer in updates and in env steps: the one that is set nearest to the command
line counts."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from border_cli.config.sources import ConfigFile, Files, settings_in
from border_cli.settings.run import INTERVALS

PAIRS = [{f"trainer.{name}_interval", f"trainer.{name}_interval_env_steps"} for name in INTERVALS]
BOTH_WAYS = set[str]().union(*PAIRS)


def drop_weaker_alternatives(files: Files, typed: set[str]) -> None:
    """Serves files without an interval where a nearer file, or the command line, sets the other one
    of its pair. Both in one place are left to be refused."""
    written = [
        (part, settings_in(part.content, part.package))
        for part in reversed(files.parts)
        if part.file
    ]
    for pair in PAIRS:
        nearer = typed & pair
        for part, settings in written:
            nearer = nearer or settings & pair
            for name in settings & pair - nearer:
                _drop(files, part, name)


def _drop(files: Files, part: ConfigFile, name: str) -> None:
    content = files.copied(part.path).config
    folder, _, key = name.removeprefix(f"{part.package}.").rpartition(".")
    node: Any = OmegaConf.select(content, folder) if folder else content
    node.pop(key)
