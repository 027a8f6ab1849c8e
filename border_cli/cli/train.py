"""`border-train`: from the command line to checked jobs; `cli.job` runs them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from border_cli import __version__
from border_cli.cli.arguments import FLAGS, Arguments, read_arguments
from border_cli.cli.blas import one_thread_for_blas
from border_cli.cli.garbage import collect_from_here, not_collecting
from border_cli.core.errors import BorderError, ConfigError

if TYPE_CHECKING:
    from border_cli.cli.launch import RunJob
    from border_cli.cli.sweep import Jobs
    from border_cli.config.compose import Composer
    from border_cli.core.config import RunConfig


def main(argv: Sequence[str] | None = None, run_job: RunJob | None = None) -> None:
    """Runs the command; leaves with status 2 when its settings are refused.

    `run_job` stands in for `border_cli.cli.sweep.Jobs`. Hydra and the groups' settings are
    imported only where an answer needs them, torch and gymnasium by the job alone.
    """
    typed = list(sys.argv[1:] if argv is None else argv)
    one_thread_for_blas()
    path = list(sys.path)
    try:
        with not_collecting():
            _answer(read_arguments(typed), typed, run_job)
    except BorderError as error:
        sys.stderr.write(f"border-train: {error}\n")
        sys.exit(error.exit_status)
    except KeyboardInterrupt:  # before a job had its own handler, or between two jobs
        sys.stderr.write("border-train: interrupted\n")
        sys.exit(128 + signal.SIGINT)
    finally:
        sys.path[:] = path


def _answer(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    if arguments.version:
        sys.stdout.write(f"border_cli {__version__}\n")
    elif arguments.help and not arguments.overrides:
        from border_cli.cli.overview import overview

        sys.stdout.write(overview(arguments.config_dirs))
    elif arguments.shell_completion:
        _complete(arguments.overrides)
    else:
        _compose(arguments, typed, run_job)


def _composer(arguments: Arguments) -> Composer:
    """Finds plug-ins and folders; modules of the current folder can be imported from here on."""
    from border_cli.config.compose import Composer
    from border_cli.config.imports import add_to_path
    from border_cli.config.search_path import user_folders

    add_to_path([str(Path.cwd())])
    return Composer(user_folders(arguments.config_dirs), arguments.config_name)


def _compose(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    composer = _composer(arguments)
    from border_cli.config.overrides import normalized

    overrides = normalized(arguments.overrides)
    if arguments.help:
        from border_cli.config.help import settings_help

        sys.stdout.write(settings_help(composer.job(overrides), overrides))
    elif arguments.cfg == "job" and not arguments.package:
        from border_cli.config.frozen import resolved_yaml

        job = composer.job(overrides)
        sys.stdout.write(resolved_yaml(job.config) if arguments.resolve else job.as_composed)
    elif arguments.cfg or arguments.info or arguments.hydra_help:
        from border_cli.cli.launch import launch

        composer.job(overrides)
        launch(_never, arguments.for_hydra(overrides), composer.folders)
    else:
        _train(arguments, composer, overrides, typed, run_job)


def _never(composed: object) -> float:
    raise AssertionError(f"a question about the settings must not run a job: {composed}")


def _train(
    arguments: Arguments,
    composer: Composer,
    overrides: list[str],
    typed: list[str],
    run_job: RunJob | None,
) -> None:
    from border_cli.cli.launch import Task, launch, launch_one
    from border_cli.config.loader import Loader
    from border_cli.config.preflight import checked_jobs

    jobs = checked_jobs(composer, overrides, multirun=arguments.multirun)
    runner = run_job or _runner([job.config for job in jobs])
    task = Task(
        composer,
        jobs,
        runner,
        command=["border-train", *typed],
        import_paths=[str(Path.cwd())],
    )
    alone = len(jobs) == 1 and jobs[0].number is None
    try:
        if alone:
            launch_one(task, composer.config_name, overrides, Loader(composer.folders))
        else:
            launch(task, arguments.for_hydra(overrides), composer.folders)
    except KeyboardInterrupt:  # between two jobs of a sweep
        if not run_job:
            cast("Jobs", runner).finish()
        raise
    if not run_job:
        sys.exit(cast("Jobs", runner).finish())


def _runner(configs: list[RunConfig]) -> Jobs:
    """Loads torch and the environments, and lets them refuse what only they can judge."""
    from border_cli.assemble import rehearse
    from border_cli.cli.sweep import Jobs

    for config in configs:
        rehearse(config)
    collect_from_here()
    return Jobs()


def _complete(overrides: list[str]) -> None:
    """Answers `-sc install=SHELL`, `-sc uninstall=SHELL`, and the shell's `-sc query=SHELL`."""
    import os

    from border_cli.config.complete import matches, shell_plugin

    command, _, shell = overrides[0].partition("=") if len(overrides) == 1 else ("", "", "")
    if command in ("install", "uninstall"):
        getattr(shell_plugin(shell), command)()
        return
    if command != "query":
        raise ConfigError("-sc takes one of install=SHELL, uninstall=SHELL, query=SHELL")
    *before, word = os.environ.get("COMP_LINE", "").split(" ")
    if word.startswith("-"):
        flags = [flag.split()[0] for left, _ in FLAGS for flag in left.split(",")]
        found = [flag for flag in flags if flag.startswith(word)]
    else:
        typed = read_arguments([each for each in before[1:] if each])
        found = matches(shell, _composer(typed), typed.overrides, word)
    sys.stdout.write(("\n" if shell == "fish" else " ").join(found) + "\n")
