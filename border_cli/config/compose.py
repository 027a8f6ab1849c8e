"""From overrides and files to a checked job: where settings begin, and what they are made of.

Hydra's global state is as before afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.utils import setup_globals
from hydra.types import RunMode

from border_cli.config.check import explained
from border_cli.config.composition import (
    Composition,
    compose_files,
    import_named,
    register_resolvers,
)
from border_cli.config.job import Job
from border_cli.config.overrides import (
    is_sweep,
    normalized,
    parsed,
    refuse_unmeant,
    run_to_resume,
    without_trust,
)
from border_cli.config.search_path import add_current_directory, plugins_here, user_folders
from border_cli.config.sources import Files, opened
from border_cli.errors import ConfigError
from border_cli.registry import register_builtin
from border_cli.settings.run import RunConfig
from border_cli.system.files import SETTINGS, settings_of

if TYPE_CHECKING:
    from border_cli.config.saved_names import SavedSettings

setup_globals()
register_resolvers()


def compose(
    *overrides: str, config_dir: str | None = None, config_name: str = "config"
) -> RunConfig:
    """The settings that `border-train OVERRIDES` would run with, checked.

    Hydra's global state is as before, also inside another Hydra app and in threads.
    """
    folders = user_folders([config_dir] if config_dir else [])
    imports = [each.module for each in plugins_here()]
    return Composer(folders, config_name, imports=imports).job(list(overrides)).config


@contextmanager
def composing(
    typed: list[str],
    *,
    config_dirs: Sequence[str] = (),
    config_name: str = "config",
    origin: str | None = None,
    multirun: bool = False,
    unused: Set[str] = frozenset(),
) -> Iterator[tuple[Composer, list[str]]]:
    """Finds plug-ins and folders; the overrides come back without what is no setting.

    Modules of the current folder can be imported within the block. `resume=RUN_DIR` composes from
    the settings of that run, `origin` a new run from those of another. `SavedSettings` checks what
    these name, except settings that the command leaves `unused`.
    """
    overrides, trust = without_trust(typed)
    run_dir = run_to_resume(overrides)
    saved_in = [each for each in config_dirs if Path(each).resolve().name == SETTINGS.parent.name]
    if saved_in and config_name == SETTINGS.stem:  # `-cd RUN_DIR/.hydra -cn resolved`
        config_dirs = [each for each in config_dirs if each not in saved_in]
        origin, config_name = str(Path(saved_in[0]).resolve().parent), "config"
    if origin is None and run_dir is None:
        yield _anew(overrides, config_dirs, config_name, trust=trust), overrides
        return
    # imported late: for --from and resume alone
    from border_cli.config.origin import refuse_beside_origin, run_of_origin, settings_from
    from border_cli.config.resuming import refuse_beside_resume, without_its_own
    from border_cli.config.saved import opened_run, saved_settings

    if origin is not None:
        refuse_beside_origin(origin, overrides, config_name)
    elif run_dir is not None:
        refuse_beside_resume(run_dir, overrides, multirun=multirun, config_name=config_name)
    place = run_dir or run_of_origin(str(origin))
    with opened_run(place, trust=trust):
        folders = user_folders(config_dirs)
        if run_dir is not None:
            overrides = without_its_own(run_dir, overrides)
            yield resuming_composer(run_dir, overrides, folders, trust=trust), overrides
        else:
            begin = saved_settings(settings_of(place).parent, trust=trust, typed=unused)
            saved = settings_from(begin, overrides, folders)
            yield Composer(folders, saved=saved, trust=trust), overrides


def _anew(
    overrides: list[str], config_dirs: Sequence[str], config_name: str, *, trust: bool
) -> Composer:
    if trust and not any(each.key_or_group == "resume" for each in parsed(overrides)):
        raise ConfigError(
            "trust=true applies to the modules of a resumed run or of --from RUN_DIR: type one"
        )
    folders = user_folders(config_dirs)
    add_current_directory(trust=trust)
    imports = [each.module for each in plugins_here()]  # elsewhere nothing else leads to them
    return Composer(folders, config_name, imports=imports, trust=trust)


def resuming_composer(
    run_dir: Path,
    overrides: Sequence[str],
    folders: Sequence[str],
    *,
    trust: bool = False,
    typed: Set[str] = frozenset(),
) -> Composer:
    """Composes from the saved settings of `run_dir`; `folders` serve the groups that `overrides`
    name. Settings in `typed` are not checked."""
    from border_cli.config.resuming import resumed_settings

    saved = resumed_settings(run_dir, parsed(overrides), trust=trust, typed=typed)
    return Composer(folders, saved=saved, run_dir=run_dir, trust=trust)


class Composer:
    """Composes jobs from one primary configuration and the folders in front of ours."""

    def __init__(
        self,
        folders: Sequence[str] = (),
        config_name: str = "config",
        *,
        imports: Sequence[str] = (),
        run_dir: Path | None = None,
        trust: bool = False,
        saved: SavedSettings | None = None,
    ) -> None:
        self.folders = list(folders)
        self._imports = list(imports)  # of every job
        self.config_name = config_name if saved is None else SETTINGS.stem
        self.run_dir = run_dir  # whose saved settings these are: the run that is resumed
        self.trust = trust  # whether `trust=true` was typed
        self._saved = saved  # in the place of the primary configuration's file
        register_builtin()

    def opened(self) -> AbstractContextManager[Files]:
        """The files that it composes from, while Hydra reads them."""
        return opened(self.folders, self._saved)

    def job(self, overrides: Sequence[str], number: int | None = None) -> Job:
        """Composes and checks one job; a number says which one of a sweep."""
        with self.opened() as files:
            return self.job_of(files, overrides, number)

    def job_of(
        self, files: Files, overrides: Sequence[str], number: int | None, root: Path | None = None
    ) -> Job:
        """One job from files that are open; `root` is the directory of its sweep."""
        typed = normalized(overrides)
        imports = self.import_for(files, typed)
        with explained(files, self.config_name, typed):
            refuse_unmeant(files, parsed(typed))
            made = compose_files(files, self.config_name, typed, imports, RunMode.RUN)
            if number is None and made.config.hydra.mode == RunMode.MULTIRUN:
                raise ConfigError("hydra.mode must be RUN: -m runs several jobs")
            return made.job(number, root, trust=self.trust)

    def composition_of(self, files: Files, overrides: Sequence[str]) -> Composition:
        """Merged settings that are not checked, from files that are open; what is swept is left
        out."""
        imports = self.import_for(files, [each for each in overrides if not is_sweep(each)])
        with explained(files, self.config_name, overrides):
            return compose_files(files, self.config_name, overrides, imports, RunMode.RUN)

    def import_for(self, files: Files, overrides: Sequence[str]) -> list[str]:
        """Imports the modules that these settings name, and returns their names."""
        return import_named(files, self.config_name, overrides, self._imports)

    def options(self, group: str) -> list[str]:
        """All that a group offers."""
        with self.opened() as files:
            return files.options(group)
