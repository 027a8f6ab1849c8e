"""The settings of a run by their dotted names: as `run.json` has them, or, of a run of an earlier
version, from the files in its `.hydra`.

Those may be another's. They are read as plain data: aliases, by which a small file becomes a
huge one, and tags that build objects are refused, and nothing is interpolated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.files import SETTINGS, readable_bytes
from border_cli.core.settings import OF_ONE_COMMAND, flat
from border_cli.run.status import read_run

MOST_BYTES, MOST_LEVELS = 2**20, 50  # as of `config.saved`
_CHOICES = re.compile(r"^    choices:\n((?:      .*\n)+)", re.MULTILINE)
_CHOICE = re.compile(r"^      (\w+): (\S+)$", re.MULTILINE)
_COMPONENT = re.compile(r"/schema/(\w+)/([^/@\s]+)@\1(\.\S+)?")
_SEED = re.compile(r"^seed: (\d+)$", re.MULTILINE)
_OPTION = re.compile(r"^(\w+):\n(?:  .*\n)*?  option: (\S+)$", re.MULTILINE)
_ENV_ID = re.compile(r"^env:\n(?:  .*\n)*?  id: (\S+)$", re.MULTILINE)


def read_settings(run_dir: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """All saved settings, and under the name of each group the option that was chosen.

    `facts` are those of `run.json`. Raises `CheckpointError` where they have no settings and the
    file of them is missing or no plain YAML.
    """
    known = facts.get("settings")
    return known if isinstance(known, dict) else _from_yaml(run_dir)


def read_labels(run_dir: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """At least the chosen options, the seed and `env.id`, as far as they are known.

    They are found in the text, a hundred times faster than YAML is read.
    """
    known = facts.get("settings")
    if isinstance(known, dict):
        return known
    text = saved_text(run_dir / SETTINGS) or ""
    env_id, seed = _ENV_ID.search(text), _SEED.search(text)
    found = _options(run_dir, text)
    if env_id:
        found["env.id"] = env_id[1].strip("'\"")
    return {**found, "seed": int(seed[1])} if seed else found


def chosen_options(run_dir: Path) -> dict[str, str]:
    """The option that was chosen of each group; a list of recorders is none."""
    labels = read_labels(run_dir, read_run(run_dir))
    return {
        name: value for name, value in labels.items() if "." not in name and isinstance(value, str)
    }


def _from_yaml(run_dir: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    path = run_dir / SETTINGS
    text = saved_text(path)
    if text is None:
        raise CheckpointError(f"{path} cannot be read")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_odd_yaml(yaml, yaml.parse(text, Loader=loader))
        found = yaml.load(text, Loader=_with_paths(loader))
    except (yaml.YAMLError, ValueError) as error:
        raise CheckpointError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict) or not isinstance(found.get("defaults"), list):
        raise CheckpointError(f"{path} is not a saved configuration: it has no defaults list")
    options = _options(run_dir, text)
    apart = {"defaults", *OF_ONE_COMMAND, *(f"{group}.option" for group in options)}
    kept = {name: value for name, value in flat(found).items() if name not in apart}
    return {**options, **kept, **options}


def _options(run_dir: Path, text: str) -> dict[str, Any]:
    """The component of each group, or the option that was chosen by its name: `agent=droq`. Earlier
    versions left that to Hydra's own record."""
    components: dict[str, Any] = {}
    for group, name, member in _COMPONENT.findall(text[: text.find("_self_")]):
        if member:
            components.setdefault(group, []).append(member[1:])
        else:
            components[group] = name
    chosen = _CHOICES.search(saved_text(run_dir / SETTINGS.with_name("hydra.yaml")) or "")
    typed = dict([*(_CHOICE.findall(chosen[1]) if chosen else []), *_OPTION.findall(text)])
    known = {group: typed[group] for group in components if typed.get(group, "null") != "null"}
    return {**components, **known}


def saved_text(path: Path) -> str | None:
    """The text of a file in `.hydra`; None where it is too large or cannot be read."""
    try:
        return readable_bytes(path, MOST_BYTES).decode() or None
    except ValueError:
        return None


def _refuse_odd_yaml(yaml: Any, events: Iterable[Any]) -> None:
    level = 0
    for event in events:
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or level > MOST_LEVELS:
            what = "an alias" if level <= MOST_LEVELS else f"more than {MOST_LEVELS} levels"
            line = event.start_mark.line + 1
            raise ValueError(f"line {line} has {what}, which a run never writes")


def _with_paths(loader: Any) -> Any:
    """Paths, which Python callers may use as settings, become text."""

    class WithPaths(loader):  # type: ignore[misc]
        pass

    def joined(of: Any, node: Any) -> str:
        return "/".join(map(str, of.construct_sequence(node)))

    WithPaths.add_constructor("tag:yaml.org,2002:python/object/apply:pathlib.PosixPath", joined)
    return WithPaths
