"""Answers about the configuration by Hydra's own entry point: `--cfg hydra`, `--info`, …"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from border_cli.config.compose import Composer
from border_cli.config.search_path import OURS
from border_cli.config.sources import NAME, VERSION_BASE


def show_answer(argv: list[str], overrides: Sequence[str], composer: Composer) -> None:
    """Prints what Hydra answers to these arguments, once the settings are composed and checked."""
    with composer.opened() as files, _as_before():
        composer.job_of(files, overrides, None)
        GlobalHydra.instance().clear()
        sys.argv = [NAME, *argv]
        ask = hydra.main(config_path=f"pkg://{OURS}", config_name="config", **VERSION_BASE)
        try:
            ask(_task)()
        except SystemExit as ended:
            if ended.code:
                raise


def _task(config: DictConfig) -> None:
    """Stands for a run, whose place in a package is the name of the application."""


_task.__module__ = NAME


@contextmanager
def _as_before() -> Iterator[None]:
    """Hydra sets the root logger up and leaves it so."""
    root, argv = logging.getLogger(), sys.argv
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)
        sys.argv = argv
