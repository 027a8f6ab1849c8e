"""One attempt of a run: its settings compared with the saved ones, its run directory locked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from border_cli.config.job import Job, begin_attempt, resolved_yaml
from border_cli.errors import ConfigError, NotBegun, reachable
from border_cli.registry import CALLBACKS
from border_cli.run.layout import refuse_foreign, remove_attempt
from border_cli.run.lock import RunLock
from border_cli.run.run_folder import Differences, EarlierRun, RunFolder, Start
from border_cli.system.files import SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt of a job, in whose run directory no other process runs."""

    job: Job
    lock: RunLock
    folder: RunFolder
    earlier: EarlierRun

    def save_settings(self) -> None:
        """Saves the settings, and how they were asked for. Of a resumed run once nothing refuses
        it any more."""
        begin_attempt(self.job.folder, self.job.record, resolved_yaml(self.job.config))


@contextmanager
def attempt(job: Job) -> Iterator[Attempt]:
    """Locks the run directory of a job within the block.

    A new run removes what an attempt without a checkpoint left, and saves its settings. Raises
    RunInUse where another process runs there, and as `earlier_run`: another may have run there
    since these settings were checked. Nothing is changed then.
    """
    refuse_foreign(job.folder)
    with RunLock(job.folder) as lock:
        folder = RunFolder(job.folder)
        try:
            with reachable(ConfigError):
                earlier = earlier_run(job, folder)
        except ConfigError as error:
            raise NotBegun(str(error)) from error
        begun = Attempt(job=job, lock=lock, folder=folder, earlier=earlier)
        if earlier.start is Start.OVER:
            remove_attempt(job.folder)
        if not earlier.resumes:
            begun.save_settings()
        yield begun


def earlier_run(job: Job, folder: RunFolder) -> EarlierRun:
    """What the directory of a job has for it, see `RunFolder.earlier`."""
    return folder.earlier(job.config, partial(_differences, job))


def _differences(job: Job, run_dir: Path) -> Differences:
    config = job.config
    if (run_dir / SETTINGS).read_text(encoding="utf-8") == resolved_yaml(config):
        return Differences(config.trainer)
    # imported late: for settings that differ alone
    from border_cli.config.resuming import changes, refuse_fixed
    from border_cli.config.saved import load_resolved

    saved = load_resolved(run_dir, trust=job.trust, plays=False, typed=config.imports)
    changed = changes(saved, config)
    refuse_fixed(changed, run_dir, job=f"{job.name}: " if job.in_sweep else "")
    callbacks = any(each.key.partition(".")[0] == CALLBACKS.group for each in changed)
    return Differences(saved.trainer, tuple(map(str, changed)), callbacks)
