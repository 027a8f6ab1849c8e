"""Who runs the jobs of a sweep that are no processes of ours: this process, and the launchers of
Hydra that a user chose (joblib, submitit, others)."""

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
from border_cli.sweep.request import Terms, read_request, write_request
from border_cli.sweep.worker import run, run_for_a_launcher

SILENT = {"version": 1, "root": None, "disable_existing_loggers": False}  # a job has its own log


@dataclass
class InThisProcess:
    """`hydra/launcher=basic`: the jobs one after another, with the panel of a single run."""

    sweep: Sweep
    terms: Terms

    def launch(self, jobs: Sequence[Job]) -> None:
        """An interruption ends the sweep after its job."""
        for place, job in enumerate(jobs, 1):
            if not self.sweep.quiet:
                name = f"job {job.number} ({self.sweep.label(job.overrides)})"
                terminal.say(terminal.make_console(), f"{name}, {place} of {len(jobs)}")
            write_request(job, self.terms)
            outcome = run(read_request(job.folder), before_leaving=self.sweep.finish)
            if outcome.status == "interrupted":
                raise SystemExit(outcome.exit_status)


@dataclass
class OfHydra:
    """A launcher of Hydra's; its workers run the jobs of the folders."""

    name: str
    config: DictConfig  # of the sweep, whose `hydra.launcher` is the launcher's
    sweep: Sweep
    terms: Terms

    def launch(self, jobs: Sequence[Job]) -> None:
        """The jobs are asked to save on the first Ctrl-C, and the launcher returns when they have.

        A scheduler's go on. Raises RunFailed where a worker is lost, or the launcher fails.
        """
        for job in jobs:
            write_request(job, self.terms)
        config = for_plugins(self.config, self.sweep.root)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context_of(FolderLoader({job.overrides: job.folder for job in jobs})),
            task_function=run_for_a_launcher,
            config=config,
        )
        local = self.name in ("joblib", "submitit_local")
        stop = StopFlag()
        # The jobs run elsewhere, and the launcher waits until they have saved.
        with stopping_on_signals(stop, and_then=self.sweep.stop) if local else nullcontext():
            try:
                launcher.launch(
                    [list(job.overrides) for job in jobs], initial_job_idx=jobs[0].number or 0
                )
            except Exception as error:  # of joblib's or submitit's own
                reason = str(error).strip().partition("\n")[0]
                raise RunFailed(f"hydra/launcher={self.name}: {reason}") from error
        if isinstance(stop.reason, Interrupted):
            raise SystemExit(stop.reason.exit_status)


@dataclass
class FolderLoader:
    """A config loader for launchers and sweepers of Hydra's: it loads the configuration of a job,
    which here is its folder."""

    folders: Mapping[tuple[str, ...], Path]  # by the overrides of the job

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process nobody has told Hydra of our launchers yet."""
        register()
        self.__dict__ = state

    def load_sweep_config(self, master: DictConfig, overrides: list[str]) -> DictConfig:
        """Hydra's entry for a job."""
        folder = self.folders[tuple(overrides)]
        config = deepcopy(master)
        with open_dict(config):
            config.folder = str(folder)
            config.hydra.sweep.dir = str(folder.parent)
            config.hydra.sweep.subdir = folder.name
            config.hydra.overrides.task = list(overrides)
        return config


def context_of(loader: FolderLoader) -> HydraContext:
    """The context with which Hydra's plug-ins are set up; the runs have recorders, no callbacks."""
    return HydraContext(loader, Callbacks())  # type: ignore[arg-type]


def for_plugins(config: DictConfig, root: Path) -> DictConfig:
    """Hydra's own part of the configuration of a sweep below `root`, for its plug-ins, without
    logs."""
    found: DictConfig = OmegaConf.create({"hydra": config.hydra})
    with open_dict(found):
        for part in ("launcher", "sweeper"):  # which may refer to settings of the runs
            found.hydra[part] = OmegaConf.to_container(config.hydra[part], resolve=True)
        found.hydra.sweep.dir = found.hydra.run.dir = str(root)
        found.hydra.job_logging = found.hydra.hydra_logging = SILENT
        found.hydra.output_subdir = None
    return found


def log_as_hydra(config: DictConfig, *, quiet: bool) -> None:
    """Hydra's sweepers log as its configuration says; warnings and errors only if `quiet`."""
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    if quiet:
        for name in ("hydra", "hydra_plugins"):
            logging.getLogger(name).setLevel(logging.WARNING)
