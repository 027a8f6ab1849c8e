"""Composes the jobs of a sweep for Hydra's launchers, in this process and in their workers.

Launchers with processes of their own (joblib, submitit, ours) pickle the loader. What a command
sets up before it composes comes with it: `sys.path`, plug-ins, the user's modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from border_cli.config.compose import Composer
from border_cli.config.imports import add_to_path
from border_cli.config.old_loader import Loader
from border_cli.config.search_path import user_folders
from border_cli.config.sweep_plan import FolderNames
from border_cli.core.errors import ConfigError
from border_cli.registry import register_builtin

_REFUSED = (ConfigError, HydraException, OmegaConfBaseException, ValueError)


class SweepLoader(Loader):
    """Gives each job its folder; one that does not compose gets the settings of the sweep, so that
    the launcher reaches the task, which refuses the job in its own folder."""

    def __init__(
        self,
        composer: Composer,
        *,
        folders: Mapping[tuple[str, ...], str],
        fixed: Sequence[str],
        named: bool,
    ) -> None:
        """`folders`: of the jobs that are known. `named`: those of others are named by overrides
        that are not `fixed`, and not by number."""
        super().__init__(composer)
        self._job_folders = dict(folders)
        self._fixed = list(fixed)
        self._named = named

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._composer, self._job_folders, self._fixed, self._named)
        return _in_worker, (list(sys.path), str(Path.cwd()), *arguments)

    def folder_of(self, overrides: Sequence[str]) -> str | None:
        """The sub-folder of a job; None: its number."""
        known = self._job_folders.get(tuple(overrides))
        if known is None and self._named:
            return FolderNames(self._fixed).name(overrides)
        return known

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """Hydra's entry for a job, which also imports what its overrides name."""
        try:
            config = super().load_sweep_config(master_config, sweep_overrides)
        except _REFUSED:
            config = deepcopy(master_config)
            config.hydra.overrides.task = list(sweep_overrides)
        folder = self.folder_of(sweep_overrides)
        if folder is not None:
            with open_dict(config.hydra):
                config.hydra.sweep.subdir = folder
        return config


def _in_worker(
    path: Sequence[str],
    cwd: str,
    composer: Composer,
    folders: Mapping[tuple[str, ...], str],
    fixed: Sequence[str],
    named: bool,
) -> SweepLoader:
    """The loader in another process, which has found nothing of the user's yet."""
    add_to_path(path)
    with suppress(OSError):  # a worker on another machine may lack it
        os.chdir(cwd)
    user_folders()  # for the plug-ins, which register components
    register_builtin()
    return SweepLoader(composer, folders=folders, fixed=fixed, named=named)
