"""The fork server of the jobs of a sweep. It imports torch while the command does so itself."""

from __future__ import annotations

from multiprocessing.context import BaseContext

from border_cli.settings.run import StartMethod
from border_cli.system.start import start_context

PRELOAD = ("border_cli.sweep.worker", "border_cli.checks.dry_build")


def server() -> BaseContext:
    """Starts it where it does not run yet, and does not wait for it."""
    return start_context(StartMethod.auto, PRELOAD)
