"""`border-train`: the command line, taken apart, and who answers it, which is imported by `_answer`
when its turn comes: `--version` and `--help` load no Hydra."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from border_cli import __version__
from border_cli.cli.flags import Arguments, read_arguments
from border_cli.errors import BorderError, ConfigError, reachable
from border_cli.launch.monitor import monitored
from border_cli.launch.signals import early_signals
from border_cli.launch.startup import not_collecting, set_up_threads
from border_cli.messages import complain
from border_cli.system.foreign import keep_runs_off_path

if TYPE_CHECKING:
    from border_cli.cli.job import RunJob


def command() -> None:
    """The console script: `main` under its monitor."""
    with monitored("border-train"):
        main()


def main(argv: Sequence[str] | None = None, run_job: RunJob | None = None) -> None:
    """Runs the command; leaves with status 2 when its settings are refused.

    `run_job` stands in for training. Hydra and the groups' settings are imported only where an
    answer needs them, torch and gymnasium by the job alone.
    """
    typed = list(sys.argv[1:] if argv is None else argv)
    set_up_threads()
    path = list(sys.path)
    with early_signals() as early:
        try:
            with not_collecting(), reachable(ConfigError):
                keep_runs_off_path()
                _answer(read_arguments(typed), typed, run_job)
        except BorderError as error:
            complain("border-train", error)
            sys.exit(error.exit_status)
        except KeyboardInterrupt:  # before a job had its own handler, or between two jobs
            complain("border-train", "interrupted")
            sys.exit(early.exit_status)
        finally:
            sys.path[:] = path


def _answer(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    if arguments.version:
        sys.stdout.write(f"border_cli {__version__}\n")
    elif arguments.help and not arguments.overrides:
        from border_cli.cli.overview import overview

        sys.stdout.write(overview(arguments.config_dirs))
    elif arguments.shell_completion:
        from border_cli.cli.complete import complete

        complete(arguments.overrides)
    else:
        from border_cli.cli.job import answer

        answer(arguments, typed, run_job)
