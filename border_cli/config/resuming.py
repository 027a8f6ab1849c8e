"""Which settings of a run may change as it is resumed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from border_cli.config.describe import shown
from border_cli.config.files import base_of
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.settings.base import flat
from border_cli.settings.run import SECTIONS, RunConfig
from border_cli.system.files import SETTINGS
from border_cli.words import setting, shortest

OF_ONE_ATTEMPT = ("run_dir", "resume", "init_from", "dry_run")  # no part of the comparison
_ABSENT = "absent"


def marked(mark: str) -> list[str]:
    """The settings whose definition has a mark; of a group that has it as a whole, its name."""
    names = RunConfig.marked(mark)
    names += [name for name in (*GROUPS, *SECTIONS) if getattr(base_of(name), mark, False)]
    for group, registry in GROUPS.items():
        for entry in registry:
            names += [f"{group}.{name}" for name in entry.config_type.marked(mark)]
    return list(dict.fromkeys(names))


def may_change(key: str) -> bool:
    """Whether a run can resume with another value of this setting, whatever it is."""
    return any(f"{key}.".startswith(f"{name}.") for name in marked("may_change"))


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {shown(self.before)} -> {shown(self.after)}"

    @property
    def allowed(self) -> bool:
        """Whether a run can resume with it."""
        if self.key in marked("may_grow"):
            return set(self.before) <= set(self.after)
        if self.key in marked("may_become_null") and self.after is None:
            return True
        return may_change(self.key)


def changes(before: RunConfig, after: RunConfig) -> list[Change]:
    """The differences between the saved and the present settings of a run, one entry per key.

    Of another component of a group its name comes first, then the settings that both have.
    """
    old, new = _compared(before), _compared(after)
    others = {group for group in GROUPS if old[group] != new[group]}
    found = [
        Change(key, old.get(key, _ABSENT), new.get(key, _ABSENT))
        for key in dict.fromkeys([*old, *new])
        if key.partition(".")[0] not in others or (key in old and key in new)
    ]
    return [each for each in found if shown(each.before) != shown(each.after)]


def _compared(config: RunConfig) -> dict[str, object]:
    """The component of each group, and settings by their dotted names."""
    chosen = {group: getattr(config, group) for group in GROUPS}
    components = {
        group: list(each) if isinstance(each, dict) else GROUPS[group].entry_of(each).name
        for group, each in chosen.items()
    }
    settings = {key: value for key, value in flat(config).items() if value != {}}
    for key in (*OF_ONE_ATTEMPT, *(f"{group}.option" for group in GROUPS)):
        settings.pop(key, None)
    return {**components, **settings}


def refuse_fixed(found: Sequence[Change], run_dir: Path, *, job: str) -> None:
    """Raises ConfigError for changes with which the run cannot resume, and lists them.

    `job` says which one of a sweep it is.
    """
    fixed = [each for each in found if not each.allowed]
    if not fixed:
        return
    listed = "\n".join(f"  {each}" for each in fixed)
    init_from = shlex.quote(setting("init_from", str(shortest(run_dir))))
    raise ConfigError(
        f"{job}a resumed run keeps its settings, but these differ from "
        f"{shortest(run_dir) / SETTINGS}:\n{listed}\n"
        f"These may change: {', '.join(marked('may_change'))}.\n"
        f"To start a new run from its weights, set {init_from}"
    )
