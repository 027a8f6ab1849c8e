"""What a command begins with: the primary configuration, or the saved settings of another run.

`resume=RUN_DIR` continues that run, `--from RUN_DIR` starts a new run with its settings. What is
typed comes on top of these. An option that is typed replaces its group; with `--from` so do the
options that its file chooses of other groups. Tuned values are part of the saved settings, and none
are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob, Override
from omegaconf import OmegaConf

from border_cli.config.compose import Composer
from border_cli.config.files import Files, absolute, overridden
from border_cli.config.hydra_source import ANY_ENV, opened, run_name
from border_cli.config.overrides import chooses, parsed, run_to_resume, without_trust
from border_cli.config.resuming import may_change
from border_cli.config.saved import (
    SavedSettings,
    opened_run,
    saved_options,
    saved_settings,
)
from border_cli.config.search_path import add_current_directory, plugins_here, user_folders
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.run.finding import find_run
from border_cli.run.run_folder import RunFolder
from border_cli.system.files import SETTINGS, expanded, settings_of
from border_cli.words import shortest

_REASONS = {
    "run_dir": "a resumed run keeps its run directory",
    "init_from": "a resumed run has its own weights; init_from starts a new run",
}


@contextmanager
def composing(
    typed: list[str],
    *,
    config_dirs: Sequence[str] = (),
    config_name: str = "config",
    origin: str | None = None,
    multirun: bool = False,
    unused: Set[str] = frozenset(),
) -> Iterator[tuple[Composer, list[str]]]:
    """Finds plug-ins and folders; the overrides come back without what is no setting.

    Modules of the current folder can be imported within the block. `resume=RUN_DIR` composes from
    the settings of that run, `origin` a new run from those of another. `SavedSettings` checks what
    these name, except settings that the command leaves `unused`.
    """
    overrides, trust = without_trust(typed)
    saved_in = [each for each in config_dirs if Path(each).resolve().name == SETTINGS.parent.name]
    if saved_in and config_name == SETTINGS.stem:  # `-cd RUN_DIR/.hydra -cn resolved`
        config_dirs = [each for each in config_dirs if each not in saved_in]
        origin, config_name = str(Path(saved_in[0]).resolve().parent), "config"
    resumed = run_to_resume(overrides)
    if origin is not None:
        refuse_beside_origin(origin, overrides, config_name)
        run_dir = run_of_origin(origin)
    elif resumed is not None:
        refuse_beside_resume(resumed, overrides, multirun=multirun, config_name=config_name)
        run_dir = resumed
    else:
        yield _anew(overrides, config_dirs, config_name, trust=trust), overrides
        return
    with opened_run(run_dir, trust=trust):
        folders = user_folders(config_dirs)
        saved = saved_settings(settings_of(run_dir).parent, trust=trust, typed=unused)
        if resumed is not None:
            overrides = without_its_own(saved, overrides)
            yield _resuming(run_dir, saved, overrides, folders), overrides
        else:
            saved = settings_from(saved, overrides, folders)
            yield Composer(folders, saved=saved, trust=trust), overrides


def _anew(
    overrides: list[str], config_dirs: Sequence[str], config_name: str, *, trust: bool
) -> Composer:
    if trust and not any(each.key_or_group == "resume" for each in parsed(overrides)):
        raise ConfigError(
            "trust=true applies to the modules of a resumed run or of --from RUN_DIR: type one"
        )
    folders = user_folders(config_dirs)
    add_current_directory(trust=trust)
    imports = [each.module for each in plugins_here()]  # elsewhere nothing else leads to them
    return Composer(folders, config_name, imports=imports, trust=trust)


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


def without_its_own(saved: SavedSettings, overrides: Sequence[str]) -> list[str]:
    """The overrides but for choices that the run has made and keeps: `agent=dqn` of one with DQN
    is no reason to begin with the values of that option."""
    own = saved_options(saved.settings)

    def is_kept(override: Override) -> bool:
        group = override.key_or_group
        return chooses(override) and not may_change(group) and own.get(group) == override.value()

    return [str(each.input_line) for each in parsed(overrides) if not is_kept(each)]


def resuming_composer(
    run_dir: Path,
    overrides: Sequence[str],
    folders: Sequence[str],
    *,
    trust: bool = False,
    typed: Set[str] = frozenset(),
) -> Composer:
    """Composes from the saved settings of `run_dir`; `folders` serve the groups that `overrides`
    name. Settings in `typed` are not checked."""
    saved = saved_settings((run_dir / SETTINGS).parent, trust=trust, typed=typed)
    return _resuming(run_dir, saved, overrides, folders)


def _resuming(
    run_dir: Path, saved: SavedSettings, overrides: Sequence[str], folders: Sequence[str]
) -> Composer:
    """The groups that a choice is typed of are chosen anew; one that is added to a list chooses
    nothing anew."""
    saved.settings["run_dir"] = str(run_dir)
    chosen = [each for each in parsed(overrides) if chooses(each) and not each.is_sweep_override()]
    saved = saved.choosing({each.key_or_group: "???" for each in chosen})
    return Composer(folders, saved=saved, run_dir=run_dir, trust=saved.trust)


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
    own = saved_options(saved.settings)
    read = parsed(overrides)
    with opened(Files(folders)) as files:
        typed = _typed_options(read, files)
        # In the place of the saved option a file can choose another one.
        instead = {
            group: own[group] if files.exists(f"{group}/{own[group]}") else options[0]
            for group, options in _chosen_by_files(typed, files).items()
            if group not in typed
        }
    # A name that follows from agent and env is that of the new ones, too.
    if saved.settings.get("name") == run_name(_root_=OmegaConf.create(saved.settings)):
        del saved.settings["name"]
    saved = saved.choosing({**dict.fromkeys(typed, "???"), **instead})
    if any(each.key_or_group == "env.id" for each in read) and "env" not in typed:
        saved.settings.setdefault("env", {})["option"] = ANY_ENV
    return saved


def _typed_options(overrides: Sequence[Override], files: Files) -> dict[str, list[str]]:
    """The options that are typed of each group; of a sweep several."""
    found: dict[str, list[str]] = {}
    for each in overrides:
        if not chooses(each):
            continue
        group, value = each.key_or_group, each.value()
        if not each.is_sweep_override():
            found[group] = [str(one) for one in (value if isinstance(value, list) else [value])]
        elif isinstance(value, Glob):
            found[group] = value.filter(files.options(group))
        else:
            found[group] = [str(one) for one in each.sweep_string_iterator()]
    return found


def _chosen_by_files(typed: Mapping[str, list[str]], files: Files) -> dict[str, list[str]]:
    """The options of other groups that the files of the typed ones choose, and those that these
    build on."""
    found: dict[str, list[str]] = {}
    todo = [f"{group}/{option}" for group, options in typed.items() for option in options]
    for path in todo:
        file = files.read(path)
        if file is None:  # an unknown option, which composing refuses
            continue
        content: Any = OmegaConf.to_container(file.config, resolve=False)
        for entry in content.get("defaults", []):
            if isinstance(entry, str) and entry != "_self_":
                base = absolute(path, entry.partition("@")[0])
                todo += [base] if base not in todo else []
        for group, option in overridden(path, file.config).items():
            if group in GROUPS:
                found.setdefault(group, []).append(str(option))
    return found
