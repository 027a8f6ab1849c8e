"""What is refused before anything is built: keys and values that plain Hydra lets pass, with file
and nearest name; a Python caller's values; folders that are used or cannot be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.describe import expected, meaning_of
from border_cli.config.interpolation import literal
from border_cli.config.overrides import OPTIONAL_GROUPS, is_sweep
from border_cli.config.sources import shown
from border_cli.config.tuned import Part
from border_cli.core.config import AUTO, SECTIONS, RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.files import SWEEP_MARK
from border_cli.core.machine import unwritable, usable_cores
from border_cli.core.settings import Settings, flat
from border_cli.core.words import nearest
from border_cli.registry import ENVS, GROUPS, RECORDERS

if TYPE_CHECKING:
    from border_cli.config.compose import Composer, Job, SweepTerms

RUN_MARKS = ("run.json", ".hydra")
OUR_LAUNCHER = "processes"  # the default of a sweep on two cores or more
RAY_LAUNCHER = "ray"


def unknown_setting(path: str, known: Sequence[str]) -> str:
    """The refusal of an unknown key: the nearest setting, and all that exist there."""
    parent, _, key = path.rpartition(".")
    if path in OPTIONAL_GROUPS:  # a file of theirs was not merged at the top
        return (
            f"{key} has no settings of its own: {key}=NAME chooses a file, which must begin with "
            "the line `# @package _global_`"
        )
    near = nearest(key, known)
    similar = _elsewhere(path) or ([f"{parent}.{near}".lstrip(".")] if near else [])
    hint = f", did you mean {' or '.join(similar)}?" if similar else ""
    there = ", ".join(known) or "no settings"
    return f"unknown setting {path!r}{hint} ({parent or 'a run'} has {there})"


def _elsewhere(path: str) -> list[str]:
    """Where else there is a setting of this name: `agent.gamma` for `gamma`."""
    components = [entry.config_type for registry in GROUPS.values() for entry in registry]
    kinds: list[type[Any]] = [RunConfig, *SECTIONS.values(), *components]
    found = [
        f"{kind.path}.{each.name}".lstrip(".")
        for kind in kinds
        for each in fields(kind)
        if each.name == path.rpartition(".")[2]
    ]
    return [each for each in dict.fromkeys(found) if each != path]


def refused_value(error: OmegaConfBaseException, kind: Any, path: str) -> str:
    """`agent.gamma must be a number: …`: what is allowed, then what OmegaConf says of the value."""
    name, said = path.rpartition(".")[2], str(error).splitlines()[0]
    if is_dataclass(kind) and name in {each.name for each in fields(kind)}:
        assert isinstance(kind, type)
        return f"{path} must be {expected(kind, name)}: {said}"
    return f"{path}: {said}"


def refuse_untyped(config: DictConfig, parts: Sequence[Part]) -> None:
    """Refuses files that did not begin with their schema: what they set has no types then."""
    if OmegaConf.get_type(config) is not RunConfig:
        primary = [part.file for part in parts if part.file and "/" not in part.path][-1]
        raise ConfigError(
            f"{shown(str(primary))}: the file must begin with `defaults: [config, _self_]`"
        )
    for group, registry in GROUPS.items():
        node = config._get_node(group)
        assert isinstance(node, DictConfig)
        if node._is_missing() or node._is_none():
            raise ConfigError(f"no {group} is chosen: {group}=NAME")
        kinds = [entry.config_type for entry in registry]
        several = group == RECORDERS.group
        members = [node._get_node(key) for key in node] if several else [node]
        misplaced = several and is_dataclass(OmegaConf.get_type(node))
        if misplaced or any(OmegaConf.get_type(member) not in kinds for member in members):
            raise ConfigError(without_schema(group, parts))


def without_schema(group: str, parts: Sequence[Part]) -> str:
    """How a file of a group must begin, where one names no component; else nothing."""
    header = "the line `# @package recorder.NAME` and " if group == RECORDERS.group else ""
    typed = {part.package for part in parts if part.path.startswith(f"schema/{group}/")}
    files = [part for part in parts if part.path.startswith(f"{group}/") and part.file]
    bare = [part for part in files if part.package not in typed and len(part.content)]
    if header and group in typed:  # hence beside the recorders, not among them
        bare += [part for part in files if part.package == group]
    if not bare:
        return ""
    return (
        f"{shown(str(bare[-1].file))}: the file must begin with {header}"
        f"`defaults: [/schema/{group}/KIND@_here_, _self_]`, where KIND is one of "
        f"{', '.join(GROUPS[group].names())}"
    )


def where(path: str, parts: Sequence[Part]) -> str:
    """`file: ` of the last file that sets a key, or nothing where only the command line does."""
    found = [part.file for part in parts if part.file and _sets(part, path.partition("[")[0])]
    return f"{shown(found[-1])}: " if found else ""


def _sets(part: Part, path: str) -> bool:
    content = OmegaConf.to_container(part.content, resolve=False)
    keys = flat(content, part.package)
    return part.package != path and any(f"{key}.".startswith(f"{path}.") for key in keys)


def refuse_mistyped_evaluation_env(config: RunConfig) -> None:
    """Refuses values of `evaluator.env` that `env` itself would refuse."""
    kind = type(config.env)
    for key, value in config.evaluator.env.items():
        try:
            OmegaConf.structured(kind)[key] = value
        except OmegaConfBaseException as error:
            raise ConfigError(refused_value(error, kind, f"evaluator.env.{key}")) from error


def checked(config: RunConfig) -> RunConfig:
    """The settings of a Python caller, checked as a composition checks them.

    A caller may have assigned any value after the settings were made. Values are converted as from
    YAML, such as 1 to 1.0 and "cpu" to an enum. A wrong type is refused, and ranges and
    combinations are checked again.
    """
    made: object = config
    for path, settings in _settings_in(config):
        try:
            made = OmegaConf.to_object(OmegaConf.structured(literal(settings)))
        except OmegaConfBaseException as error:
            key = f"{path}.{error.full_key}".lstrip(".")
            raise ConfigError(refused_value(error, type(settings), key)) from error
    assert isinstance(made, RunConfig)
    refuse_mistyped_evaluation_env(made)
    return made


def _settings_in(config: RunConfig) -> Iterator[tuple[str, Settings]]:
    """The settings of each group with their path, then those of the run itself."""
    for each in fields(config):
        chosen = getattr(config, each.name)
        members = chosen if isinstance(chosen, dict) else {"": chosen}
        for key, settings in members.items():
            if isinstance(settings, Settings):
                yield f"{each.name}.{key}".rstrip("."), settings
    yield "", config


def checked_jobs(
    composer: Composer,
    overrides: list[str],
    *,
    multirun: bool,
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[list[Job], SweepTerms | None]:
    """Composes and checks every job of the command; raises ConfigError for the first bad one.

    A job alone has no terms. `progress` is told how many jobs are composed by now. A sweeper that
    invents its jobs as it goes has none to check yet.
    """
    swept = any(is_sweep(each) for each in overrides)
    if not multirun and swept:
        multirun = composer.asks_for_sweep(overrides)
    if not multirun:
        job = composer.job(overrides)
        if not job.multirun or composer.run_dir is not None:
            _check_jobs(composer, [job])
            _refuse_used(job)
            return [job], None
    from border_cli.config.shared_composition import composed_jobs
    from border_cli.config.sweep_plan import with_folders

    terms = composer.sweep_terms(overrides, OUR_LAUNCHER if usable_cores() > 1 else None)
    if terms.jobs is None:
        return [], terms
    jobs = with_folders(composed_jobs(composer, terms.jobs, progress), Path(terms.root))
    _check_jobs(composer, jobs)
    _refuse_used_by_sweep(jobs)
    return jobs, terms


def _check_jobs(composer: Composer, jobs: Sequence[Job]) -> None:
    presets = [each for each in composer.options("env") if each not in ENVS.names()]
    for job in jobs:
        _refuse_without_env(job.config, presets)
        _check_resume(composer, job)


def _check_resume(composer: Composer, job: Job) -> None:
    config = job.config
    if composer.run_dir is not None:
        if job.multirun or Path(job.folder).absolute() != composer.run_dir:
            raise ConfigError(
                f"resume={config.resume} continues the run in {composer.run_dir}: do not set "
                "hydra.mode or hydra.run.dir"
            )
    elif config.resume is not None and config.resume != AUTO:
        raise ConfigError(
            f"resume={config.resume}: give the run to resume on the command line, because its "
            "settings replace the config; a file may only contain resume: auto"
        )
    elif config.resume == AUTO and config.run_dir is None:
        raise ConfigError("resume=auto needs run_dir=DIR")


def _refuse_without_env(config: RunConfig, presets: Sequence[str]) -> None:
    """Training needs an environment; `--cfg job` may show that there is none."""
    named_by = config.env.named_by
    if config.env.id is None and named_by != "id":
        meaning = meaning_of(type(config.env), named_by)
        raise ConfigError(f"env.{named_by} must be set: {meaning}")
    if config.env.id is None:
        listed = ", ".join(presets)
        raise ConfigError(
            f"env.id is null: choose an environment, env=NAME with one of {listed}, "
            "or any Gymnasium id with env.id=…"
        )


def _refuse_used(job: Job) -> None:
    folder = Path(job.folder)
    refuse_unwritable(folder)
    if (folder / SWEEP_MARK).exists():
        raise ConfigError(
            f"run_dir={folder} contains a sweep: choose another, or repeat its command with -m"
        )


def _refuse_used_by_sweep(jobs: Sequence[Job]) -> None:
    folders = [Path(job.folder) for job in jobs]
    for job, folder in zip(jobs, folders, strict=True):
        refuse_unwritable(folder)
        if job.config.run_dir is not None:
            _refuse_root(Path(job.config.run_dir).expanduser(), job)
    twice = {folder for folder in folders if folders.count(folder) > 1}
    if twice:
        raise ConfigError(
            f"several jobs would write to {sorted(twice)[0]}: give each value only once"
        )


def _refuse_root(root: Path, job: Job) -> None:
    if holds_run(root):
        raise ConfigError(f"run_dir={root} contains a single run: choose another for a sweep")
    if job.config.resume is None and (root / SWEEP_MARK).exists():
        raise ConfigError(
            f"run_dir={root} already contains a sweep: choose another, or add resume=auto"
        )


def holds_run(folder: Path) -> bool:
    """Whether an attempt has begun in the directory."""
    return any((folder / mark).exists() for mark in RUN_MARKS)


def refuse_unwritable(folder: Path) -> None:
    """Raises where a run directory can be neither made nor written to; nothing is left behind."""
    reason = unwritable(folder)
    if reason is not None:
        what = "written to" if os.path.isdir(folder) else "made"  # noqa: PTH112 - never raises
        raise ConfigError(f"run_dir={folder} cannot be {what}: {reason}")
