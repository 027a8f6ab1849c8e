"""`hydra/launcher=processes` and `ray`, as Hydra finds them: `hydra_plugins.border_processes`.

Every Hydra application of an environment imports what lies in `hydra_plugins`, so nothing else is
imported here. Hydra executes the file before it is in `sys.modules`, where a dataclass would look
annotations up that are text: they are evaluated at once.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
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

    def __init__(self, **settings: Any) -> None:
        self.settings = settings  # which border-train has read before
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
            raise HydraException("this launcher runs the jobs of border-train alone")
        returns: Sequence[JobReturn] = run(
            job_overrides, initial_job_idx, loader=self._loader, config=self._config
        )
        return returns


class RayLauncher(ProcessesLauncher):
    """Runs them on the nodes of a Ray cluster."""


@dataclass
class ProcessesConf:
    """The settings of `processes`."""

    _target_: str = f"{NAME}.ProcessesLauncher"
    # Jobs at once; null: as many as cores and memory allow, one where the device is CUDA.
    jobs: int | None = None


@dataclass
class RayConf:
    """The settings of `ray`."""

    _target_: str = f"{NAME}.RayLauncher"
    # The cluster: auto (the one that this machine belongs to, or $RAY_ADDRESS), host:port, or
    # ray://host:port; null starts a Ray on this machine, to try it out.
    address: str | None = "auto"
    # Jobs at once; null: as many as the resources of the cluster allow.
    jobs: int | None = None
    # What a job takes of its node: CPU, GPU, memory (bytes), and custom resources.
    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 1.0})


def register() -> None:
    """Makes the launcher known to Hydra, which finds no namespace package of an editable install,
    and takes launchers from `hydra_plugins` alone."""
    try:
        import_module("hydra_plugins")
    except ModuleNotFoundError:  # no distribution has any, as Python sees it
        sys.modules["hydra_plugins"] = namespace = ModuleType("hydra_plugins")
        namespace.__path__ = []
    sys.modules[NAME] = sys.modules[__name__]
    for launcher in (ProcessesLauncher, RayLauncher):
        Plugins.instance().register(launcher)
    # Again: a plug-in of Hydra's has the same name, and may have been imported since.
    _store()


def _store() -> None:
    store = ConfigStore.instance()
    known = store.repo.get("hydra", {}).get("launcher", {})
    for name, settings in (("processes", ProcessesConf), ("ray", RayConf)):
        stored = known.get(f"{name}.yaml")
        if stored is None or stored.provider != "border_cli":
            store.store(group="hydra/launcher", name=name, node=settings, provider="border_cli")


ProcessesLauncher.__module__ = RayLauncher.__module__ = NAME
_store()
