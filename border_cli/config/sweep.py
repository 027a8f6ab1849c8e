"""The jobs of a sweep: how they come about and are run, as its configuration says, and how they are
composed and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from border_cli.config.check import explained
from border_cli.config.compose import Composer, Composition, as_typed
from border_cli.config.files import Files
from border_cli.config.job import Job
from border_cli.config.overrides import is_sweep, normalized, parsed
from border_cli.errors import ConfigError

ONE_PER_COMMAND = (
    *("run_dir", "resume", "imports", "quiet", "dry_run", "statistics"),
    *("sweep.on_error", "sweep.skip_invalid"),
)
LAUNCHER = "hydra/launcher"
NUMBER = "${hydra:job.num}"  # the sub-folder of a job, unless a user chose another
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"  # its name in settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTerms:
    """How the jobs of a sweep come about and are run."""

    jobs: list[list[str]] | None  # the overrides of each; None: its sweeper invents them
    skip_invalid: bool  # leaves out jobs that are refused
    fixed: list[str]  # overrides of every job
    launcher: str  # the choice, such as joblib
    launcher_settings: dict[str, Any]
    root: Path  # the directory of the sweep, absolute
    config: DictConfig  # the composition of the sweep itself, for Hydra's plug-ins
    own_names: bool  # the sub-folder of a job is named by us


def sweep_terms(
    composer: Composer, overrides: Sequence[str], default_launcher: str | None = None
) -> SweepTerms:
    """The jobs of a sweep, its launcher and its directory.

    `default_launcher` is taken where no file and no override chooses one.
    """
    typed = normalized(overrides)
    _refuse_swept(parsed(typed))
    with composer.opened() as files:
        imports = composer.import_for(files, [each for each in typed if not is_sweep(each)])
        with explained(files, typed):
            chosen = files.find_parts(typed)
            if default_launcher and LAUNCHER not in chosen:
                typed = [f"{LAUNCHER}={default_launcher}", *typed]
            return _terms(composer.merge(files, typed, imports, RunMode.MULTIRUN), files)


def _terms(made: Composition, files: Files) -> SweepTerms:
    """The terms in the composition of the sweep itself."""
    hydra = made.config.hydra
    task, jobs = as_typed(hydra.overrides.task), None
    if hydra.sweeper.get("_target_") == BASIC_SWEEPER:
        params = [f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items()]
        parser = OverridesParser.create(config_loader=files.loader)
        [jobs] = BasicSweeper.split_arguments(parser.parse_overrides([*params, *task]), None)
        if not jobs:
            raise ConfigError(f"the sweep has no job: {' '.join([*params, *task])}")
    settings: Any = OmegaConf.to_container(hydra.launcher, resolve=True)
    return SweepTerms(
        jobs=jobs,
        skip_invalid=OmegaConf.select(made.config, "sweep.skip_invalid") is True,
        fixed=[each for each in task if not is_sweep(each)],
        launcher=str(hydra.runtime.choices.get(LAUNCHER)),
        launcher_settings=settings,
        root=Path(hydra.sweep.dir).absolute(),
        config=made.config,
        own_names=hydra.sweep._get_node("subdir")._value() == NUMBER,
    )


def _refuse_swept(typed: Sequence[Override]) -> None:
    """Refuses several values of a setting that a command has once, and several values or a mapping
    of a key that is typed twice: Hydra's sweeper takes the last one."""
    keys = [override.get_key_element() for override in typed]
    for override, key in zip(typed, keys, strict=True):
        swept = override.is_sweep_override()
        if swept and override.key_or_group in ONE_PER_COMMAND:
            raise ConfigError(f"{override.input_line}: {key} takes one value")
        if keys.count(key) > 1 and (swept or isinstance(override.value(), dict)):
            raise ConfigError(f"{override.input_line}: a sweep takes {key} once")


def jobs_of(
    composer: Composer,
    batch: Sequence[Sequence[str]],
    terms: SweepTerms,
    first: int = 0,
    refused: dict[int, ConfigError] | None = None,
) -> list[Job]:
    """Composes and checks the jobs of a sweep, numbered from `first`.

    With `refused`, it takes the refusals by the jobs' numbers, and the other jobs are returned;
    else the first refusal raises.
    """
    of_hydra, jobs = as_typed(terms.config.hydra.overrides.hydra), []
    with composer.opened() as files:
        for number, overrides in enumerate(batch, first):
            try:
                jobs.append(composer.job_of(files, [*of_hydra, *overrides], number, terms.root))
            except ConfigError as error:
                if refused is None:
                    raise
                refused[number] = error
    return jobs
