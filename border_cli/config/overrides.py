"""Overrides as typed: read, and refused before anything is composed where they cannot apply."""

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
from border_cli.registry import AGENTS, ENVS, GROUPS
from border_cli.settings.other_words import MISSING
from border_cli.settings.run import AUTO
from border_cli.settings.schedule import SCHEDULE_KEYS
from border_cli.system.files import full_path
from border_cli.words import unknown

TRUST = "trust"  # see `without_trust`
_OF_SCHEDULE = re.compile(rf"(agent|replay_buffer)\.\w+\.({'|'.join(SCHEDULE_KEYS)})")


def parsed(texts: Sequence[str]) -> list[Override]:
    """Hydra's reading of `key=value`, one at a time, so that a refusal names the one."""
    return [_parsed(text) for text in texts]


@lru_cache(maxsize=1024)  # the jobs of a sweep have most of theirs in common
def _parsed(text: str) -> Override:
    try:
        read = OverridesParser.create().parse_override(text)
        if not read.key_or_group:
            raise ValueError("there is no key")
    except (HydraException, ValueError) as error:
        raise ConfigError(
            f"{text!r} cannot be read: write key=value, lists as key=[1,2], and quote what "
            "holds spaces or any of , : = [ ] { } for the shell and again inside, "
            "as in 'name=\"a b\"'"
        ) from error
    return read


def normalized(texts: Sequence[str]) -> list[str]:
    """Takes `imports=my_envs` as a list of one name, and a key of a schedule as one to add where
    it is not there: `agent.learning_rate.final=0`."""
    result = []
    for text, override in zip(texts, parsed(texts), strict=True):
        single = override.key_or_group == "imports" and not override.is_sweep_override()
        if single and isinstance(override.value(), str):
            text = f"imports=[{override.get_value_string()}]"
        elif _is_whole_float(override):
            text = f"{override.get_key_element()}={override.value():.0f}"
        elif override.type is OverrideType.CHANGE and _OF_SCHEDULE.fullmatch(override.key_or_group):
            text = f"++{text}"
        result.append(text)
    return result


def _is_whole_float(override: Override) -> bool:
    """Whether a setting of integers is typed as a whole float, such as 1e5."""
    group, _, name = override.key_or_group.partition(".")
    value = override.value()
    if group not in GROUPS or not isinstance(value, float) or not value.is_integer():
        return False
    kinds = [each.config_type.__dataclass_fields__.get(name) for each in GROUPS[group]]
    return any(str(each.type).startswith("int") for each in kinds if each is not None)


def without_trust(texts: Sequence[str]) -> tuple[list[str], bool]:
    """The overrides without `trust=…`, which is typed for one command and is no setting, and
    whether it was typed as true."""
    trust, rest = False, []
    for text, override in zip(texts, parsed(texts), strict=True):
        if override.key_or_group != TRUST or override.is_delete():
            rest.append(text)
            continue
        try:
            trust = bool(BooleanNode(override.value(), is_optional=False))
        except OmegaConfBaseException as error:
            raise ConfigError(f"{text}: {TRUST} must be true or false") from error
    return rest, trust


def run_to_resume(overrides: Sequence[str]) -> Path | None:
    """The RUN_DIR of `resume=RUN_DIR`, absolute; None where nothing or `auto` is typed."""
    typed = parsed(overrides)
    named = [each for each in typed if each.key_or_group == "resume" and not each.is_delete()]
    if not named or named[-1].is_sweep_override():
        return None
    value, text = named[-1].value(), named[-1].get_value_string()
    if value in (None, "", AUTO):
        return None
    return full_path(Path(value if isinstance(value, str) else text))


def is_sweep(text: str) -> bool:
    """Whether an override names several values, as only `-m` may."""
    return _parsed(text).is_sweep_override()


def chooses(override: Override) -> bool:
    """Whether an override chooses the option of a group: it neither deletes one, nor adds one to a
    list, nor sets values."""
    changes_list = override.is_delete() or override.is_add()
    is_choice = override.key_or_group in GROUPS and not isinstance(override.value(), dict)
    return is_choice and not changes_list


def refuse_unmeant(files: Files, overrides: Sequence[Override]) -> None:
    """Refuses several values without `-m`, and choices that no group offers."""
    for override in overrides:
        if override.is_sweep_override():
            _refuse_sweep(override)
        group, value = override.key_or_group, override.value()
        if group == SEARCH:
            raise ConfigError(f"{override.input_line}: only border-tune has a search space")
        if group.startswith(("hydra.verbose", "hydra/job_logging", "hydra.job_logging")):
            raise ConfigError(
                f"Hydra's logging is off ({override.input_line}): a run has a log of its own, "
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
                raise ConfigError(unknown(group, name, files.options(group)) + _remark(group, name))


def _remark(group: str, name: object) -> str:
    """What a choice that does not exist may have meant."""
    if group == ENVS.group:
        return f"; a Gymnasium id is written env.id={name}"
    if group == AGENTS.group and name in MISSING:
        return "; of on-policy agents there are ppo and a2c"
    return ""


def _refuse_sweep(override: Override) -> None:
    key, _, value = str(override.input_line).partition("=")
    single = key in GROUPS and not takes_several(key)
    as_list = "" if single else f"; write a list as '{key}=[{value}]'"
    raise ConfigError(
        f"{override.input_line} has several values: add -m to run a job for each{as_list}"
    )
