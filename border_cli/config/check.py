"""What is refused before anything is built: keys and values that plain Hydra lets pass, with file
and nearest name; a Python caller's values; folders that are used or cannot be written."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException, UnsupportedValueType

from border_cli.config.describe import expected, meaning_of
from border_cli.config.interpolation import literal
from border_cli.config.overrides import OPTIONAL_GROUPS, TRUST, is_sweep
from border_cli.config.sources import group_base, shown
from border_cli.config.tuned import Part
from border_cli.core.config import AUTO, SECTIONS, RecorderConfig, RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.files import SWEEP_MARK
from border_cli.core.machine import unwritable, usable_cores
from border_cli.core.settings import Settings
from border_cli.core.words import nearest
from border_cli.registry import ENVS, GROUPS, RECORDERS

if TYPE_CHECKING:
    from border_cli.config.compose import Composer, Job, SweepTerms

RUN_MARKS = ("run.json", ".hydra")
OUR_LAUNCHER = "processes"  # the default of a sweep on two cores or more
RAY_LAUNCHER = "ray"


def typed(config: DictConfig, parts: Sequence[Part]) -> DictConfig:
    """The composition as a RunConfig; a primary configuration of the user may lack the schema."""
    if OmegaConf.get_type(config) is RunConfig:
        return config
    root: DictConfig = OmegaConf.structured(RunConfig)
    hydra = config._get_node("hydra")
    rest = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        root.merge_with(rest)
    except OmegaConfBaseException as error:
        key = str(error.full_key or error.key)
        raise ConfigError(f"{where(key, parts)}{_refused(error, key)}") from error
    root._set_flag("struct", False)
    root._set_item_impl("hydra", hydra)
    return root


def _refused(error: OmegaConfBaseException, key: str) -> str:
    kind, name = error.object_type, key.rpartition(".")[2]
    if not isinstance(kind, type) or not is_dataclass(kind):
        return f"{key}: {str(error).splitlines()[0]}"
    if name not in {each.name for each in fields(kind)}:
        return unknown_setting(kind, key.rpartition(".")[0], name)
    return f"{key} must be {expected(kind, name)}"


def unknown_setting(kind: type[Any], path: str, key: str) -> str:
    """The refusal of an unknown key: the nearest setting, and all that exist there."""
    if key == TRUST and not path:
        return f"{TRUST}=true is not a setting: give it on the command line with resume=RUN_DIR"
    if key in OPTIONAL_GROUPS and not path:  # a file of theirs was not merged at the top
        return (
            f"{key} has no settings of its own: {key}=NAME chooses a file, which must begin with "
            "the line `# @package _global_`"
        )
    known = [each.name for each in fields(kind) if each.compare]  # the others composing sets
    initials = {"".join(word[:1] for word in name.split("_")): name for name in known}
    near = nearest(key, known) or initials.get(key)  # learning_rate for lr
    elsewhere = [each for each in _elsewhere(key) if each != _joined(path, key)]
    similar = elsewhere or ([_joined(path, near)] if near else _elsewhere(key))
    hint = f", did you mean {' or '.join(similar)}?" if similar else ""
    return (
        f"unknown setting {_joined(path, key)!r}{hint} ({path or 'a run'} has {', '.join(known)})"
    )


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _elsewhere(key: str) -> list[str]:
    """Where there is a setting of this name: `agent.gamma` for `gamma`."""
    kinds: dict[str, list[type[Any]]] = {"": [RunConfig]}
    kinds |= {name: [kind] for name, kind in SECTIONS.items()}
    for group, registry in GROUPS.items():
        for entry in registry:
            several = group_base(group) is RecorderConfig
            place = f"{group}.{entry.name}" if several else group
            kinds.setdefault(place, []).append(entry.config_type)
    return [
        _joined(place, key)
        for place, of_place in kinds.items()
        if any(key == each.name for kind in of_place for each in fields(kind))
    ]


def refuse_untyped(config: DictConfig, parts: Sequence[Part]) -> None:
    """Refuses a group whose file did not begin with a schema: no component is named then."""
    for group, registry in GROUPS.items():
        node = config._get_node(group)
        assert isinstance(node, DictConfig)
        if node._is_missing() or node._is_none():
            raise ConfigError(f"no {group} is chosen: {group}=NAME")
        kinds = [entry.config_type for entry in registry]
        single = group_base(group) is not RecorderConfig
        if not single and is_dataclass(OmegaConf.get_type(node)):
            raise ConfigError(without_schema(group, parts))
        members = [node] if single else [node._get_node(key) for key in node]
        if any(OmegaConf.get_type(member) not in kinds for member in members):
            raise ConfigError(without_schema(group, parts))


def without_schema(group: str, parts: Sequence[Part]) -> str:
    """How a file of a group must begin, for one that names no component."""
    several = group_base(group) is RecorderConfig
    typed_places = {part.package for part in parts if part.path.startswith(f"schema/{group}/")}
    files = [part for part in parts if part.path.startswith(f"{group}/") and part.file]
    bare = [each for each in files if each.package not in typed_places]
    bare += unnamed_recorders(parts) if several else []
    header = f"the line `# @package {group}.NAME` and " if several else ""
    place = f"{shown(str((bare or files)[-1].file))}: " if files else ""
    return (
        f"{place}the file must begin with {header}`defaults: [/schema/{group}/KIND@_here_, "
        f"_self_]`, where KIND is one of {', '.join(GROUPS[group].names())}"
    )


def unnamed_recorders(parts: Sequence[Part]) -> list[Part]:
    """The recorder files that lack their `# @package recorder.NAME`."""
    group = RECORDERS.group
    misplaced = [part for part in parts if part.package == group]
    has_schema = any(part.path.startswith("schema/") for part in misplaced)
    return [
        part
        for part in misplaced
        if part.path.startswith(f"{group}/") and (has_schema or len(part.content))
    ]


def where(path: str, parts: Sequence[Part]) -> str:
    """`file: ` of the last file that sets a key, or nothing where only the command line does."""
    found = [part.file for part in parts if part.file and _holds(part, path.split("."))]
    return f"{shown(found[-1])}: " if found else ""


def _holds(part: Part, path: list[str]) -> bool:
    package = part.package.split(".") if part.package else []
    if path[: len(package)] != package:
        return False
    node: object = OmegaConf.to_container(part.content, resolve=False)
    for key in path[len(package) :]:
        if not isinstance(node, dict) or key.partition("[")[0] not in node:
            return False
        node = node[key.partition("[")[0]]
    return len(path) > len(package)


def refuse_mistyped_evaluation_env(config: RunConfig) -> None:
    """Refuses values of `evaluator.env` that `env` itself would refuse."""
    if not config.evaluator.env:
        return
    kind = type(config.env)
    typed_env = OmegaConf.structured(kind)
    for key, value in config.evaluator.env.items():
        try:
            typed_env[key] = value
        except OmegaConfBaseException as error:
            raise ConfigError(
                f"evaluator.env.{key} must be {expected(kind, key)}, got {value!r}"
            ) from error


def checked(config: RunConfig) -> RunConfig:
    """The settings of a Python caller, checked as a composition checks them.

    A caller may have assigned any value after the settings were made. Values are converted as from
    YAML, such as 1 to 1.0 and "cpu" to an enum. A wrong type is refused, and ranges and
    combinations are checked again.
    """
    try:
        for path, settings in _settings_in(config):
            _refuse_mistyped(path, settings)
        made = OmegaConf.to_object(OmegaConf.structured(literal(config)))
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from error
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


def _refuse_mistyped(path: str, settings: Settings) -> None:
    kind = type(settings)
    typed_node = OmegaConf.structured(kind)
    for each in fields(settings):
        key, value = f"{path}.{each.name}".lstrip("."), getattr(settings, each.name)
        try:
            typed_node[each.name] = literal(value)
        except UnsupportedValueType as error:
            place = f"{path}.{error.full_key}".lstrip(".")
            raise ConfigError(
                f"{place} must be a number, text, true or false, null, or a list or mapping of "
                f"these, because settings are saved as YAML; got {_brief(value)}"
            ) from error
        except OmegaConfBaseException as error:
            raise ConfigError(
                f"{key} must be {expected(kind, each.name)}, got {_brief(value)}"
            ) from error


def _brief(value: object) -> str:
    short = reprlib.Repr()
    short.maxother = short.maxstring = 80
    return short.repr(value)


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
