"""Commands that start from another run's saved settings, and which settings may change on resume.

`resume=RUN_DIR` continues that run; `--from RUN_DIR` starts a new run with its settings. Overrides
are applied on top. Choosing an option discards the saved settings of its group, and of every group
whose option the chosen file overrides; a resume ignores the choice of a saved option again, except
in groups that may change. Tuned values are part of the saved settings; no others are added.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from border_cli.config.check import explain_errors
from border_cli.config.compose import Composer
from border_cli.config.describe import format_setting
from border_cli.config.files import Files, base_of, overridden
from border_cli.config.hydra_source import ANY_ENV, open_files, run_name
from border_cli.config.overrides import chooses, parse_overrides, run_to_resume
from border_cli.config.saved import (
    SavedSettings,
    run_import_path,
    saved_options,
    saved_settings,
)
from border_cli.config.search_path import user_folders
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS, flat_settings
from border_cli.run.finding import find_run
from border_cli.run.run_folder import RunFolder
from border_cli.settings.run import SECTIONS, RunConfig
from border_cli.system.files import SETTINGS, expand_user, settings_path
from border_cli.words import format_override, shortest

_ABSENT = "absent"


def begin_with_run(
    origin: str | None,
    overrides: list[str],
    config_dirs: Sequence[str],
    config_name: str,
    *,
    multirun: bool,
    unused: Set[str],
    trust: bool,
) -> Iterator[tuple[Composer, list[str]]]:
    """Yields a composer that starts from the saved settings of `origin`, or of the run in
    `resume=RUN_DIR`; see `open_composer`."""
    resumed = run_to_resume(overrides)
    if origin is not None:
        refuse_beside_origin(origin, overrides, config_name)
        run_dir = run_of_origin(origin)
    else:
        assert resumed is not None
        refuse_beside_resume(resumed, overrides, multirun=multirun, config_name=config_name)
        run_dir = resumed
    with run_import_path(run_dir, trust=trust):
        folders = user_folders(config_dirs)
        saved = saved_settings(settings_path(run_dir).parent, trust=trust, typed=unused)
        if resumed is None:
            adapt = partial(settings_from, saved, folders=folders)
            yield Composer(folders, saved=adapt(overrides), adapt=adapt, trust=trust), overrides
            return
        overrides = drop_saved_choices(saved, overrides)
        saved.settings["run_dir"] = str(run_dir)
        saved = with_choices(saved, overrides, folders)
        yield Composer(folders, saved=saved, run_dir=run_dir, trust=trust), overrides


def refuse_beside_resume(
    run_dir: Path, overrides: Sequence[str], *, multirun: bool, config_name: str
) -> None:
    """Refuses overrides that contradict `resume=RUN_DIR`, and folders without a run."""
    if multirun:
        raise ConfigError(
            "resume=RUN_DIR continues one run and -m runs several: to continue a sweep, repeat its "
            "command with run_dir=SWEEP_DIR resume=auto"
        )
    if config_name != "config":
        raise ConfigError(
            f"-cn {config_name}: a resumed run uses its own settings, {run_dir / SETTINGS}"
        )
    for override in parse_overrides(overrides):
        if override.key_or_group in ("run_dir", "init_from"):
            raise ConfigError(
                f"{override.input_line} starts a new run and resume=RUN_DIR continues one: give one"
            )
    RunFolder(run_dir).refuse_no_run()


def drop_saved_choices(saved: SavedSettings, overrides: Sequence[str]) -> list[str]:
    """Returns the overrides without those that choose a saved option again, except in groups that
    may change: `agent=dqn` must not reset a resumed DQN run to the values of that option."""
    options = saved_options(saved.settings)

    def is_saved(override: Override) -> bool:
        group = override.key_or_group
        return (
            chooses(override) and not may_change(group) and options.get(group) == override.value()
        )

    return [
        str(override.input_line)
        for override in parse_overrides(overrides)
        if not is_saved(override)
    ]


def refuse_beside_origin(origin: str, overrides: Sequence[str], config_name: str) -> None:
    """Refuses options that contradict `--from RUN_DIR`."""
    if config_name != "config":
        raise ConfigError(
            f"-cn {config_name} and --from {origin} both choose the initial settings: give one"
        )
    if run_to_resume(overrides) is not None:
        raise ConfigError(
            "--from RUN_DIR starts a new run and resume=RUN_DIR continues one: give one of them"
        )


def run_of_origin(origin: str) -> Path:
    """Returns the absolute run directory of `--from`."""
    run_dir, checkpoint = find_run(expand_user(origin))
    if checkpoint is not None:
        raise ConfigError(
            f"--from {origin} is a checkpoint: --from {shortest(run_dir)} uses the settings of "
            f"its run, and init_from={origin} starts from these weights"
        )
    return run_dir.absolute()


def settings_from(
    saved: SavedSettings, overrides: Sequence[str], folders: Sequence[str]
) -> SavedSettings:
    """Adapts the saved settings of a run for a new run."""
    saved = replace(saved, settings=deepcopy(saved.settings))
    # A default name is derived again from the new agent and env.
    if saved.settings.get("name") == run_name(_root_=OmegaConf.create(saved.settings)):
        del saved.settings["name"]
    saved = with_choices(saved, overrides, folders)
    typed = {override.key_or_group for override in parse_overrides(overrides)}
    if "env.id" in typed and "env" not in typed:
        saved.settings.setdefault("env", {})["option"] = ANY_ENV
    return saved


def with_choices(
    saved: SavedSettings, overrides: Sequence[str], folders: Sequence[str]
) -> SavedSettings:
    """Returns the saved settings without the groups whose option is chosen by an override, or by
    the file of an option that an override chooses."""
    saved_of = saved_options(saved.settings)
    with open_files(Files(folders)) as files, explain_errors(files, overrides):
        parser = OverridesParser.create(config_loader=files.loader)
        choices = [
            override for override in parser.parse_overrides([*overrides]) if chooses(override)
        ]
        file_choices: dict[str, Any] = {}
        for choice in choices:
            swept = choice.is_sweep_override()
            for option in choice.sweep_string_iterator() if swept else [choice.get_value_string()]:
                file_choices |= _choices_of_files(choice.key_or_group, str(option), files)
        chosen_groups = {override.key_or_group for override in choices}
        # If the saved option has a file, the chosen file can override it.
        replacements = {
            group: saved_of[group] if files.exists(f"{group}/{saved_of[group]}") else option
            for group, option in file_choices.items()
            if group in GROUPS and group not in chosen_groups
        }
    return saved.with_options({**dict.fromkeys(chosen_groups, "???"), **replacements})


def _choices_of_files(group: str, option: str, files: Files) -> dict[str, Any]:
    """Returns the options of other groups that the files of an option choose."""
    files.find_parts([f"{group}={option}"], lenient=True)
    chosen: dict[str, Any] = {}
    for part in files.parts:
        if part.package == group:
            chosen |= overridden(part.path, part.content)
    return chosen


def marked(mark: str) -> list[str]:
    """Returns the settings marked with `mark`. A group marked as a whole is listed by its name."""
    names = RunConfig.marked(mark)
    names += [name for name in (*GROUPS, *SECTIONS) if getattr(base_of(name), mark, False)]
    for group, registry in GROUPS.items():
        for entry in registry:
            names += [f"{group}.{name}" for name in entry.config_type.marked(mark)]
    return list(dict.fromkeys(names))


def may_change(key: str) -> bool:
    """Returns whether a run can resume with any other value of this setting."""
    return any(f"{key}.".startswith(f"{name}.") for name in marked("may_change"))


@dataclass(frozen=True, slots=True)
class Change:
    """A setting whose value differs from the saved one."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {format_setting(self.before)} -> {format_setting(self.after)}"

    @property
    def allowed(self) -> bool:
        """True if a run can resume with the new value."""
        if self.key in marked("may_grow"):
            return set(self.before) <= set(self.after)
        if self.key in marked("may_become_null") and self.after is None:
            return True
        return may_change(self.key)


