"""Refusals of files that no folder has: what exists instead, and who asked."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.errors import MissingConfigException

from border_cli.config.loader import Loader
from border_cli.core.words import unknown
from border_cli.registry import GROUPS


def missing(
    error: MissingConfigException, loader: Loader, config_name: str, overrides: Sequence[str]
) -> str:
    """Of a file that no folder has."""
    path = error.missing_cfg_file or ""
    searched = f"searched in {', '.join(loader.folders())}"
    if path == config_name:
        return f"{unknown('configuration', path, loader.primary_configs())}; {searched}"
    group, _, name = path.rpartition("/")
    file = _chooser(path, loader, config_name, overrides)
    place = f"{file}: " if file else ""
    if group.startswith("schema/"):
        kind = group.partition("/")[2]
        known = GROUPS[kind].names() if kind in GROUPS else []
        return (
            f"{place}{unknown(f'schema of {kind}', name, known)}; list the module that registers "
            "your own in `imports`"
        )
    return f"{place}{unknown(group, name, loader.options(group))}; {searched}"


def _absolute(default: str, file: str) -> str:
    """The path of an entry of a defaults list, which may be relative to its file."""
    folder = file.rpartition("/")[0]
    return default[1:] if default.startswith("/") else f"{folder}/{default}".lstrip("/")


def _chooser(path: str, loader: Loader, config_name: str, overrides: Sequence[str]) -> str | None:
    """The file whose defaults list asks for another one that is missing."""
    group, _, name = path.rpartition("/")
    asked = [text.partition("=") for text in overrides]
    files = [f"{key}/{value}" for key, _, value in asked if key in loader.groups()]
    for each in [*files, config_name]:
        loaded = loader.repository.load_config(each)
        for default in (loaded.defaults_list if loaded else None) or []:
            wanted = getattr(default, "value", None)
            names = wanted if isinstance(wanted, list) else [wanted]
            direct = _absolute(str(getattr(default, "path", "")), each) == path
            asked_group = str(getattr(default, "group", "")).lstrip("/")
            if direct or (name in names and asked_group == group):
                return loader.file(each)
    return None
