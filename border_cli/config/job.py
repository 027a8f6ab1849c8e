"""A job: its run directory and its settings, composed and checked, and how they are saved.

The settings in `.hydra` are written with their types, so that they run again by themselves. `${` in
a value is written escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from border_cli.registry import GROUPS, components
from border_cli.settings.run import RunConfig, modules_of_env
from border_cli.system.files import SETTINGS, write_text

HEADER = "# All settings of one run. `border-train -cd FOLDER -cn NAME` runs this file again.\n"
BEFORE = "resolved-before.yaml"
ALWAYS_LISTED = ("/schema/run@_here_", "/hydra_settings", "_self_")  # in every defaults list
_OPENING = re.compile(r"(\\*)\$\{")


class Source(NamedTuple):
    """Which file a choice came from."""

    group: str
    choice: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run that was asked for, from a shell, from Python or by a sweep."""

    folder: Path  # absolute: its run directory
    config: RunConfig
    overrides: tuple[str, ...] = ()  # without those of Hydra itself
    number: int | None = None  # within a sweep
    sources: tuple[Source, ...] = ()  # the files that took part, for its header
    record: Mapping[str, str] = field(default_factory=dict)  # what Hydra saves: files and texts
    command: tuple[str, ...] = ()  # as typed
    import_paths: tuple[str, ...] = ()  # where its modules were found, see `search_path.homes`
    trust: bool = False  # see `load_policy`

    @property
    def in_sweep(self) -> bool:
        """Whether it is one of several jobs of a command."""
        return self.number is not None

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"job {self.number} ({' '.join(self.overrides)})" if self.in_sweep else "the run"


def modules_of(config: RunConfig) -> list[str]:
    """The modules that the settings of a run lead to."""
    envs = (vars(config.env), config.evaluator.env)
    named = [module for env in envs for _, module in modules_of_env(env)]
    return list(dict.fromkeys([*config.imports, *named]))


def begin_attempt(run_dir: Path, record: Mapping[str, str], text: str) -> None:
    """Saves how an attempt was asked for, as files and texts, and its settings: of a first one in
    `.hydra`, of a later one in `.hydra/resume-<n>`, with the settings that these replace."""
    saved = run_dir / SETTINGS
    before = saved.read_text(encoding="utf-8") if saved.is_file() else text
    files = {**record, **({BEFORE: before} if before != text else {})}
    saved.parent.mkdir(exist_ok=True)
    folder, number = saved.parent, 1
    if files and any(folder.iterdir()):
        while os.path.lexists(folder / f"resume-{number}"):
            number += 1
        folder = folder / f"resume-{number}"
        folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    write_resolved(run_dir, text)


def write_resolved(run_dir: Path, text: str) -> Path:
    """Saves the text of `resolved_yaml` in a run directory."""
    path = run_dir / SETTINGS
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def resolved_yaml(config: RunConfig) -> str:
    """All values with their types: a file that runs again by itself, wherever it is put.

    Where this one run was written, and how it was asked for, is no part of it.
    """
    entries = [*ALWAYS_LISTED[:2]]
    for place, settings in components(config).items():
        group = place.partition(".")[0]
        entries.append(f"/schema/{group}/{GROUPS[group].entry_of(settings).name}@{place}")
    entries.append(ALWAYS_LISTED[2])
    listed = "".join(f"- {entry}\n" for entry in entries)
    values = {**plain(config), "run_dir": None, "resume": None, "dry_run": False}
    return f"{HEADER}defaults:\n{listed}{yaml_text(values)}"


def plain(value: Any) -> Any:
    """Settings as OmegaConf and YAML are given them: mappings, lists and values, in which `${` is
    escaped and a scalar of numpy's is Python's own."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return _OPENING.sub(lambda found: 2 * found[1] + r"\${", value)
    return value.item() if getattr(value, "shape", None) == () else value


def yaml_text(content: object) -> str:
    """Plain values as YAML, the same that `OmegaConf.to_yaml` gives."""
    how = {"default_flow_style": False, "allow_unicode": True, "sort_keys": False}
    text: str = yaml.dump(content, Dumper=_Dumper, **how)
    return text


class _Dumper(getattr(yaml, "CDumper", yaml.Dumper)):  # type: ignore[misc]
    """Writes as OmegaConf does, six times as fast where PyYAML has its C library: of a sweep with
    200 jobs, that took three of five seconds before the first one starts."""


def _represented(dumper: Any, text: str) -> Any:
    """OmegaConf reads `1e3` as a number, so that a text is quoted."""
    style = None
    with suppress(ValueError):
        float(text)
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represented)
