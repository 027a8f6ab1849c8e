"""Where the settings of a command begin: with our files, or with those of a run."""

from __future__ import annotations

from pathlib import Path

from border_cli.cli.arguments import Arguments
from border_cli.config.compose import Composer
from border_cli.config.imports import add_to_path
from border_cli.config.resume import refuse_beside_resume, run_to_resume
from border_cli.config.search_path import user_folders


def composer_of(arguments: Arguments, overrides: list[str]) -> Composer:
    """Finds plug-ins and folders; modules of the current folder can be imported from here on.

    For `resume=RUN_DIR` it begins with the settings of that run.
    """
    run_dir = run_to_resume(overrides)
    if run_dir is None:
        add_to_path([str(Path.cwd())])
        return Composer(user_folders(arguments.config_dirs), arguments.config_name)
    from border_cli.config.saved import saved_composer
    from border_cli.run.record import import_paths

    refuse_beside_resume(
        run_dir,
        overrides,
        multirun=arguments.multirun,
        config_name=arguments.config_name,
    )
    add_to_path(import_paths(run_dir))
    return saved_composer(run_dir, overrides, user_folders(arguments.config_dirs))
