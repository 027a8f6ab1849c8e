"""One attempt of a run: compares its settings with the saved ones and locks its run directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from border_cli.config.job import Job, begin_attempt, resolved_yaml
from border_cli.errors import ConfigError, NotBegun, os_errors_as
from border_cli.registry import CALLBACKS
from border_cli.run.layout import refuse_foreign, remove_attempt
from border_cli.run.lock import RunLock
from border_cli.run.run_folder import Differences, EarlierRun, RunFolder, Start
from border_cli.system.files import SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt to run a job, with the run directory locked."""

    job: Job
    lock: RunLock
    folder: RunFolder
    earlier: EarlierRun

    def save_settings(self) -> None:
        """Saves the settings, both resolved and as requested. For a resumed run, this is called
        only after all checks have passed."""
        begin_attempt(self.job.folder, self.job.record, resolved_yaml(self.job.config))


@contextmanager
def start_attempt(job: Job) -> Iterator[Attempt]:
    """Locks the run directory of a job within the block.

    A new run removes the files of an attempt without a checkpoint, and saves its settings. Raises
    RunInUse if another process is running there, and the errors of `earlier_run`, because another
    process may have run there since the settings were checked. An error changes only the lock file.
    """
    refuse_foreign(job.folder)
    with RunLock(job.folder) as lock:
        folder = RunFolder(job.folder)
        try:
            with os_errors_as(ConfigError):
                earlier = earlier_run(job, folder)
        except ConfigError as error:
            raise NotBegun(str(error)) from error
        attempt = Attempt(job=job, lock=lock, folder=folder, earlier=earlier)
        if earlier.start is Start.OVER:
            remove_attempt(job.folder)
        if not earlier.resumes:
            attempt.save_settings()
        yield attempt


def earlier_run(job: Job, folder: RunFolder) -> EarlierRun:
    """Checks the directory of a job for an earlier run, see `RunFolder.check_earlier_run`."""
    return folder.check_earlier_run(job.config, partial(_compare_settings, job))


def _compare_settings(job: Job, run_dir: Path) -> Differences:
    config = job.config
    if (run_dir / SETTINGS).read_text(encoding="utf-8") == resolved_yaml(config):
        return Differences(config.trainer)
    # imported late: needed only if the settings differ
    from border_cli.config.resuming import changes, refuse_fixed
    from border_cli.config.saved import load_resolved

    saved = load_resolved(run_dir, trust=job.trust, plays=False, typed=config.imports)
    changed = changes(saved, config)
    refuse_fixed(changed, run_dir, job=f"{job.name}: " if job.in_sweep else "")
    callbacks = any(change.key.partition(".")[0] == CALLBACKS.group for change in changed)
    return Differences(saved.trainer, tuple(map(str, changed)), callbacks)
