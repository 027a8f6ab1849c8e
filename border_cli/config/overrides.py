"""Parsing of overrides, and refusal of invalid ones before anything is composed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import BooleanNode
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.files import Files, takes_several
from border_cli.config.search_path import SEARCH
from border_cli.errors import ConfigError
from border_cli.registry import ENVS, GROUPS
from border_cli.settings.base import Settings
from border_cli.settings.run import AUTO, SECTIONS, RunConfig
from border_cli.settings.schedule import SCHEDULE_KEYS
from border_cli.system.files import full_path
from border_cli.words import unknown

TRUST = "trust"  # see `without_trust`
_OF_SCHEDULE = re.compile(rf"(agent|replay_buffer)\.\w+\.({'|'.join(SCHEDULE_KEYS)})")


def parse_overrides(texts: Sequence[str]) -> list[Override]:
    """Parses overrides with Hydra's grammar, one at a time, so that an error names the override."""
    return [_parse(text) for text in texts]


@lru_cache(maxsize=1024)  # jobs of a sweep share most of their overrides
def _parse(text: str) -> Override:
    try:
        override = OverridesParser.create().parse_override(text)
        if not override.key_or_group:
            raise ValueError("there is no key")
    except (HydraException, ValueError) as error:
        raise ConfigError(
            f"{text!r} cannot be read: write key=value, lists as key=[1,2], and quote values "
            "with spaces or any of , : = [ ] { } twice, for the shell and for Hydra, "
            "as in 'name=\"a b\"'"
        ) from error
    return override


def normalize_overrides(texts: Sequence[str]) -> list[str]:
    """Rewrites shorthands: a single name in `imports=my_envs` to a list, 1e5 to an integer, and a
    schedule key such as `agent.learning_rate.final=0` to an override that may add the key."""
    result = []
    for text, override in zip(texts, parse_overrides(texts), strict=True):
        is_single = override.key_or_group == "imports" and not override.is_sweep_override()
        if is_single and isinstance(override.value(), str):
            text = f"imports=[{override.get_value_string()}]"
        elif _is_whole_float(override):
            text = f"{override.get_key_element()}={override.value():.0f}"
        elif override.type is OverrideType.CHANGE and _OF_SCHEDULE.fullmatch(override.key_or_group):
            text = f"++{text}"
        result.append(text)
    return result


def _is_whole_float(override: Override) -> bool:
    """Returns whether an integer setting is given as a whole float, such as 1e5."""
    value = override.value()
    if not isinstance(value, float) or not value.is_integer():
        return False
    group, _, name = override.key_or_group.rpartition(".")
    classes: list[type[Settings]] = [entry.config_type for entry in GROUPS.get(group, ())]
    classes += [RunConfig] if not group else [SECTIONS[group]] if group in SECTIONS else []
    fields = [settings.__dataclass_fields__.get(name) for settings in classes]
    return any(str(field.type).startswith("int") for field in fields if field is not None)


def without_trust(texts: Sequence[str]) -> tuple[list[str], bool]:
    """Returns the overrides without `trust=…`, and whether it is true. `trust` applies to a single
    command and is not a setting."""
    trust, rest = False, []
    for text, override in zip(texts, parse_overrides(texts), strict=True):
        if override.key_or_group != TRUST or override.is_delete():
            rest.append(text)
            continue
        try:
            trust = bool(BooleanNode(override.value(), is_optional=False))
        except OmegaConfBaseException as error:
            raise ConfigError(f"{text}: {TRUST} must be true or false") from error
    return rest, trust


def run_to_resume(overrides: Sequence[str]) -> Path | None:
    """Returns the absolute path of `resume=RUN_DIR`; None if unset, null, `auto` or swept."""
    typed = parse_overrides(overrides)
    resumes = [item for item in typed if item.key_or_group == "resume" and not item.is_delete()]
    if not resumes or resumes[-1].is_sweep_override():
        return None
    value, text = resumes[-1].value(), resumes[-1].get_value_string()
    if value in (None, "", AUTO):
        return None
    return full_path(Path(value if isinstance(value, str) else text))


def is_sweep(text: str) -> bool:
    """Returns whether an override has several values, which requires `-m`."""
    return _parse(text).is_sweep_override()


def chooses(override: Override) -> bool:
    """Returns whether an override chooses the option of a group, rather than deleting an option,
    adding one to a list or setting values."""
    changes_list = override.is_delete() or override.is_add()
    is_choice = override.key_or_group in GROUPS and not isinstance(override.value(), dict)
    return is_choice and not changes_list


def refuse_invalid_overrides(files: Files, overrides: Sequence[Override]) -> None:
    """Refuses several values without `-m`, and options that do not exist."""
    for override in overrides:
        if override.is_sweep_override():
            _refuse_sweep(override)
        group, value = override.key_or_group, override.value()
        if group == SEARCH:
            raise ConfigError(f"{override.input_line}: only border-tune has a search space")
        if group.startswith(("hydra.verbose", "hydra/job_logging", "hydra.job_logging")):
            raise ConfigError(
                f"Hydra's logging is off ({override.input_line}): a run writes its own log, "
                "border-train.log; quiet=true prints less and statistics=true more"
            )
        is_choice = files.group_exists(group) and not isinstance(value, dict)
        if override.is_hydra_override() or not is_choice:
            continue
        if override.is_delete():
            if group in GROUPS and not takes_several(group):
                raise ConfigError(f"{override.input_line}: a run needs one {group}")
            continue
        for name in value if isinstance(value, list) and takes_several(group) else [value]:
            if not isinstance(name, str) or not files.exists(f"{group}/{name}"):
                hint = f"; a Gymnasium id is written env.id={name}" if group == ENVS.group else ""
                raise ConfigError(unknown(group, name, files.options(group)) + hint)


def _refuse_sweep(override: Override) -> None:
    key, _, value = str(override.input_line).partition("=")
    is_single = key in GROUPS and not takes_several(key)
    as_list = "" if is_single else f"; write a list as '{key}=[{value}]'"
    raise ConfigError(
        f"{override.input_line} has several values: add -m to run a job for each{as_list}"
    )
