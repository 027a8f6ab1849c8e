"""The fork server for the jobs of a sweep. It imports torch in parallel with the command."""

from __future__ import annotations

from multiprocessing.context import BaseContext

from border_cli.settings.run import StartMethod
from border_cli.system.start import start_context

PRELOAD = ("border_cli.sweep.worker", "border_cli.checks.dry_build")


def start_server() -> BaseContext:
    """Starts the fork server if needed, without waiting for it, and returns its context."""
    return start_context(StartMethod.auto, PRELOAD)
