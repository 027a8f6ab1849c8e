"""The Hydra launchers `processes` and `ray`, as the plugin `hydra_plugins.border_processes`.

Every Hydra application in a Python environment imports the modules in `hydra_plugins`, so this one
imports nothing from border_cli. Hydra executes the file before it is in `sys.modules`, where a
dataclass would look up string annotations, so `from __future__ import annotations` cannot be used.
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
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

NAME = "hydra_plugins.border_processes"
SWEEP_LAUNCHER = f"{NAME}.SweepLauncher"


class SweepLauncher(Launcher):
    """Passes the jobs that a sweeper proposes to border-train, which runs them. To the sweeper it
    is an ordinary launcher."""

    def __init__(self, **_: Any) -> None:  # settings, already read by border-train
        self._task: Any = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Stores the task function, whose `launch` runs the jobs."""
        del hydra_context, config
        self._task = task_function

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Runs the jobs. A job that fails, or whose process dies, does not affect the others."""
        returns: Sequence[JobReturn] = self._task.launch(job_overrides, initial_job_idx)
        return returns


@dataclass
class ProcessesConf:
    """The settings of `processes`."""

    _target_: str = SWEEP_LAUNCHER
    # Number of parallel jobs; null means as many as cores and memory allow, one on CUDA.
    jobs: int | None = None


@dataclass
class RayConf:
    """The settings of `ray`."""

    _target_: str = SWEEP_LAUNCHER
    # The cluster: auto (the one that this machine belongs to, or $RAY_ADDRESS), host:port, or
    # ray://host:port; null starts Ray on this machine, to try it out.
    address: str | None = "auto"
    # Number of parallel jobs; null means as many as the resources of the cluster allow.
    jobs: int | None = None
    # Resources that a job reserves on its node: CPU, GPU, memory (bytes), custom resources.
    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 1.0})


def register() -> None:
    """Registers the launcher with Hydra, which accepts launchers only from `hydra_plugins` and does
    not find this namespace package in an editable install."""
    try:
        import_module("hydra_plugins")
    except ModuleNotFoundError:  # no installed distribution provides it
        sys.modules["hydra_plugins"] = namespace = ModuleType("hydra_plugins")
        namespace.__path__ = []
    sys.modules[NAME] = sys.modules[__name__]
    Plugins.instance().register(SweepLauncher)
    # Again, because another plug-in may have registered a launcher of the same name since.
    _store()


def _store() -> None:
    store = ConfigStore.instance()
    launchers = store.repo.get("hydra", {}).get("launcher", {})
    for name, settings in (("processes", ProcessesConf), ("ray", RayConf)):
        stored = launchers.get(f"{name}.yaml")
        if stored is None or stored.provider != "border_cli":  # avoids a warning of Hydra 1.4
            store.store(group="hydra/launcher", name=name, node=settings, provider="border_cli")


SweepLauncher.__module__ = NAME
_store()
