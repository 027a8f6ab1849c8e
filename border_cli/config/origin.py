"""`--from RUN_DIR`: a new run that begins with the settings of another.

They are composed from what that run has saved, as for `resume=RUN_DIR`, with what is typed on top.
An option that is typed replaces its group; an agent's or trainer's file may then choose options of
other groups, as it does in `conf/config.yaml`. Tuned values are part of the saved settings, and
none are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob, Override

from border_cli.config.interpolation import ANY_ENV, env_part
from border_cli.config.overrides import component_of, listed, parsed, run_to_resume
from border_cli.config.saved import Saved, place, saved_components, saved_options, saved_settings
from border_cli.config.sources import Files, opened
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.run.finding import find_run
from border_cli.system.files import SETTINGS, expanded
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


def settings_from(run_dir: Path, overrides: Sequence[str], folders: Sequence[str]) -> Saved:
    """The saved settings of a run as those that a new run begins with."""
    saved = saved_settings((run_dir / SETTINGS).parent)
    read = parsed(overrides)
    with opened(folders) as files:
        typed = _typed_options(read, files)
        instead = {
            group: _instead(group, saved, options, files)
            for group, options in _chosen_by_files(typed, files).items()
            if group not in typed
        }
    other_env = any(each.key_or_group == "env.id" for each in read)
    name = _name(saved.settings, typed, other_env=other_env)
    for group in sorted([*typed, *instead], key=place):
        option, keeps_values = instead.get(group, ("???", False))
        saved = saved.choosing(group, option, keeps_values=keeps_values)
    values = {"name": name} if name else {}
    if other_env and "env" not in typed:
        values["env.option"] = ANY_ENV
    return saved.with_values(values)


def _typed_options(overrides: Sequence[Override], files: Files) -> dict[str, list[str]]:
    """The options that are typed of each group; of a sweep several."""
    found: dict[str, list[str]] = {}
    for each in overrides:
        group, value = each.key_or_group, each.value()
        if group not in GROUPS or each.is_delete() or each.is_add() or isinstance(value, dict):
            continue
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
    seen: set[str] = set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for each in listed(path, files):  # none of an unknown option, which composing refuses
            if isinstance(each, str):
                todo.append(each)
            elif each[0] in GROUPS:
                found.setdefault(each[0], []).append(str(each[1]))
    return found


def _instead(group: str, saved: Saved, options: Sequence[str], files: Files) -> tuple[str, bool]:
    """The entry that a file can choose another option in the place of; its saved values stay where
    no option has other settings."""
    component = saved_components(saved.settings)[group]
    option = component if files.exists(f"{group}/{component}") else options[0]
    return option, {component_of(f"{group}/{each}", files) for each in options} == {component}


def _name(
    settings: Mapping[str, Any], typed: Mapping[str, list[str]], *, other_env: bool
) -> str | None:
    """`<agent>_<env>` with what is typed, where the run is called so; None: its name stays."""
    options = saved_options(settings)
    agent, chosen = options.get("agent"), options.get("env", ANY_ENV)
    name, of_agent = str(settings.get("name")), f"{agent}_"
    changed = other_env or {"agent", "env"} & typed.keys()
    if not changed or not name.startswith(of_agent) or "," in name:
        return None
    env, before = name.removeprefix(of_agent), settings.get("env")
    known = env_part(chosen, before.get("id") if isinstance(before, dict) else None)
    if chosen == ANY_ENV or env == known:  # else it is a word of the user
        if "env" in typed:
            env = "${border.env_name:${hydra:runtime.choices.env}}"
        elif other_env:
            env = f"${{border.env_name:{ANY_ENV}}}"
    return ("${hydra:runtime.choices.agent}_" if "agent" in typed else of_agent) + env
