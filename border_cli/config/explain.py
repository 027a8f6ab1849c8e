"""Hydra's refusals with our file and key, and with what is allowed or known there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path

from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    OmegaConfBaseException,
)
from yaml import YAMLError  # type: ignore[import-untyped]

from border_cli.config import check
from border_cli.config.sources import Files
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.words import shortest, unknown

_REFUSED = (HydraException, OmegaConfBaseException, YAMLError, ValueError, OSError)
_IN_FILE = re.compile(r"In '([^']+)': ")
_PATH = re.compile(r"[\w.]+")


@contextmanager
def explained(files: Files, config_name: str, overrides: Sequence[str]) -> Iterator[None]:
    """Turns what Hydra, OmegaConf and YAML raise inside the block into a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(_file_of_range(error, files, overrides) + str(error)) from error
    except _REFUSED as error:
        raise ConfigError(_explain(error, files, config_name, overrides)) from error


def _file_of_range(error: ConfigError, files: Files, overrides: Sequence[str]) -> str:
    """Where a refused setting is written, unless the command line sets it."""
    found = _PATH.match(str(error))
    if found is None or _typed_for(found.group(), overrides):
        return ""
    return check.where(found.group(), files.parts)


def _explain(error: Exception, files: Files, config_name: str, overrides: Sequence[str]) -> str:
    found = _IN_FILE.match(str(error))
    asks = found[1] if found else config_name
    file = files.file(asks) if asks not in (config_name, "hydra/config") else None
    if isinstance(error, MissingConfigException):
        return _missing(error, files, config_name, file)
    causes = (error, error.__cause__, error.__context__)
    cause = next((each for each in causes if isinstance(each, OmegaConfBaseException)), None)
    if cause is not None and (cause.full_key or cause.key) is not None:
        return _setting(cause, files, overrides, file)
    if isinstance(error, YAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}"
    lines = [line for line in str(error).splitlines() if line and "To append" not in line]
    message = _IN_FILE.sub("", " ".join(lines[:3]), count=1)
    return f"{shortest(file)}: {message}" if file else message


def _missing(
    error: MissingConfigException, files: Files, config_name: str, file: Path | None
) -> str:
    """A file that no folder has: what exists instead, and which file asks for it."""
    path = str(error.missing_cfg_file)
    searched = f"searched in {', '.join(files.searched())}"
    if path == config_name:
        return f"{unknown('configuration', path, files.primary_configs())}; {searched}"
    group, _, name = path.rpartition("/")
    place = f"{shortest(file)}: " if file else ""
    return f"{place}{unknown(group, name, files.options(group))}; {searched}"


def _setting(
    cause: OmegaConfBaseException, files: Files, overrides: Sequence[str], file: Path | None
) -> str:
    """A key or a value that OmegaConf refuses."""
    path, kind = str(cause.full_key or cause.key), cause.object_type
    typed = file is None and _typed_for(path, overrides)
    group = path.partition(".")[0]
    if not typed and group in GROUPS:
        bare = check.without_schema(group, files.parts)
        if bare:
            return bare
    place = "" if typed else check.where(path, files.parts)
    place = f"{shortest(file)}: " if file else place
    if not isinstance(cause, ConfigAttributeError | ConfigKeyError):
        return place + check.refused_value(cause, kind, path)
    known = list(cause.parent_node or ())
    if is_dataclass(kind):
        known = [each.name for each in fields(kind) if each.compare]  # the others composing sets
    return place + check.unknown_setting(path, known)


def _typed_for(path: str, overrides: Sequence[str]) -> bool:
    """Whether an override sets the path, something below it, or all of what it lies in."""
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        around = value.startswith("{") and path.startswith(f"{key}.")
        if around or key == path or key.startswith(f"{path}.") or path.startswith(f"{key}["):
            return True
    return False
