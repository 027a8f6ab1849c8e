"""`--from RUN_DIR`: a new run that begins with the settings of another.

They are composed from what that run has saved, as for `resume=RUN_DIR`, with what is typed on top.
An option that is typed replaces its group, and so do the options that its file chooses of other
groups. Tuned values are part of the saved settings, and none are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob, Override
from omegaconf import OmegaConf

from border_cli.config.composition import ANY_ENV, run_name
from border_cli.config.overrides import chooses, parsed, run_to_resume
from border_cli.config.saved import place, saved_options
from border_cli.config.saved_names import SavedSettings
from border_cli.config.sources import Files, absolute, chosen_options, opened
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.run.finding import find_run
from border_cli.system.files import expanded
from border_cli.words import shortest


def run_of_origin(origin: str) -> Path:
    """The RUN_DIR of `--from`, absolute."""
    run_dir, checkpoint = find_run(expanded(origin))
    if checkpoint is not None:
        raise ConfigError(
            f"--from {origin} is a checkpoint: --from {shortest(run_dir)} takes the settings of "
            f"its run, and with init_from={origin} it begins with these weights"
        )
    return run_dir.absolute()


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


def settings_from(
    saved: SavedSettings, overrides: Sequence[str], folders: Sequence[str]
) -> SavedSettings:
    """The saved settings of a run as those that a new run begins with."""
    own = saved_options(saved.settings)
    read = parsed(overrides)
    with opened(folders) as files:
        typed = _typed_options(read, files)
        # In the place of the saved option a file can choose another one.
        instead = {
            group: own[group] if files.exists(f"{group}/{own[group]}") else options[0]
            for group, options in _chosen_by_files(typed, files).items()
            if group not in typed
        }
    if _has_default_name(saved.settings):
        del saved.settings["name"]
    for group in sorted([*typed, *instead], key=place):
        saved = saved.choosing(group, instead.get(group, "???"))
    if any(each.key_or_group == "env.id" for each in read) and "env" not in typed:
        saved.settings.setdefault("env", {})["option"] = ANY_ENV
    return saved


def _has_default_name(settings: Mapping[str, Any]) -> bool:
    """Whether the name follows from agent and env, so that it is that of the new ones, too."""
    return bool(settings.get("name") == run_name(_root_=OmegaConf.create(dict(settings))))


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
    """The options of other groups that the files of the typed ones choose."""
    found: dict[str, list[str]] = {}
    todo = [f"{group}/{option}" for group, options in typed.items() for option in options]
    for path in todo:
        bases, chosen = _listed(path, files)  # none of an unknown option, which composing refuses
        todo += [each for each in bases if each not in todo]
        for group, option in chosen:
            if group in GROUPS:
                found.setdefault(group, []).append(str(option))
    return found


def _listed(path: str, files: Files) -> tuple[list[str], list[tuple[str, Any]]]:
    """The defaults list of a file: the path of each file that it builds on, and each group whose
    option it overrides, with the option."""
    found = files.read(path)
    if found is None:
        return [], []
    content: Any = OmegaConf.to_container(found.config, resolve=False)
    bases = [
        absolute(path, entry.partition("@")[0])
        for entry in content.get("defaults", [])
        if isinstance(entry, str) and entry != "_self_"
    ]
    return bases, chosen_options(path, found.config)
