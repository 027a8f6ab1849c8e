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
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

NAME = "hydra_plugins.border_processes"
SWEEP_LAUNCHER = f"{NAME}.SweepLauncher"


class SweepLauncher(Launcher):
    """Hands the jobs that a sweeper proposes to border-train, which runs them: a sweeper must not
    know by whom."""

    def __init__(self, **_: Any) -> None:  # settings, which border-train has read before
        self._task: Any = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Hydra's own: keeps who runs the jobs."""
        del hydra_context, config
        self._task = task_function

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Runs the jobs; one that fails, or whose process ends, leaves the others alone."""
        returns: Sequence[JobReturn] = self._task.launch(job_overrides, initial_job_idx)
        return returns


@dataclass
class ProcessesConf:
    """The settings of `processes`."""

    _target_: str = SWEEP_LAUNCHER
    # Jobs at once; null: as many as cores and memory allow, one where the device is CUDA.
    jobs: int | None = None


@dataclass
class RayConf:
    """The settings of `ray`."""

    _target_: str = SWEEP_LAUNCHER
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
    Plugins.instance().register(SweepLauncher)
    # Again: a plug-in of Hydra's has the same name, and may have been imported since.
    _store()


def _store() -> None:
    store = ConfigStore.instance()
    known = store.repo.get("hydra", {}).get("launcher", {})
    for name, settings in (("processes", ProcessesConf), ("ray", RayConf)):
        stored = known.get(f"{name}.yaml")
        if stored is None or stored.provider != "border_cli":  # else Hydra 1.4 warns
            store.store(group="hydra/launcher", name=name, node=settings, provider="border_cli")


SweepLauncher.__module__ = NAME
_store()
