"""`--from RUN_DIR`: a new run that begins with the settings of another.

They are composed from what that run has saved, as for `resume=RUN_DIR`, with what is typed on top.
An option that is typed replaces its group; an agent's or trainer's file may then choose options of
other groups, as it does in `conf/config.yaml`. Tuned values are part of the saved settings, and
none are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.default_element import ConfigDefault, GroupDefault
from hydra.core.override_parser.types import Glob, Override

from border_cli.config.compose import Composer, Loader, hydra_turn
from border_cli.config.imports import modules_of_a_run
from border_cli.config.interpolation import ANY_ENV, env_part
from border_cli.config.overrides import component_of, parsed, run_to_resume
from border_cli.config.saved import (
    read_saved,
    refuse_strange_modules,
    saved_components,
    saved_options,
    saved_source,
)
from border_cli.config.search_path import user_folders
from border_cli.core.errors import ConfigError
from border_cli.core.files import SETTINGS, expanded
from border_cli.core.words import shortest
from border_cli.registry import GROUPS
from border_cli.run.finding import find_run
from border_cli.run.status import import_paths


@contextmanager
def composing_from(
    origin: str,
    overrides: Sequence[str],
    *,
    config_dirs: Sequence[str],
    config_name: str,
    trust: bool,
) -> Iterator[Composer]:
    """Within the block the modules of the run can be imported, see `imports.modules_of_a_run`."""
    run_dir = _run_of(origin)
    _refuse_beside(origin, overrides, config_name)
    recorded = import_paths(run_dir)
    with modules_of_a_run(recorded, trust=trust):
        if not trust:
            refuse_strange_modules(run_dir / SETTINGS, recorded)
        yield _composer(run_dir, overrides, user_folders(config_dirs), trust=trust)


def _run_of(origin: str) -> Path:
    run_dir, checkpoint = find_run(expanded(origin))
    if checkpoint is not None:
        raise ConfigError(
            f"--from {origin} is a checkpoint: --from {shortest(run_dir)} takes the settings of "
            f"its run, and with init_from={origin} it begins with these weights"
        )
    return run_dir.absolute()


def _refuse_beside(origin: str, overrides: Sequence[str], config_name: str) -> None:
    if config_name != "config":
        raise ConfigError(
            f"-cn {config_name} and --from {origin} both say what settings begin with: give one"
        )
    if run_to_resume(overrides) is not None:
        raise ConfigError(
            "--from RUN_DIR starts a new run and resume=RUN_DIR continues one: give one of them"
        )


def _composer(
    run_dir: Path, overrides: Sequence[str], folders: Sequence[str], *, trust: bool
) -> Composer:
    settings = read_saved(run_dir / SETTINGS)
    with hydra_turn():
        loader = Loader(folders)
        typed = _typed_options(parsed(overrides), loader)
        asked = list(typed)
        saved = saved_components(settings)
        for group, options in _chosen_by_files(typed, loader).items():
            if group not in typed:
                asked.append(_instead(group, saved[group], options, loader))
    other_env = any(each.key_or_group == "env.id" for each in parsed(overrides))
    name = _name(settings, typed, other_env=other_env)
    if name:
        asked.append(f"name={name}")
    if other_env and "env" not in typed:
        asked.append(f"env.option={ANY_ENV}")
    source = saved_source(run_dir / SETTINGS.parent, asked)
    return Composer([source, *folders], SETTINGS.stem, origin=run_dir, trust=trust)


def _typed_options(overrides: Sequence[Override], loader: Loader) -> dict[str, list[str]]:
    """The options that are typed of each group; of a sweep several."""
    found: dict[str, list[str]] = {}
    for each in overrides:
        group, value = each.key_or_group, each.value()
        if group not in GROUPS or each.is_delete() or each.is_add() or isinstance(value, dict):
            continue
        if not each.is_sweep_override():
            found[group] = [str(one) for one in (value if isinstance(value, list) else [value])]
        elif isinstance(value, Glob):
            found[group] = value.filter(loader.options(group))
        else:
            found[group] = [str(one) for one in each.sweep_string_iterator()]
    return found


def _chosen_by_files(typed: Mapping[str, list[str]], loader: Loader) -> dict[str, list[str]]:
    """The options of other groups that the files of the typed ones choose."""
    found: dict[str, list[str]] = {}
    todo = [f"{group}/{option}" for group, options in typed.items() for option in options]
    seen: set[str] = set()
    while todo:
        path = todo.pop()
        if path in seen or not loader.repository.config_exists(path):
            continue  # an unknown option is refused by the composition
        seen.add(path)
        loaded = loader.repository.load_config(path)
        for each in (loaded.defaults_list if loaded else None) or []:
            if isinstance(each, GroupDefault) and each.override and each.group:
                found.setdefault(each.group.lstrip("/"), []).append(str(each.value))
            elif isinstance(each, ConfigDefault) and each.path:
                base = each.path
                todo.append(base[1:] if base.startswith("/") else f"{path.split('/')[0]}/{base}")
    return {group: options for group, options in found.items() if group in GROUPS}


def _instead(group: str, saved: str, options: Sequence[str], loader: Loader) -> str:
    """The entry that a file can choose another option in the place of; its saved values stay where
    no option has other settings."""
    components = {component_of(f"{group}/{each}", loader.repository) for each in options}
    option = saved if loader.repository.config_exists(f"{group}/{saved}") else options[0]
    return f"{group}:{option}" + (":kept" if components == {saved} else "")


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
