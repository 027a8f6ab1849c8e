"""Where the settings of a command begin: with our files, or with those of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from border_cli.cli.arguments import Arguments
from border_cli.config.compose import Composer
from border_cli.config.imports import add_to_path, modules_of_a_run
from border_cli.config.overrides import run_to_resume, without_trust
from border_cli.config.saved import refuse_strange_modules, saved_composer, saved_source
from border_cli.config.search_path import user_folders
from border_cli.core.files import SETTINGS
from border_cli.core.foreign import is_closed


@contextmanager
def composing(arguments: Arguments, typed: list[str]) -> Iterator[tuple[Composer, list[str]]]:
    """Finds plug-ins and folders; the overrides come back without what is no setting.

    Modules of the current folder can be imported within the block. For `resume=RUN_DIR` it begins
    with the settings of that run, and no module comes out of its folder unless trust=true is typed.
    """
    overrides, trust = without_trust(typed)
    run_dir = run_to_resume(overrides)
    if run_dir is None:
        with _saved_and_run_again(arguments) as folders:
            yield Composer(folders, arguments.config_name, trust=trust), overrides
        return
    from border_cli.config.resuming import refuse_beside_resume
    from border_cli.run.status import import_paths

    refuse_beside_resume(
        run_dir,
        overrides,
        multirun=arguments.multirun,
        config_name=arguments.config_name,
    )
    recorded = import_paths(run_dir)
    with modules_of_a_run(run_dir, recorded, trust=trust):
        if not trust:
            refuse_strange_modules(run_dir / SETTINGS, recorded)
        folders = user_folders(arguments.config_dirs)
        yield saved_composer(run_dir, overrides, folders, trust=trust), overrides


@contextmanager
def _saved_and_run_again(arguments: Arguments) -> Iterator[list[str]]:
    """The folders to compose from. `-cd RUN_DIR/.hydra -cn resolved` reads what a run has saved,
    hence as data, and imports nothing from there."""
    folders = user_folders(arguments.config_dirs)
    with ExitStack() as stack:
        for place, each in enumerate(folders):
            folder = Path(each.removeprefix("file://"))
            if folder.name == SETTINGS.parent.name and (folder / SETTINGS.name).is_file():
                stack.enter_context(modules_of_a_run(folder.parent, (), trust=False))
                if arguments.config_name == SETTINGS.stem:
                    folders[place] = saved_source(folder)
        if not is_closed(str(Path.cwd())):
            add_to_path([str(Path.cwd())])
        yield folders