def changes(before: RunConfig, after: RunConfig) -> list[Change]:
    """Returns the differences between the saved and the current settings of a run, by key.

    If the component of a group changed, only settings that both components have are compared.
    """
    old, new = _comparable_settings(before), _comparable_settings(after)
    replaced = {group for group in GROUPS if old[group] != new[group]}
    pairs = [
        Change(key, old.get(key, _ABSENT), new.get(key, _ABSENT))
        for key in dict.fromkeys([*old, *new])
        if key.partition(".")[0] not in replaced or (key in old and key in new)
    ]
    return [pair for pair in pairs if format_setting(pair.before) != format_setting(pair.after)]


def _comparable_settings(config: RunConfig) -> dict[str, object]:
    """Returns the settings by dotted name, and the component of each group."""
    settings = {key: value for key, value in flat_settings(config).items() if value != {}}
    del settings["init_from"]
    for group, registry in GROUPS.items():
        if not isinstance(settings[group], list):  # several options can have the same component
            settings[group] = registry.entry_of(getattr(config, group)).name
    return settings


def refuse_fixed(all_changes: Sequence[Change], run_dir: Path, *, job: str) -> None:
    """Raises ConfigError if the run cannot resume with some of the changes, and lists these.

    `job`: start of the message, which identifies a job of a sweep.
    """
    fixed = [change for change in all_changes if not change.allowed]
    if not fixed:
        return
    lines = "\n".join(f"  {change}" for change in fixed)
    init_from = shlex.quote(format_override("init_from", str(shortest(run_dir))))
    raise ConfigError(
        f"{job}a resumed run keeps its settings, but these differ from "
        f"{shortest(run_dir) / SETTINGS}:\n{lines}\n"
        f"These may change: {', '.join(marked('may_change'))}.\n"
        f"To start a new run from its weights, set {init_from}"
    )
