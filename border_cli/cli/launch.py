"""Hands a checked command over to Hydra, which makes the folders and calls each job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import _run_app, get_args_parser, run_and_report
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from border_cli.config.compose import VERSION_BASE, Composer, Job, Loader, as_typed
from border_cli.config.imports import homes
from border_cli.config.resuming import Continuation, continuation_of
from border_cli.config.saved import modules_of, resolved_yaml
from border_cli.core.files import SETTINGS

if TYPE_CHECKING:
    from border_cli.cli.job import JobContext
    from border_cli.core.config import RunConfig

    RunJob = Callable[[RunConfig, JobContext], float]


class Task:
    """What Hydra calls for each job: the checked settings go to `run_job`, its score to Hydra.

    A job that was not checked beforehand, because its sweeper invented it, is composed now.
    """

    def __init__(
        self,
        composer: Composer,
        checked: Sequence[Job],
        continuations: Sequence[Continuation | None],
        run_job: RunJob,
        *,
        command: list[str],
    ) -> None:
        self._composer = composer
        self._checked = {
            (job.overrides, job.number): (job, continuation)
            for job, continuation in zip(checked, continuations, strict=True)
        }
        self._run_job = run_job
        self._command = command

    def __call__(self, composed: DictConfig) -> float:
        from border_cli.cli.job import JobContext

        told = HydraConfig.get()
        overrides = as_typed(told.overrides.task)
        number = None if OmegaConf.is_missing(told.job, "num") else told.job.num
        known = self._checked.get((tuple(overrides), number))
        if known is None:
            job = self._composer.job([*as_typed(told.overrides.hydra), *overrides], number)
            known = job, continuation_of(self._composer, job)
        job, continuation = known
        run_dir = Path(told.runtime.output_dir)
        context = JobContext(
            run_dir=run_dir,
            overrides=overrides,
            sources=job.sources,
            resolved=resolved_yaml(job.config),
            command=self._command,
            job_number=number,
            import_paths=homes(modules_of(job.config)),
            continuation=continuation,
            record=_record(composed) if (run_dir / SETTINGS).exists() else {},
        )
        return self._run_job(job.config, context)


def _record(composed: DictConfig) -> dict[str, str]:
    """What Hydra itself writes into `.hydra` of a new folder."""
    told = HydraConfig.get()
    return {
        "config.yaml": OmegaConf.to_yaml(composed),
        "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": told})),
        "overrides.yaml": OmegaConf.to_yaml(told.overrides.task),
    }


def launch(
    task: Callable[[DictConfig], float], argv: list[str], loader: Loader, *, quiet: bool = False
) -> None:
    """Does what Hydra's own entry point does with this command line.

    `quiet`: its launchers and sweepers log warnings and errors only.
    """
    parser = get_args_parser()
    args = parser.parse_args(argv)
    told = {"config_name": args.config_name, "overrides": args.overrides}
    with _app(loader) as app:
        if args.hydra_help:
            app.hydra_help(args.config_name, parser, args)
        elif args.cfg:
            how = {"cfg_type": args.cfg, "package": args.package, "resolve": args.resolve}
            run_and_report(lambda: app.show_cfg(**told, **how))
        elif args.info:
            app.show_info(args.info, **told)
        else:
            mode = app.get_mode(**told)
            run = not args.multirun
            with _quiet_hydra() if quiet else nullcontext():
                _run_app(run, args.multirun, mode, app, args.config_name, task, args.overrides)


def launch_one(
    task: Callable[[DictConfig], float], config_name: str, overrides: list[str], loader: Loader
) -> None:
    """Runs one job as Hydra's entry point does, which would compose it once more for its mode."""
    with _app(loader) as app:
        run_and_report(lambda: app.run(config_name, task, overrides))


@contextmanager
def _app(loader: Loader) -> Iterator[Hydra]:
    hydra.version.setbase(VERSION_BASE)
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
