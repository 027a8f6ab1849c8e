"""Jobs, each with a run directory and checked settings, and the files that store the settings.

`.hydra/resolved.yaml` includes the types of the settings, so that it can be run on its own. `${` in
a value is escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from border_cli.registry import GROUPS, components
from border_cli.settings.run import RunConfig, modules_of_env
from border_cli.system.files import SETTINGS, write_text

HEADER = "# All settings of one run. `border-train -cd FOLDER -cn NAME` runs this file again.\n"
BEFORE = "resolved-before.yaml"
ALWAYS_LISTED = ("/schema/run@_here_", "/hydra_settings", "_self_")  # in saved defaults lists
_OPENING = re.compile(r"(\\*)\$\{")


class Source(NamedTuple):
    """The file of a chosen option."""

    group: str
    choice: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run requested from a shell, from Python or by a sweep."""

    folder: Path  # absolute path of the run directory
    config: RunConfig
    overrides: tuple[str, ...] = ()  # without overrides of Hydra's own settings
    number: int | None = None  # index in a sweep; None for a single run
    sources: tuple[Source, ...] = ()  # files that took part, listed in the header
    record: Mapping[str, str] = field(default_factory=dict)  # files that Hydra saves, by name
    command: tuple[str, ...] = ()  # arguments as typed
    import_paths: tuple[str, ...] = ()  # folders of the imported modules, see `search_path.homes`
    trust: bool = False  # see `load_policy`

    @property
    def in_sweep(self) -> bool:
        """True if the job is part of a sweep."""
        return self.number is not None

    @property
    def name(self) -> str:
        """Name of the job in messages."""
        return f"job {self.number} ({' '.join(self.overrides)})" if self.in_sweep else "the run"


def modules_of(config: RunConfig) -> list[str]:
    """Returns the modules named in the settings of a run."""
    envs = (vars(config.env), config.evaluator.env)
    env_modules = [module for env in envs for _, module in modules_of_env(env)]
    return list(dict.fromkeys([*config.imports, *env_modules]))


def begin_attempt(run_dir: Path, record: Mapping[str, str], text: str) -> None:
    """Saves the request of an attempt (`record`) and its settings (`text`). The first attempt uses
    `.hydra`; a resume uses `.hydra/resume-<n>` and also saves earlier settings that differ."""
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
    """Writes the text of `resolved_yaml` to a run directory."""
    path = run_dir / SETTINGS
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def resolved_yaml(config: RunConfig) -> str:
    """Returns all settings with their types, as a config file that can be run from any folder.

    Resets `run_dir`, `resume` and `dry_run`, which apply to a single command.
    """
    entries = [*ALWAYS_LISTED[:2]]
    for path, settings in components(config).items():
        group = path.partition(".")[0]
        entries.append(f"/schema/{group}/{GROUPS[group].entry_of(settings).name}@{path}")
    entries.append(ALWAYS_LISTED[2])
    defaults = "".join(f"- {entry}\n" for entry in entries)
    values = {**plain(config), "run_dir": None, "resume": None, "dry_run": False}
    return f"{HEADER}defaults:\n{defaults}{yaml_text(values)}"


def plain(value: Any) -> Any:
    """Converts settings to mappings, lists and scalars for OmegaConf and YAML. Escapes `${` and
    converts NumPy scalars to Python numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return _OPENING.sub(lambda match: 2 * match[1] + r"\${", value)
    return value.item() if getattr(value, "shape", None) == () else value


def yaml_text(content: object) -> str:
    """Formats plain values as YAML, with the same result as `OmegaConf.to_yaml`."""
    options = {"default_flow_style": False, "allow_unicode": True, "sort_keys": False}
    text: str = yaml.dump(content, Dumper=_Dumper, **options)
    return text


class _Dumper(getattr(yaml, "CDumper", yaml.Dumper)):  # type: ignore[misc]
    """Writes the same YAML as OmegaConf, six times faster if PyYAML has its C library. Without it,
    dumping took 3 of the 5 seconds before the first job of a 200-job sweep."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Writes a value in full wherever it occurs: saved settings with aliases are refused."""
        return True


def _represent_string(dumper: Any, text: str) -> Any:
    """Quotes strings that OmegaConf would read as a number, such as `1e3`."""
    style = None
    with suppress(ValueError):
        float(text)
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_path(dumper: Any, path: PurePath) -> Any:
    """Writes a path with the class name of Python 3.11 and 3.12. OmegaConf cannot read that of
    3.13, `pathlib._local.PosixPath`."""
    tag = f"tag:yaml.org,2002:python/object/apply:pathlib.{type(path).__name__}"
    return dumper.represent_sequence(tag, path.parts)


_Dumper.add_representer(str, _represent_string)
_Dumper.add_multi_representer(PurePath, _represent_path)
