"""`RUN_DIR key=value … --flag`: how the commands beside `border-train` are typed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from border_cli.cli.shell import shortest
from border_cli.core.errors import CheckpointError, ConfigError
from border_cli.core.foreign import complain, nothing_imported_from
from border_cli.core.words import unknown

FLAGS = ("--json",)


def read_pairs(typed: Sequence[str], keys: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """The run directory and the values, in any order; raises ConfigError naming what is not
    understood."""
    folders = [each for each in typed if _is_folder(each)]
    for each in (each for each in typed if each.startswith("-") and each not in FLAGS):
        raise ConfigError(unknown("flag", each, [*FLAGS, "--help", "--version"]))
    if len(folders) != 1:
        raise ConfigError(f"give one run directory, got {len(folders)}: {' '.join(folders)}")
    values: dict[str, str] = {}
    for each in typed:
        key, _, value = each.partition("=")
        if each in folders or each.startswith("-"):
            continue
        if key not in keys:
            raise ConfigError(unknown("option", key, keys))
        values[key] = value
    return Path(folders[0]), values


def _is_folder(word: str) -> bool:
    """Whether it names the run; folders of a sweep have `=` in their names."""
    key, equals, _ = word.partition("=")
    return not word.startswith("-") and (not equals or "/" in key or Path(word).is_dir())


def whole_number(values: dict[str, str], key: str, low: int) -> int | None:
    """A number of at least `low`; None where it was not given."""
    if key not in values:
        return None
    try:
        number = int(values[key])
    except ValueError:
        number = low - 1
    if number < low:
        raise ConfigError(f"{key} must be an integer of at least {low}, got {values[key]!r}")
    return number


def truth(values: dict[str, str], key: str) -> bool:
    """Whether it was given as true; false where it was not given."""
    value = values.get(key, "false")
    if value not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, got {value!r}")
    return value == "true"


@contextmanager
def opened_run(run_dir: Path, *, trust: bool) -> Iterator[None]:
    """Within the block modules are found as `api.load_policy` says, those of others included that
    our own need."""
    with nullcontext() if trust else nothing_imported_from(run_dir):
        from border_cli.api import opened

        with opened(run_dir, trust=trust):
            yield


def located(place: Path, checkpoint: str | None = None) -> tuple[Path, str | None]:
    """The run directory and the checkpoint that are typed, see `find_run`."""
    from border_cli.run.finding import find_run

    run_dir, which = find_run(place, checkpoint)
    return (run_dir if run_dir == place else shortest(run_dir)), which


def best_or_latest(command: str, run_dir: Path) -> str:
    """The best model, or the latest where there is no best one yet, which is said."""
    from border_cli.run.finding import find_checkpoint

    try:
        find_checkpoint(run_dir, "best")
    except CheckpointError:
        find_checkpoint(run_dir, "latest")
        complain(command, f"{run_dir} has no best model; taking the latest")
        return "latest"
    return "best"
