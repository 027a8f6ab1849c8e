"""Hydra as a composition uses it, by its public interface.

Hydra's search path is that of the composition under way, and a source of ours stands in front of
it. It hands Hydra the files that are read once, the schemas that are made on demand, and what a
composition makes itself, which are saved settings and tuned values.
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
from pathlib import Path
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

ANY_ENV = "gym"  # the choice that takes any env.id
VERSION_BASE = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}

# Hydra keeps its state per process; compositions take turns.
_turn = RLock()
_under_way: ContextVar[Files | None] = ContextVar("_under_way", default=None)


@contextmanager
def opened(files: Files) -> Iterator[Files]:
    """Within the block Hydra reads these files; its own state is as before afterwards, also inside
    another Hydra application and in threads."""
    with _turn:
        find_plugins()
        singleton, runtime, version = GlobalHydra.instance(), JobRuntime.instance(), VersionBase()
        app, name, base = singleton.hydra, runtime.get("name"), version.version_base
        told = HydraConfig.instance()
        config = told.cfg
        singleton.clear()
        token = _under_way.set(files)
        try:
            with initialize_config_module(OURS, job_name=NAME, **VERSION_BASE):
                files.open(GlobalHydra.instance().config_loader())
                yield files
        finally:
            _under_way.reset(token)
            GlobalHydra.set_instance(singleton)
            singleton.hydra, version.version_base, told.cfg = app, base, config
            runtime.set("name", name)


def find_plugins() -> None:
    """Has Hydra import its plug-ins, the first time, and registers ours."""
    with warnings.catch_warnings():
        # Of ours, where this package is installed as editable.
        warnings.filterwarnings("ignore", ".*in an editable hydra_plugins namespace install")
        plugins = Plugins.instance()
    for each in (_Reader, _Folders):
        plugins.register(each)
    register_launchers()
    register_builtin()


class _Folders(SearchPathPlugin):
    """Puts the folders of the composition under way in front of ours; in a Hydra application of
    others there is none."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        files = _under_way.get()
        if files is None:
            return
        for folder in files.folders:
            search_path.prepend("user", folder, anchor="main")
        search_path.prepend(NAME, f"{BORDER}://")


class _Reader(ConfigSource):
    """Hands the composition under way to Hydra, which makes and copies its sources as it likes."""

    @staticmethod
    def scheme() -> str:
        return BORDER

    def available(self) -> bool:
        return True

    def load_config(self, config_path: str) -> ConfigResult:
        found = _served(config_path)
        assert found is not None
        return deepcopy(found)  # Hydra takes the defaults list out

    def is_config(self, config_path: str) -> bool:
        return _served(config_path) is not None

    def is_group(self, config_path: str) -> bool:
        folder, _, group = config_path.rstrip("/").partition("/")
        return folder == SCHEMA and (not group or group in GROUPS)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        _, _, group = config_path.rstrip("/").partition("/")
        configs, groups = (GROUPS[group].names(), []) if group else ([RUN], list(GROUPS))
        found = {ObjectType.CONFIG: configs, ObjectType.GROUP: groups}
        return [*found[results_filter]] if results_filter else sorted([*configs, *groups])


def _served(path: str) -> ConfigResult | None:
    files = _under_way.get()
    assert files is not None
    return files.served(path)


def either(first: str | None, second: str) -> str:
    """`first` unless it is null; `~` is the home folder."""
    return str(Path(first).expanduser()) if first else second


def run_name(*, _root_: DictConfig) -> str:
    """`dqn_cartpole`, after the options of agent and env; with env=gym the id as a file name.

    `ALE/Pong-v5` becomes `ALE-Pong-v5`, and `my_envs:Corridor-v0` `my_envs-Corridor-v0`.
    """
    agent, env, env_id = (
        str(OmegaConf.select(_root_, key, throw_on_missing=False) or "")
        for key in ("agent.option", "env.option", "env.id")
    )
    named = re.sub(r"[^\w.+-]+", "-", env_id).strip(".-") if env == ANY_ENV else ""
    return f"{agent}_{named or env}"


def _register_resolvers() -> None:
    """Makes `${border.…}`, by which conf/hydra_settings.yaml says where a run is written, known to
    OmegaConf; repeating it changes nothing."""
    # OmegaConf 2.4 has another name for it, which means something else before.
    new = omegaconf.__version__ >= "2.4"
    register: Any = OmegaConf.register_resolver if new else OmegaConf.register_new_resolver
    register("border.or", either, replace=True)
    register("border.name", run_name, replace=True)


setup_globals()
_register_resolvers()


def answer(argv: list[str]) -> None:
    """Prints what Hydra's own entry point answers; the files are open."""
    root, before = logging.getLogger(), sys.argv
    handlers, level = list(root.handlers), root.level
    GlobalHydra.instance().clear()
    sys.argv = [NAME, *argv]
    ask = hydra.main(config_path=f"pkg://{OURS}", config_name="config", **VERSION_BASE)
    try:
        ask(_task)()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.argv, root.handlers = before, handlers  # Hydra sets the root logger up
        root.setLevel(level)


def _task(config: DictConfig) -> None:
    """Stands for a run, whose place in a package is the name of the application."""


_task.__module__ = NAME
