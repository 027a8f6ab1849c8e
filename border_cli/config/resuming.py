"""A run that is resumed: what goes with `resume=RUN_DIR`, the settings that it goes on with, and
what may change in them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from border_cli.config.describe import shown
from border_cli.config.overrides import chooses, parsed
from border_cli.config.saved import place, read_saved, saved_options, saved_settings
from border_cli.config.saved_names import SavedSettings
from border_cli.config.schemas import base_of
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.run.run_folder import RunFolder
from border_cli.settings.base import flat
from border_cli.settings.run import SECTIONS, RunConfig
from border_cli.system.files import SETTINGS
from border_cli.words import setting, shortest

OF_ONE_ATTEMPT = ("run_dir", "resume", "init_from", "dry_run")  # no part of the comparison
_ABSENT = "absent"
_REASONS = {
    "run_dir": "a resumed run keeps its run directory",
    "init_from": "a resumed run has its own weights; init_from starts a new run",
}


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


def refuse_beside_resume(
    run_dir: Path, overrides: Sequence[str], *, multirun: bool, config_name: str
) -> None:
    """Refuses what contradicts `resume=RUN_DIR`, and a folder that holds no run."""
    if multirun:
        raise ConfigError(
            "resume=RUN_DIR continues one run and -m runs several: to continue a sweep, repeat its "
            "command with run_dir=SWEEP_DIR resume=auto"
        )
    if config_name != "config":
        raise ConfigError(
            f"-cn {config_name}: a resumed run uses its own settings, {run_dir / SETTINGS}"
        )
    for override in parsed(overrides):
        if override.key_or_group in _REASONS:
            reason = _REASONS[override.key_or_group]
            raise ConfigError(
                f"{override.input_line} cannot be combined with resume=RUN_DIR: {reason}"
            )
    RunFolder(run_dir).refuse_no_run()


def without_its_own(run_dir: Path, overrides: Sequence[str]) -> list[str]:
    """The overrides but for choices that the run has made and keeps: `agent=dqn` of one with DQN
    is no reason to begin with the values of that option."""
    own = saved_options(read_saved(run_dir / SETTINGS))

    def is_kept(override: Override) -> bool:
        group = override.key_or_group
        return chooses(override) and not may_change(group) and own.get(group) == override.value()

    return [str(each.input_line) for each in parsed(overrides) if not is_kept(each)]


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


def resumed_settings(
    run_dir: Path, overrides: Sequence[Override], *, trust: bool, typed: Set[str]
) -> SavedSettings:
    """The saved settings of a run as those that it is resumed with: the groups that a choice is
    typed of are chosen anew; one that is added to a list chooses nothing anew."""
    saved = saved_settings((run_dir / SETTINGS).parent, trust=trust, typed=typed)
    saved.settings["run_dir"] = str(run_dir)
    chosen = {
        each.key_or_group for each in overrides if chooses(each) and not each.is_sweep_override()
    }
    for group in sorted(chosen, key=place):
        saved = saved.choosing(group)
    return saved
