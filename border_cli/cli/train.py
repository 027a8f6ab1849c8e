"""`border-train`: parses the command line and dispatches to the handler."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from border_cli import __version__
from border_cli.cli.flags import Arguments, read_arguments
from border_cli.errors import ConfigError
from border_cli.launch.monitor import monitored
from border_cli.launch.startup import framed, not_collecting

if TYPE_CHECKING:
    from border_cli.cli.job import RunJob


def main(argv: Sequence[str] | None = None, run_job: RunJob | None = None) -> None:
    """Runs the command; leaves with status 2 when its settings are refused.

    `run_job` stands in for training. Hydra and the groups' settings are imported only where an
    answer needs them, torch and gymnasium by the job alone.
    """
    typed = list(sys.argv[1:] if argv is None else argv)
    with framed("border-train", ConfigError), not_collecting():
        _answer(read_arguments(typed), typed, run_job)


def _answer(arguments: Arguments, typed: list[str], run_job: RunJob | None) -> None:
    if arguments.version:
        sys.stdout.write(f"border_cli {__version__}\n")
    elif arguments.help and not arguments.overrides:
        # imported late, as all below: --version and --help load no Hydra
        from border_cli.cli.overview import overview

        sys.stdout.write(overview(arguments.config_dirs))
    elif arguments.shell_completion:
        from border_cli.cli.complete import complete

        complete(arguments.overrides)
    else:
        from border_cli.cli.job import answer

        answer(arguments, typed, run_job)


command = monitored("border-train")(main)  # the console script
