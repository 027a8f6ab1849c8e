"""Writes the learner's checkpoints in a dedicated thread.

A failed save, for example on a full disk, is reported, and training continues; only a best model is
retried. If files that the save relies on were deleted, `check` raises RunDeleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

from border_cli.core.interfaces import Evaluation, ReplayBuffer
from border_cli.core.output import FILE_ONLY, RunState, SaveReport
from border_cli.core.timing import Clock
from border_cli.errors import RunDeleted
from border_cli.run.checkpoint_files import PendingRows, VerifiedCheckpoint
from border_cli.run.folders import CheckpointFolders
from border_cli.run.manifest import Chunk

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 600.0  # after which a disk is considered hung
Work = Callable[[], None]


class CheckpointStore:
    """Receives checkpoints from the learner's thread and writes them in a dedicated thread.

    The learner only takes a snapshot of the transitions and queues the state. Transitions are
    written once: each checkpoint adds those pushed since the last successful one.
    """

    def __init__(
        self,
        folders: CheckpointFolders,
        *,
        replay_buffer: bool,
        clock: Clock,
    ) -> None:
        """`replay_buffer`: whether to save the transitions of the replay buffer."""
        self._folders = folders
        self._saves_rows = replay_buffer
        self._clock = clock
        self._queue: Queue[Work | None] = Queue()  # None ends the thread
        # A daemon thread, so that a hung disk does not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._busy = False  # a checkpoint is queued or being written
        self._chunks: tuple[Chunk, ...] = ()  # of the newest checkpoint; read while not busy
        self._late_best: Callable[[], None] | None = None  # failed write of a best model, to retry
        self._deleted: RunDeleted | None = None  # error that ends the run
        self._report = SaveReport()

    def continue_from(self, saved: VerifiedCheckpoint) -> None:
        """Registers the checkpoint that the run resumes from. Its transitions are in the replay
        buffer again and are not rewritten."""
        self._chunks = saved.chunks

    @property
    def report(self) -> SaveReport:
        return replace(self._report, nbytes=self._folders.nbytes)

    @property
    def busy(self) -> bool:
        return self._busy

    def save(self, state: RunState) -> bool:
        """Queues a checkpoint named by `counters["opt_steps"]`; returns False if another one is
        still being written."""
        if self._busy:
            return False
        rows = self._freeze(state.replay_buffer) if self._saves_rows else None
        self._busy = True
        self._put(lambda: self._write_checkpoint(state, rows))
        return True

    def folder(self, opt_steps: int) -> Path:
        return self._folders.folder(opt_steps)

    def _freeze(self, buffer: ReplayBuffer) -> PendingRows:
        frozen = buffer.freeze(self._chunks[-1].end if self._chunks else 0)
        return PendingRows(
            frozen=frozen,
            before=tuple(chunk for chunk in self._chunks if chunk.end > frozen.oldest),
        )

    def check(self) -> None:
        if self._deleted is not None:
            raise self._deleted

    def save_best(
        self, agent: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Replaces the best model; a failed write is retried before the next checkpoint."""

        def write() -> None:
            self._late_best = None
            if not self._try_write(lambda: self._folders.write_best(agent, counters, evaluation)):
                self._late_best = write

        self._put(write)

    def _put(self, work: Work) -> None:
        if self._thread.ident is None:
            self._thread.start()
        self._queue.put(work)

    def _run(self) -> None:
        for work in iter(self._queue.get, None):
            work()
            del work  # frees the state that was written
            self._queue.task_done()

    def _write_checkpoint(self, state: RunState, rows: PendingRows | None) -> None:
        if self._late_best is not None:
            self._late_best()

        def write() -> None:
            self._chunks = self._folders.write_checkpoint(state, rows)
            self._report = replace(self._report, written=self._report.written + 1)
            log.info(
                "checkpoint of update %d written", state.counters["opt_steps"], extra=FILE_ONLY
            )

        try:
            self._try_write(write)
        finally:
            if rows is not None:
                rows.frozen.release()
            self._busy = False

    def _try_write(self, write: Callable[[], None]) -> bool:
        """Writes, and reports a failure, which does not end the run. Returns False if the write
        should be retried; if the run is deleted, `check` raises."""
        started_s = self._clock.now_s()
        problem: str | None = None
        try:
            write()
        except RunDeleted as error:
            self._deleted = error
        except FileNotFoundError as error:
            run_dir = self._folders.run_dir
            # The name may be relative to a directory that was open.
            self._deleted = RunDeleted(run_dir / error.filename if run_dir.exists() else run_dir)
        except Exception as error:
            with suppress(OSError, RunDeleted):
                self._folders.repair()
            problem = str(error) or type(error).__name__
            expected = isinstance(error, OSError | MemoryError)
            failures = self._report.failures + 1
            self._report = replace(self._report, failures=failures)
            log.error(
                "could not write a checkpoint (%s); training continues, the previous one is kept, "
                "%d failures so far", problem, failures, exc_info=None if expected else error,
            )  # fmt: skip
        seconds = self._report.seconds + self._clock.now_s() - started_s
        self._report = replace(self._report, problem=problem, seconds=seconds)
        return problem is None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until all queued writes have succeeded or failed; returns False on a timeout."""
        with self._queue.all_tasks_done:
            return self._queue.all_tasks_done.wait_for(
                lambda: not self._queue.unfinished_tasks, timeout_s
            )

    def close(self) -> None:
        """Waits for queued writes and ends the thread; may be called twice."""
        if self._thread.ident is None:
            return
        self._queue.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            log.error(
                "writing a checkpoint did not finish within %g s; abandoned it", CLOSE_TIMEOUT_S
            )
