"""Composes the jobs of a sweep: what several have in common is composed by Hydra once.

Jobs that differ in plain values alone share the files that Hydra has read and merged for them; the
values are applied to a copy of that, by Hydra's own function. A job that is refused this way is
composed alone once more, so that its refusal is the usual one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from border_cli.config import check
from border_cli.config.compose import Composer, Job, Loader, hydra_turn
from border_cli.config.interpolation import (
    interpolated,
    job_folder,
    localise,
    resolve_at,
)
from border_cli.config.sweep_plan import read_override
from border_cli.config.tuned import LIMITS
from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError

_REFUSED = (ConfigError, HydraException, OmegaConfBaseException, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What jobs that differ in plain values alone have in common."""

    pickled: bytes  # Hydra's composition without the plain values
    loader: Loader
    job: Job
    interpolated: list[str]  # paths


def composed_jobs(
    composer: Composer,
    jobs: Sequence[Sequence[str]],
    progress: Callable[[int], object] = lambda _: None,
) -> list[Job]:
    """All jobs of a sweep, checked; `progress` is told how many there are by now."""
    bases: dict[tuple[str, ...], _Base | None] = {}
    found = []
    with hydra_turn():
        loader = Loader(composer.folders)
        for number, overrides in enumerate(jobs):
            found.append(_composed(composer, loader, bases, list(overrides), number))
            progress(number + 1)
    return found


def _composed(
    composer: Composer,
    loader: Loader,
    bases: dict[tuple[str, ...], _Base | None],
    overrides: list[str],
    number: int,
) -> Job:
    plain = [each for each in overrides if _is_plain(loader, each)]
    rest = tuple(each for each in overrides if each not in plain)
    if rest not in bases:
        job = composer.job(overrides, number)
        bases[rest] = _base(composer, list(rest), job)
        return job
    base = bases[rest]
    try:
        return (
            _with_values(base, overrides, plain, number)
            if base
            else composer.job(overrides, number)
        )
    except _REFUSED:
        return composer.job(overrides, number)


def _is_plain(loader: Loader, text: str) -> bool:
    """Whether an override only sets a value, which changes nothing about what else is merged."""
    override = read_override(text)
    return not (
        override.is_delete()
        or override.is_add()
        or override.is_force_add()
        or override.package is not None
        or override.is_hydra_override()
        or override.key_or_group in (*LIMITS, "imports", "trainer")
        or isinstance(override.value(), dict)
        or "${" in text
        or loader.repository.group_exists(override.key_or_group)
    )


def _base(composer: Composer, overrides: list[str], job: Job) -> _Base | None:
    """Composes without plain values; None where that fails."""
    loader = Loader(composer.folders)
    try:
        config = loader.load_configuration(composer.config_name, overrides, RunMode.RUN)
    except _REFUSED:
        return None
    localise(config)
    paths = interpolated(config)
    return _Base(pickled=pickle.dumps(config), loader=loader, job=job, interpolated=paths)


def _with_values(base: _Base, overrides: list[str], plain: list[str], number: int) -> Job:
    """A job like that of `base` with other values."""
    config: DictConfig = pickle.loads(base.pickled)
    read = [read_override(each) for each in plain]
    ConfigLoaderImpl._apply_overrides_to_config(read, config)
    every = [read_override(each) for each in overrides]
    task = [each for each in every if not each.is_hydra_override()]
    _set_hydra(config, task, number)
    resolve_at(config, base.interpolated)
    job = replace(base.job, overrides=tuple(str(each.input_line) for each in task), number=number)
    if not base.job.own_name:
        job = replace(job, folder=_folder_chosen(config))
    with open_dict(config):
        dirname = str(config.hydra.job.override_dirname)
        del config["hydra"]
    made = OmegaConf.to_object(config)
    assert isinstance(made, RunConfig)
    check.refuse_mistyped_evaluation_env(made)
    made = replace(made, imports=list(dict.fromkeys([*base.job.config.imports, *made.imports])))
    if base.job.own_name:
        name = job_folder(made.run_dir, number, dirname)
        job = replace(job, folder=str(Path(base.job.sweep_dir) / name))
    return replace(job, config=made)


def _set_hydra(config: DictConfig, task: Sequence[Override], number: int) -> None:
    """What Hydra notes of a job."""
    job = config.hydra.job
    named = job.config.override_dirname
    with open_dict(config.hydra):
        job.num, job.id = number, str(number)
        config.hydra.overrides.task = [each.input_line for each in task]
        job.override_dirname = get_overrides_dirname(
            overrides=list(task),
            kv_sep=named.kv_sep,
            item_sep=named.item_sep,
            exclude_keys=named.exclude_keys,
        )


def _folder_chosen(config: DictConfig) -> str:
    return str(Path(config.hydra.sweep.dir, config.hydra.sweep.subdir))
