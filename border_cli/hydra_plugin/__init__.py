"""`hydra/launcher=processes`, as Hydra finds it: the module `hydra_plugins.border_processes`.

Every Hydra application of an environment imports what lies in `hydra_plugins`, so nothing else is
imported here. Hydra executes the file before it is in `sys.modules`, where a dataclass would look
annotations up that are text: they are evaluated at once.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

NAME = "hydra_plugins.border_processes"


class ProcessesLauncher(Launcher):
    """Runs each job of a sweep in a process of its own, several at once."""

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs
        self._loader: Any = None
        self._task: TaskFunction | None = None
        self._config: DictConfig | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Hydra's own: keeps what the jobs are run with."""
        self._loader, self._task, self._config = hydra_context.config_loader, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Runs the jobs; one that fails, or whose process ends, leaves the others alone."""
        run: Any = getattr(self._task, "in_processes", None)
        if run is None:
            raise HydraException("hydra/launcher=processes runs the jobs of border-train alone")
        returns: Sequence[JobReturn] = run(
            job_overrides, initial_job_idx, loader=self._loader, config=self._config
        )
        return returns


@dataclass
class ProcessesConf:
    """Its settings."""

    _target_: str = f"{NAME}.ProcessesLauncher"
    # Jobs at once; null: as many as cores and memory allow, one where the device is CUDA.
    jobs: int | None = None


def register() -> None:
    """Makes the launcher known to Hydra, which finds no namespace package of an editable install,
    and takes launchers from `hydra_plugins` alone."""
    try:
        import_module("hydra_plugins")
    except ModuleNotFoundError:  # no distribution has any, as Python sees it
        sys.modules["hydra_plugins"] = namespace = ModuleType("hydra_plugins")
        namespace.__path__ = []
    sys.modules[NAME] = sys.modules[__name__]
    Plugins.instance().register(ProcessesLauncher)


ProcessesLauncher.__module__ = NAME
ConfigStore.instance().store(
    group="hydra/launcher", name="processes", node=ProcessesConf, provider="border_cli"
)
