"""Another run's saved settings as what a command begins with, and which of them may change.

`resume=RUN_DIR` continues that run, `--from RUN_DIR` starts a new run with its settings. What is
typed comes on top of these. An option that is typed replaces its group; with `--from` so do the
options that its file chooses of other groups. Tuned values are part of the saved settings, and none
are added.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from border_cli.config.check import explained
from border_cli.config.compose import Composer
from border_cli.config.describe import shown
from border_cli.config.files import Files, base_of, overridden
from border_cli.config.hydra_source import ANY_ENV, opened, run_name
from border_cli.config.overrides import chooses, parsed, run_to_resume
from border_cli.config.saved import (
    SavedSettings,
    opened_run,
    saved_options,
    saved_settings,
)
from border_cli.config.search_path import user_folders
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS, flat_settings
from border_cli.run.finding import find_run
from border_cli.run.run_folder import RunFolder
from border_cli.settings.run import SECTIONS, RunConfig
from border_cli.system.files import SETTINGS, expanded, settings_of
from border_cli.words import setting, shortest

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
    """Begins with the saved settings of `origin`, or of the run in `resume=RUN_DIR`; see
    `composing`."""
    resumed = run_to_resume(overrides)
    if origin is not None:
        refuse_beside_origin(origin, overrides, config_name)
        run_dir = run_of_origin(origin)
    else:
        assert resumed is not None
        refuse_beside_resume(resumed, overrides, multirun=multirun, config_name=config_name)
        run_dir = resumed
    with opened_run(run_dir, trust=trust):
        folders = user_folders(config_dirs)
        saved = saved_settings(settings_of(run_dir).parent, trust=trust, typed=unused)
        if resumed is None:
            saved = settings_from(saved, overrides, folders)
            yield Composer(folders, saved=saved, trust=trust), overrides
            return
        overrides = without_its_own(saved, overrides)
        saved.settings["run_dir"] = str(run_dir)
        saved = with_choices(saved, overrides, folders)
        yield Composer(folders, saved=saved, run_dir=run_dir, trust=trust), overrides


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
        if override.key_or_group in ("run_dir", "init_from"):
            raise ConfigError(
                f"{override.input_line} starts a new run and resume=RUN_DIR continues one: give one"
            )
    RunFolder(run_dir).refuse_no_run()


def without_its_own(saved: SavedSettings, overrides: Sequence[str]) -> list[str]:
    """The overrides but for choices that the run has made and keeps: `agent=dqn` of one with DQN
    is no reason to begin with the values of that option."""
    own = saved_options(saved.settings)

    def is_kept(override: Override) -> bool:
        group = override.key_or_group
        return chooses(override) and not may_change(group) and own.get(group) == override.value()

    return [str(each.input_line) for each in parsed(overrides) if not is_kept(each)]


def refuse_beside_origin(origin: str, overrides: Sequence[str], config_name: str) -> None:
    """Refuses what contradicts `--from RUN_DIR`."""
    if config_name != "config":
        raise ConfigError(
            f"-cn {config_name} and --from {origin} both say what settings begin with: give one"
        )
    if run_to_resume(overrides) is not None:
        raise ConfigError(
            "--from RUN_DIR starts a new run and resume=RUN_DIR continues one: give one of them"
        )


def run_of_origin(origin: str) -> Path:
    """The RUN_DIR of `--from`, absolute."""
    run_dir, checkpoint = find_run(expanded(origin))
    if checkpoint is not None:
        raise ConfigError(
            f"--from {origin} is a checkpoint: --from {shortest(run_dir)} takes the settings of "
            f"its run, and with init_from={origin} it begins with these weights"
        )
    return run_dir.absolute()


def settings_from(
    saved: SavedSettings, overrides: Sequence[str], folders: Sequence[str]
) -> SavedSettings:
    """The saved settings of a run as those that a new run begins with."""
    # A name that follows from agent and env is that of the new ones, too.
    if saved.settings.get("name") == run_name(_root_=OmegaConf.create(saved.settings)):
        del saved.settings["name"]
    saved = with_choices(saved, overrides, folders)
    typed = {override.key_or_group for override in parsed(overrides)}
    if "env.id" in typed and "env" not in typed:
        saved.settings.setdefault("env", {})["option"] = ANY_ENV
    return saved


def with_choices(
    saved: SavedSettings, overrides: Sequence[str], folders: Sequence[str]
) -> SavedSettings:
    """Returns saved settings without those of the groups whose option the command line chooses, or
    the file of an option that it chooses."""
    own = saved_options(saved.settings)
    with opened(Files(folders)) as files, explained(files, overrides):
        parser = OverridesParser.create(config_loader=files.loader)
        choices = [each for each in parser.parse_overrides([*overrides]) if chooses(each)]
        by_files: dict[str, Any] = {}
        for choice in choices:
            swept = choice.is_sweep_override()
            for option in choice.sweep_string_iterator() if swept else [choice.get_value_string()]:
                by_files |= _chosen_by_files(choice.key_or_group, str(option), files)
        typed = {each.key_or_group for each in choices}
        # In the place of the saved option a file can choose another one.
        instead = {
            group: own[group] if files.exists(f"{group}/{own[group]}") else option
            for group, option in by_files.items()
            if group in GROUPS and group not in typed
        }
    return saved.choosing({**dict.fromkeys(typed, "???"), **instead})


def _chosen_by_files(group: str, option: str, files: Files) -> dict[str, Any]:
    """The options of other groups that the files of an option choose."""
    files.find_parts([f"{group}={option}"], lenient=True)
    chosen: dict[str, Any] = {}
    for part in files.parts:
        if part.package == group:
            chosen |= overridden(part.path, part.content)
    return chosen


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
    settings = {key: value for key, value in flat_settings(config).items() if value != {}}
    del settings["init_from"]
    for group, registry in GROUPS.items():
        if not isinstance(settings[group], list):  # an option has the settings of a component
            settings[group] = registry.entry_of(getattr(config, group)).name
    return settings


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
