"""From overrides to a checked RunConfig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from border_cli.config import check
from border_cli.config.explain import explained
from border_cli.config.imports import import_modules, imports_of
from border_cli.config.interpolation import resolve_settings
from border_cli.config.job import Source
from border_cli.config.loader import Loader, hydra_turn
from border_cli.config.overrides import (
    is_sweep,
    normalized,
    refuse_no_text,
    refuse_swept,
    refuse_unmeant,
)
from border_cli.config.provenance import sources
from border_cli.config.search_path import user_folders
from border_cli.config.sources import register_components
from border_cli.config.tuned import Part
from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError

BASIC_SWEEPER = f"{BasicSweeper.__module__}.{BasicSweeper.__qualname__}"


def compose(
    *overrides: str, config_dir: str | None = None, config_name: str = "config"
) -> RunConfig:
    """The settings that `border-train OVERRIDES` would run with, checked.

    Hydra's global state is as before, also inside another Hydra app and in threads.
    """
    refuse_no_text("compose", overrides)
    folders = user_folders([config_dir] if config_dir else [])
    return Composer(folders, config_name).job(list(overrides)).config


@dataclass(frozen=True, slots=True)
class Job:
    """One composed and checked job."""

    overrides: tuple[str, ...]  # without those of Hydra itself
    number: int | None  # within a sweep
    config: RunConfig
    sources: list[Source]
    folder: str  # where it will be written
    multirun: bool  # the configuration itself asks for a sweep
    as_composed: str  # YAML before interpolations are resolved


class Composer:
    """Composes jobs from one primary configuration and the folders in front of ours."""

    def __init__(
        self,
        folders: Sequence[str] = (),
        config_name: str = "config",
        *,
        run_dir: Path | None = None,
        trust: bool = False,
    ) -> None:
        self.folders = list(folders)
        self.config_name = config_name
        self.run_dir = run_dir  # whose saved settings these are
        self.trust = trust  # whether `trust=true` was typed
        with hydra_turn():
            register_components()

    def job(self, overrides: list[str], job_number: int | None = None) -> Job:
        """Composes and checks one job; a number says which one of a sweep."""
        with hydra_turn():
            overrides = normalized(overrides)
            imports = self.imported(overrides)
            loader = Loader(self.folders)
            with explained(loader, self.config_name, overrides):
                refuse_unmeant(loader, self.config_name, overrides)
                config = loader.load_configuration(self.config_name, overrides, RunMode.RUN)
                if job_number is not None:
                    config.hydra.job.num, config.hydra.job.id = job_number, str(job_number)
                config = check.typed(config, loader.parts)
                check.refuse_untyped(config, loader.parts)
                check.refuse_unknown(config, loader.parts)
                read, _ = loader.read(self.config_name, overrides)
                check.refuse_odd_truths(config, loader.parts, read)
                job = _finish(config, loader.parts, imports, job_number)
            if self.trust and job.config.resume is None:
                raise ConfigError(
                    "trust=true applies to the modules of a resumed run, but resume is null"
                )
            return job

    def imported(self, overrides: list[str]) -> list[str]:
        """Imports the modules that these overrides lead to, and stores what they register."""
        with hydra_turn():
            names = imports_of(self.folders, self.config_name, overrides)
            if names:
                import_modules(names)
                register_components()
            return names

    def options(self, group: str) -> list[str]:
        """What a group offers."""
        with hydra_turn():
            return Loader(self.folders).options(group)

    def primary_configs(self) -> list[str]:
        """What a command may begin with: `config` and files of the user."""
        with hydra_turn():
            return Loader(self.folders).primary_configs()

    def sweep(self, overrides: list[str]) -> list[list[str]] | None:
        """The overrides of each job of a sweep, or None where a sweeper invents them as it goes."""
        with hydra_turn():
            overrides = normalized(overrides)
            refuse_swept(overrides)
            self.imported([each for each in overrides if not is_sweep(each)])
            loader = Loader(self.folders)
            with explained(loader, self.config_name, overrides):
                parser = OverridesParser.create(config_loader=loader)
                master = self._master(loader, overrides)
                sweeper = master.hydra.sweeper
                if sweeper.get("_target_") != BASIC_SWEEPER:
                    return None
                params = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
                swept = parser.parse_overrides([*params, *as_typed(master.hydra.overrides.task)])
                hydra = as_typed(master.hydra.overrides.hydra)
                return [[*hydra, *job] for job in BasicSweeper.split_arguments(swept, None)[0]]

    def asks_for_sweep(self, overrides: list[str]) -> bool:
        """Whether the configuration itself says `hydra.mode: MULTIRUN`."""
        with hydra_turn():
            self.imported([each for each in overrides if not is_sweep(each)])
            loader = Loader(self.folders)
            with explained(loader, self.config_name, overrides):
                master = self._master(loader, overrides)
            return bool(master.hydra.mode == RunMode.MULTIRUN)

    def _master(self, loader: Loader, overrides: list[str]) -> DictConfig:
        """A sweep's own composition: what is swept is left out, as Hydra does it."""
        return loader.load_configuration(
            self.config_name, overrides, RunMode.MULTIRUN, validate_sweep_overrides=False
        )


def _finish(config: DictConfig, parts: list[Part], imports: list[str], number: int | None) -> Job:
    hydra = config.hydra
    as_composed = OmegaConf.to_yaml(_without_hydra(config))
    resolve_settings(config)
    folder = _folder(config)
    with open_dict(config):
        del config["hydra"]
    made = OmegaConf.to_object(config)
    assert isinstance(made, RunConfig)
    check.refuse_mistyped_evaluation_env(made)
    return Job(
        overrides=tuple(as_typed(hydra.overrides.task)),
        number=number,
        config=replace(made, imports=list(dict.fromkeys([*imports, *made.imports]))),
        sources=sources(parts, hydra.runtime.choices),
        folder=folder,
        multirun=hydra.mode == RunMode.MULTIRUN,
        as_composed=as_composed,
    )


def as_typed(overrides: Any) -> list[str]:
    """Hydra's record of the command line; a `${…}` in it stays as it was typed."""
    return [str(each) for each in OmegaConf.to_container(overrides, resolve=False) or []]


def _without_hydra(config: DictConfig) -> DictConfig:
    """A copy of the settings alone, to be shown: its types are lost."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def _folder(config: DictConfig) -> str:
    """Where the job will be written; of a sweep's job, its sub-folder."""
    if OmegaConf.is_missing(config.hydra.job, "num"):
        return str(config.hydra.run.dir)
    return str(Path(config.hydra.sweep.dir, config.hydra.sweep.subdir))
