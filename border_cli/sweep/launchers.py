"""Launchers other than `processes` and `ray`: this process itself, and Hydra's launchers (joblib,
submitit, others)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.plugins import Plugins
from hydra.core.utils import configure_log
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict

from border_cli.config.job import Job
from border_cli.core.stop import StopFlag
from border_cli.errors import Interrupted, RunFailed
from border_cli.hydra_plugin import register
from border_cli.process.signals import stopping_on_signals
from border_cli.recorder import terminal
from border_cli.sweep.listing import Sweep
from border_cli.sweep.request import LaunchTerms, read_request, write_request
from border_cli.sweep.worker import run, run_for_a_launcher

SILENT = {"version": 1, "root": None, "disable_existing_loggers": False}  # jobs write their logs


@dataclass
class SerialLauncher:
    """`hydra/launcher=basic`: runs jobs one after another with the panel of a single run."""

    sweep: Sweep
    terms: LaunchTerms

    def launch(self, jobs: Sequence[Job]) -> None:
        """Runs the jobs. An interruption ends the current job, which saves, and then the sweep."""
        for position, job in enumerate(jobs, 1):
            if not self.sweep.quiet:
                name = f"job {job.number} ({self.sweep.label(job.overrides)})"
                terminal.say(terminal.make_console(), f"{name}, {position} of {len(jobs)}")
            write_request(job, self.terms)
            outcome = run(read_request(job.folder), before_leaving=self.sweep.finish)
            if outcome.status == "interrupted":
                raise SystemExit(outcome.exit_status)


@dataclass
class HydraLauncher:
    """Runs the jobs through a launcher of Hydra, whose workers read them from their folders."""

    name: str
    config: DictConfig  # config of the sweep; `hydra.launcher` configures the launcher
    sweep: Sweep
    terms: LaunchTerms

    def launch(self, jobs: Sequence[Job]) -> None:
        """Runs the jobs. On the first Ctrl-C local jobs save and end; jobs of a scheduler continue.

        Raises RunFailed if a worker is lost or the launcher fails.
        """
        for job in jobs:
            write_request(job, self.terms)
        config = make_plugin_config(self.config, self.sweep.root)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=make_context(FolderLoader({job.overrides: job.folder for job in jobs})),
            task_function=run_for_a_launcher,
            config=config,
        )
        local = self.name in ("joblib", "submitit_local")
        stop = StopFlag()
        # The jobs run in other processes. The launcher waits until they have saved.
        with stopping_on_signals(stop, and_then=self.sweep.stop) if local else nullcontext():
            try:
                launcher.launch(
                    [list(job.overrides) for job in jobs], initial_job_idx=jobs[0].number or 0
                )
            except Exception as error:  # any exception of joblib or submitit
                reason = str(error).strip().partition("\n")[0]
                raise RunFailed(f"hydra/launcher={self.name}: {reason}") from error
        if isinstance(stop.reason, Interrupted):
            raise SystemExit(stop.reason.exit_status)


@dataclass
class FolderLoader:
    """A config loader for Hydra's launchers and sweepers that adds the folder of a job to its
    config."""

    folders: Mapping[tuple[str, ...], Path]  # job overrides -> folder

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Registers our launchers with Hydra, because this may be a new process."""
        register()
        self.__dict__ = state

    def load_sweep_config(self, master: DictConfig, overrides: list[str]) -> DictConfig:
        """Returns the config of a job. Called by Hydra's launchers."""
        folder = self.folders[tuple(overrides)]
        config = deepcopy(master)
        with open_dict(config):
            config.folder = str(folder)
            config.hydra.sweep.dir = str(folder.parent)
            config.hydra.sweep.subdir = folder.name
            config.hydra.overrides.task = list(overrides)
        return config


def make_context(loader: FolderLoader) -> HydraContext:
    """Returns the Hydra context for plug-ins. It has no callbacks because runs use recorders."""
    return HydraContext(loader, Callbacks())  # type: ignore[arg-type]


def make_plugin_config(config: DictConfig, root: Path) -> DictConfig:
    """Returns Hydra's part of the config of a sweep in `root`, for plug-ins, without logging."""
    plugin_config: DictConfig = OmegaConf.create({"hydra": config.hydra})
    with open_dict(plugin_config):
        for part in ("launcher", "sweeper"):  # these may refer to settings of the runs
            plugin_config.hydra[part] = OmegaConf.to_container(config.hydra[part], resolve=True)
        plugin_config.hydra.sweep.dir = plugin_config.hydra.run.dir = str(root)
        plugin_config.hydra.job_logging = plugin_config.hydra.hydra_logging = SILENT
        plugin_config.hydra.output_subdir = None
    return plugin_config


def configure_hydra_logging(config: DictConfig, *, quiet: bool) -> None:
    """Configures logging by Hydra's config. With `quiet`, only warnings and errors are logged."""
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    if quiet:
        for name in ("hydra", "hydra_plugins"):
            logging.getLogger(name).setLevel(logging.WARNING)
