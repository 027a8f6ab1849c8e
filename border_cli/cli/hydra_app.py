"""Hydra's application: what it does with a command line, without what it leaves behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, open_dict

from border_cli.config.old_loader import Loader
from border_cli.config.sources import VERSION_BASE
from border_cli.config.sweep import BASIC_SWEEPER

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra


def run_one(
    task: Callable[[DictConfig], float], config_name: str, overrides: list[str], loader: Loader
) -> None:
    """Runs one job as Hydra's entry point does, which would compose it once more for its mode."""
    from hydra._internal.utils import run_and_report

    with _app(loader) as app:
        run_and_report(lambda: app.run(config_name, task, overrides))


def run_sweep(
    task: Callable[[DictConfig], float],
    config_name: str,
    overrides: list[str],
    loader: Loader,
    *,
    quiet: bool = False,
    checked: bool = False,
    ends_early: bool = False,
) -> None:
    """Runs a sweep as Hydra's entry point does.

    `quiet`: its launchers and sweepers log warnings and errors only. `checked`: all jobs compose,
    so that Hydra need not compose each of them to find out. `ends_early`: failed jobs may end a
    sweep whose jobs are invented.
    """
    from hydra._internal.utils import run_and_report

    with _app(loader) as app, _quiet_hydra() if quiet else nullcontext():
        run_and_report(
            lambda: _multirun(
                app, task, config_name, overrides, checked=checked, ends_early=ends_early
            )
        )


def _multirun(
    app: Hydra,
    task: Callable[[DictConfig], float],
    config_name: str,
    overrides: list[str],
    *,
    checked: bool,
    ends_early: bool,
) -> None:
    """`Hydra.multirun`, whose sweeper it does not let anybody reach."""
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext, RunMode

    config = app.compose_config(
        config_name, overrides, RunMode.MULTIRUN, with_log_configuration=True
    )
    from hydra._internal.callbacks import Callbacks

    callbacks = Callbacks(config)
    callbacks.on_multirun_start(config=config, config_name=config_name)
    settings = config.hydra.sweeper
    if not ends_early and settings.get("max_failure_rate") == 0:  # Optuna's
        with open_dict(settings):
            settings.max_failure_rate = 1.0
    context = HydraContext(config_loader=app.config_loader, callbacks=callbacks)
    sweeper: Any = Plugins.instance().instantiate_sweeper(
        config=config, hydra_context=context, task_function=task
    )
    if checked and settings.get("_target_") == BASIC_SWEEPER:
        sweeper.validate_batch_is_legal = lambda batch: None  # noqa: ARG005 - Hydra's own name
    arguments = [str(each) for each in config.hydra.overrides.task]
    sweeper.sweep(arguments=arguments)
    callbacks.on_multirun_end(config=config, config_name=config_name)


@contextmanager
def _app(loader: Loader) -> Iterator[Hydra]:
    import hydra
    from hydra._internal.hydra import Hydra
    from hydra.core.global_hydra import GlobalHydra

    hydra.version.setbase(VERSION_BASE["version_base"])
    app = Hydra("border-train", loader)
    GlobalHydra.instance().initialize(app)
    try:
        with _logging_as_before():
            yield app
    finally:
        GlobalHydra.instance().clear()


@contextmanager
def _quiet_hydra() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("hydra", "hydra_plugins")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


@contextmanager
def _logging_as_before() -> Iterator[None]:
    """Hydra sets the root logger up for each job and leaves it so, with the job's file open."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers = handlers
        root.setLevel(level)
