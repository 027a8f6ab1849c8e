"""A Hydra config source and search path for compositions, based on Hydra's public interface.

During a composition our source comes first on the search path. It serves files that are read once,
schemas that are created on demand, saved settings and tuned values.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from threading import RLock
from typing import Any

import hydra
import omegaconf
from hydra import initialize_config_module
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime, setup_globals
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf

from border_cli.config.files import BORDER, NAME, RUN, SCHEMA, Files
from border_cli.config.search_path import OURS
from border_cli.hydra_plugin import register as register_launchers
from border_cli.registry import GROUPS, register_builtin
from border_cli.system.files import expand_user

ANY_ENV = "gym"  # the option of env that accepts any env.id
VERSION_BASE = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}

# Hydra's state is global, so only one thread composes at a time.
_composition_lock = RLock()
_current_files: ContextVar[Files | None] = ContextVar("_current_files", default=None)


@contextmanager
def open_files(files: Files) -> Iterator[Files]:
    """Lets Hydra read the files inside the block, and restores its global state afterwards, also
    inside another Hydra application and in threads."""
    with _composition_lock:
        find_plugins()
        singleton, runtime, version = GlobalHydra.instance(), JobRuntime.instance(), VersionBase()
        app, name, base = singleton.hydra, runtime.get("name"), version.version_base
        hydra_config = HydraConfig.instance()
        old_config = hydra_config.cfg
        singleton.clear()
        token = _current_files.set(files)
        try:
            with initialize_config_module(OURS, job_name=NAME, **VERSION_BASE):
                files.open(GlobalHydra.instance().config_loader())
                yield files
        finally:
            _current_files.reset(token)
            GlobalHydra.set_instance(singleton)
            singleton.hydra, version.version_base, hydra_config.cfg = app, base, old_config
            runtime.set("name", name)


def find_plugins() -> None:
    """Imports Hydra's plug-ins on the first call, and registers ours."""
    with warnings.catch_warnings():
        # The warning is about our plug-in in an editable install.
        warnings.filterwarnings("ignore", ".*in an editable hydra_plugins namespace install")
        plugins = Plugins.instance()
    for plugin in (_Reader, _Folders):
        plugins.register(plugin)
    register_launchers()
    register_builtin()


class _Folders(SearchPathPlugin):
    """Puts the user's folders before ours on the search path during a composition. Has no effect
    in other Hydra applications."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        files = _current_files.get()
        if files is None:
            return
        for folder in files.folders:
            search_path.prepend("user", folder, anchor="main")
        search_path.prepend(NAME, f"{BORDER}://")


class _Reader(ConfigSource):
    """Serves the current composition's files; stateless, since Hydra creates its own instances."""

    @staticmethod
    def scheme() -> str:
        return BORDER

    def available(self) -> bool:
        return True

    def load_config(self, config_path: str) -> ConfigResult:
        result = _serve(config_path)
        assert result is not None
        return deepcopy(result)  # Hydra removes the defaults list

    def is_config(self, config_path: str) -> bool:
        return _serve(config_path) is not None

    def is_group(self, config_path: str) -> bool:
        folder, _, group = config_path.rstrip("/").partition("/")
        return folder == SCHEMA and (not group or group in GROUPS)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        _, _, group = config_path.rstrip("/").partition("/")
        configs, groups = (GROUPS[group].names(), []) if group else ([RUN], list(GROUPS))
        names = {ObjectType.CONFIG: configs, ObjectType.GROUP: groups}
        return [*names[results_filter]] if results_filter else sorted([*configs, *groups])


def _serve(path: str) -> ConfigResult | None:
    files = _current_files.get()
    assert files is not None
    return files.serve(path)


def either(first: str | None, second: str) -> str:
    """Returns `first` with `~` expanded, or `second` if `first` is null."""
    return str(expand_user(first)) if first else second


def run_name(*, _root_: DictConfig) -> str:
    """Returns the default name of a run, `<agent>_<env>`, such as `dqn_cartpole`.

    With env=gym, the id is used as a file name: `my_envs:Corridor-v0` as `my_envs-Corridor-v0`.
    """
    agent, env, env_id = (
        str(OmegaConf.select(_root_, key, throw_on_missing=False) or "")
        for key in ("agent.option", "env.option", "env.id")
    )
    file_name = re.sub(r"[^\w.+-]+", "-", env_id).strip(".-") if env == ANY_ENV else ""
    return f"{agent}_{file_name or env}"


def _register_resolvers() -> None:
    """Registers the `${border.…}` resolvers, used by conf/hydra_settings.yaml for the run
    directory. Can be called repeatedly."""
    # OmegaConf 2.4 renames the function; earlier versions use the new name for another one.
    is_new = omegaconf.__version__ >= "2.4"
    register: Any = OmegaConf.register_resolver if is_new else OmegaConf.register_new_resolver
    register("border.or", either, replace=True)
    register("border.name", run_name, replace=True)


setup_globals()
_register_resolvers()


def run_hydra_main(argv: list[str]) -> None:
    """Runs Hydra's own entry point, which prints its output. The files must be open."""
    root, old_argv = logging.getLogger(), sys.argv
    handlers, level = list(root.handlers), root.level
    GlobalHydra.instance().clear()
    sys.argv = [NAME, *argv]
    hydra_main = hydra.main(config_path=f"pkg://{OURS}", config_name="config", **VERSION_BASE)
    try:
        hydra_main(_task)()
    except SystemExit as system_exit:
        if system_exit.code:
            raise
    finally:
        sys.argv, root.handlers = old_argv, handlers  # Hydra configures the root logger
        root.setLevel(level)


def _task(config: DictConfig) -> None:
    """A placeholder for a run; Hydra takes the application's name from its module."""


_task.__module__ = NAME
