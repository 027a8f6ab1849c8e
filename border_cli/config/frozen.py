"""Saved configurations: complete, and primary configurations again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from omegaconf import OmegaConf

from border_cli.config.interpolation import literal
from border_cli.core.config import RecorderConfig, RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.files import SETTINGS, own_folder, write_text
from border_cli.registry import GROUPS

HEADER = "# All settings of one run. `border-train -cd FOLDER -cn NAME` runs this file again.\n"
BEFORE = "resolved-before.yaml"
MOST_BYTES = 2**20  # that are read as saved settings, and hence written


def resolved_yaml(config: RunConfig) -> str:
    """All values with their types: a file that runs again by itself, wherever it is put.

    Where this one run was written, and how it was asked for, is no part of it.
    """
    entries = ["/schema/run@_here_", "/hydra_settings", *_typed_entries(config), "_self_"]
    listed = "".join(f"- {entry}\n" for entry in entries)
    plain = literal(replace(config, run_dir=None, resume=None, dry_run=False))
    text = f"{HEADER}defaults:\n{listed}{OmegaConf.to_yaml(OmegaConf.structured(plain))}"
    if len(text.encode()) > MOST_BYTES:
        raise ConfigError(
            f"the settings have {len(text.encode()):,} bytes as YAML, more than {MOST_BYTES:,}: "
            "store large data in a separate file and name it in a setting"
        )
    return text


def _typed_entries(config: RunConfig) -> list[str]:
    entries = []
    for each in fields(config):
        chosen = getattr(config, each.name)
        if each.name not in GROUPS:
            continue
        members = chosen if isinstance(chosen, dict) else {"": chosen}
        for key, settings in members.items():
            name = GROUPS[each.name].entry_of(settings).name
            package = f"{each.name}.{key}" if isinstance(settings, RecorderConfig) else each.name
            entries.append(f"/schema/{each.name}/{name}@{package}")
    return entries


def write_resolved(run_dir: Path, text: str) -> Path:
    """Saves `resolved_yaml` in a run directory, at once."""
    path = run_dir / SETTINGS
    run_dir.mkdir(parents=True, exist_ok=True)
    own_folder(path.parent)
    write_text(path, text)
    return path


def note_attempt(run_dir: Path, record: Mapping[str, str], text: str) -> None:
    """Notes in `.hydra/resume-<n>` what Hydra was told, and saves the settings of this attempt.

    Settings that these replace are kept beside the record.
    """
    saved = run_dir / SETTINGS
    number = 1
    own_folder(saved.parent)
    while os.path.lexists(saved.parent / f"resume-{number}"):
        number += 1
    folder = saved.parent / f"resume-{number}"
    folder.mkdir()
    for name, content in record.items():
        (folder / name).write_text(content, encoding="utf-8")
    before = saved.read_text(encoding="utf-8") if saved.is_file() else text
    if before != text:
        (folder / BEFORE).write_text(before, encoding="utf-8")
    write_resolved(run_dir, text)


def begin_attempt(run_dir: Path, record: Mapping[str, str], text: str) -> None:
    """Saves the settings of a first attempt, or of a later one with its record."""
    if record:
        note_attempt(run_dir, record, text)
    else:
        write_resolved(run_dir, text)
