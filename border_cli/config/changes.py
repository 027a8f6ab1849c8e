"""What may differ when a run goes on, and the refusal of everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.registry import GROUPS

MAY_CHANGE = (  # these settings, and all that lies below them
    *(
        f"trainer.{name}"
        for name in (
            *("max_opt_steps", "max_env_steps", "max_time_s"),
            *("stop_at_score", "stop_evals", "stop_confirmations"),
            *("eval_interval", "record_interval", "save_interval", "save_every_s"),
            *("sync_interval", "stall_timeout_s"),
        )
    ),
    *(
        "actor_manager",
        "device",
        "agent.num_threads",
        "agent.compile",
        "evaluator.background",
        "env.probe",
    ),
    *("name", "recorder", "checkpoint", "quiet", "objective"),
)
OF_ONE_ATTEMPT = ("run_dir", "resume", "init_from", "dry_run")  # no part of the comparison
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.before)} -> {_shown(self.after)}"

    @property
    def allowed(self) -> bool:
        """Whether a run can go on with it."""
        if self.key == "imports":  # more modules change nothing; components need those of before
            assert isinstance(self.before, list)
            assert isinstance(self.after, list)
            return set(self.before) <= set(self.after)
        return any(self.key == each or self.key.startswith(f"{each}.") for each in MAY_CHANGE)


def changes(before: RunConfig, after: RunConfig) -> list[Change]:
    """What differs between the saved and the present settings of a run, one entry per key.

    Of another component of a group its name comes first, then the settings that both have.
    """
    return [
        Change(key, *values)
        for key, *values in _differing("", before, after)
        if key not in OF_ONE_ATTEMPT
    ]


def _differing(key: str, before: Any, after: Any) -> Iterator[tuple[str, object, object]]:
    if is_dataclass(before) and is_dataclass(after):
        if type(before) is not type(after):
            yield key, _Component(before), _Component(after)
        known = {each.name for each in fields(before)} & {each.name for each in fields(after)}
        for each in fields(after):
            if each.name in known:
                path = f"{key}.{each.name}".lstrip(".")
                yield from _differing(path, getattr(before, each.name), getattr(after, each.name))
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        if key in GROUPS and before.keys() != after.keys():  # who joined and who left
            yield key, list(before), list(after)
            before, after = _common(before, after), _common(after, before)
        for name in dict.fromkeys([*before, *after]):
            path = f"{key}.{name}"
            yield from _differing(path, before.get(name, _ABSENT), after.get(name, _ABSENT))
    elif type(before) is not type(after) or before != after:
        yield key, before, after


def _common(these: Mapping[str, Any], those: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in these.items() if name in those}


@dataclass(frozen=True, slots=True)
class _Component:
    """Which option of its group some settings belong to."""

    settings: Any

    def __str__(self) -> str:
        for registry in GROUPS.values():
            for entry in registry:
                if entry.config_type is type(self.settings):
                    return entry.name
        return type(self.settings).__name__


def _shown(value: object) -> str:
    """As it is written in YAML."""
    if value is _ABSENT:
        return "absent"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return value.name if isinstance(value, Enum) else str(value)


def refuse_fixed(found: Sequence[Change], saved: Path, *, job: str, new_run: str) -> None:
    """Raises where there is a change that no run can go on with.

    `job` says which one of a sweep it is, and `new_run` the command that begins another run.
    """
    fixed = [each for each in found if not each.allowed]
    if not fixed:
        return
    listed = "\n".join(f"  {each}" for each in fixed)
    raise ConfigError(
        f"{job}a resumed run keeps its settings, but these differ from {saved}:\n{listed}\n"
        f"These may change: {', '.join(MAY_CHANGE)}.\n"
        f"To start a new run from its weights: {new_run}"
    )
