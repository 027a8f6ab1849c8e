"""What a command begins with: the primary configuration, or the saved settings of another run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

from border_cli.config.compose import Composer
from border_cli.config.overrides import parsed, run_to_resume, without_trust
from border_cli.config.search_path import add_current_directory, plugins_here, user_folders
from border_cli.errors import ConfigError
from border_cli.system.files import SETTINGS


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
    saved_in = [each for each in config_dirs if Path(each).resolve().name == SETTINGS.parent.name]
    if saved_in and config_name == SETTINGS.stem:  # `-cd RUN_DIR/.hydra -cn resolved`
        config_dirs = [each for each in config_dirs if each not in saved_in]
        origin, config_name = str(Path(saved_in[0]).resolve().parent), "config"
    if origin is None and run_to_resume(overrides) is None:
        yield _anew(overrides, config_dirs, config_name, trust=trust), overrides
        return
    # imported late: only other runs need what reads runs (12 ms)
    from border_cli.config.resuming import begin_with_run

    yield from begin_with_run(
        origin, overrides, config_dirs, config_name, multirun=multirun, unused=unused, trust=trust
    )


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
