"""Opens a command's composer, with the primary config or with another run's saved settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

from border_cli.config.compose import Composer
from border_cli.config.overrides import parse_overrides, run_to_resume, without_trust
from border_cli.config.search_path import add_current_directory, plugins_here, user_folders
from border_cli.errors import ConfigError
from border_cli.system.files import SETTINGS


@contextmanager
def open_composer(
    typed: list[str],
    *,
    config_dirs: Sequence[str] = (),
    config_name: str = "config",
    origin: str | None = None,
    multirun: bool = False,
    unused: Set[str] = frozenset(),
) -> Iterator[tuple[Composer, list[str]]]:
    """Yields the composer of a command, and its overrides without `trust=…`.

    Modules in the current directory can be imported inside the block. `resume=RUN_DIR` starts from
    the settings of that run; `origin` starts a new run from the settings of another. Saved settings
    are checked by `SavedSettings`, except those listed in `unused`.
    """
    overrides, trust = without_trust(typed)
    saved = [path for path in config_dirs if Path(path).resolve().name == SETTINGS.parent.name]
    if saved and config_name == SETTINGS.stem:  # `-cd RUN_DIR/.hydra -cn resolved`
        config_dirs = [path for path in config_dirs if path not in saved]
        origin, config_name = str(Path(saved[0]).resolve().parent), "config"
    if origin is None and run_to_resume(overrides) is None:
        yield _new_composer(overrides, config_dirs, config_name, trust=trust), overrides
        return
    # imported late: only needed to read another run (12 ms)
    from border_cli.config.resuming import begin_with_run

    yield from begin_with_run(
        origin, overrides, config_dirs, config_name, multirun=multirun, unused=unused, trust=trust
    )


def _new_composer(
    overrides: list[str], config_dirs: Sequence[str], config_name: str, *, trust: bool
) -> Composer:
    if trust and not any(
        override.key_or_group == "resume" for override in parse_overrides(overrides)
    ):
        raise ConfigError(
            "trust=true applies to the modules of a resumed run or of --from RUN_DIR: give one"
        )
    folders = user_folders(config_dirs)
    add_current_directory(trust=trust)
    imports = [plugin.module for plugin in plugins_here()]  # for other processes of the run
    return Composer(folders, config_name, imports=imports, trust=trust)
