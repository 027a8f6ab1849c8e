"""The jobs of a sweep, its launcher and its directory, and the composition of its jobs."""

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

from border_cli.config.check import explain_errors
from border_cli.config.compose import Composer, Composition, as_typed
from border_cli.config.files import Files
from border_cli.config.job import Job
from border_cli.config.overrides import is_sweep, normalize_overrides, parse_overrides
from border_cli.errors import ConfigError

ONE_PER_COMMAND = (
    *("run_dir", "resume", "imports", "quiet", "dry_run", "statistics"),
    *("sweep.on_error", "sweep.skip_invalid"),
)
LAUNCHER = "hydra/launcher"
NUMBER = "${hydra:job.num}"  # default sub-folder of a job
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"  # Hydra's default sweeper


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTerms:
    """The jobs of a sweep, and how they are launched."""

    jobs: list[list[str]] | None  # overrides of each job; None if a sweeper plug-in generates them
    skip_invalid: bool  # whether jobs with invalid settings are skipped
    fixed: list[str]  # overrides that all jobs share
    launcher: str  # chosen option, such as joblib
    launcher_settings: dict[str, Any]
    root: Path  # absolute path of the sweep directory
    config: DictConfig  # composed config of the sweep itself, for Hydra's plug-ins
    own_names: bool  # whether the jobs' sub-folders are named by us


def sweep_terms(
    composer: Composer, overrides: Sequence[str], default_launcher: str | None = None
) -> SweepTerms:
    """Returns the jobs, launcher and directory of a sweep.

    `default_launcher` is used if no file or override chooses a launcher.
    """
    typed = normalize_overrides(overrides)
    _refuse_swept(parse_overrides(typed))
    with composer.open_files() as files:
        imports = composer.import_for(files, [text for text in typed if not is_sweep(text)])
        with explain_errors(files, typed):
            options = files.find_parts(typed)
            if default_launcher and LAUNCHER not in options:
                typed = [f"{LAUNCHER}={default_launcher}", *typed]
            return _read_terms(composer.merge(files, typed, imports, RunMode.MULTIRUN), files)


def _read_terms(composition: Composition, files: Files) -> SweepTerms:
    """Reads the terms from the composition of the sweep itself."""
    hydra = composition.config.hydra
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
        skip_invalid=OmegaConf.select(composition.config, "sweep.skip_invalid") is True,
        fixed=[text for text in task if not is_sweep(text)],
        launcher=str(hydra.runtime.choices.get(LAUNCHER)),
        launcher_settings=settings,
        root=Path(hydra.sweep.dir).absolute(),
        config=composition.config,
        own_names=hydra.sweep._get_node("subdir")._value() == NUMBER,
    )


def _refuse_swept(typed: Sequence[Override]) -> None:
    """Refuses several values for settings that apply to a whole command. If a key is given twice,
    also refuses several values or a mapping: Hydra's sweeper would use the last one only."""
    keys = [override.get_key_element() for override in typed]
    for override, key in zip(typed, keys, strict=True):
        is_swept = override.is_sweep_override()
        if is_swept and override.key_or_group in ONE_PER_COMMAND:
            raise ConfigError(f"{override.input_line}: {key} takes one value")
        if keys.count(key) > 1 and (is_swept or isinstance(override.value(), dict)):
            raise ConfigError(f"{override.input_line}: a sweep takes {key} once")


def jobs_of(
    composer: Composer,
    batch: Sequence[Sequence[str]],
    terms: SweepTerms,
    first: int = 0,
    refused: dict[int, ConfigError] | None = None,
) -> list[Job]:
    """Composes and checks the jobs of a sweep, numbered from `first`.

    Errors are stored in `refused` by job number, and the valid jobs are returned. If `refused` is
    None, the first error is raised.
    """
    of_hydra, jobs = as_typed(terms.config.hydra.overrides.hydra), []
    with composer.open_files() as files:
        for number, overrides in enumerate(batch, first):
            try:
                jobs.append(composer.job_of(files, [*of_hydra, *overrides], number, terms.root))
            except ConfigError as error:
                if refused is None:
                    raise
                refused[number] = error
    return jobs
