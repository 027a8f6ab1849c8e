"""The supervisor, which starts, monitors and restarts the actor processes.

A process that fails, exits or is killed from outside is reaped and restarted after a pause, as long
as restarts are left. The new process continues after the last complete message. A process that
takes no step for too long is reported with its stack, killed and restarted. A process that does not
stop in time is reported and killed.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import wait

from border_cli.actor_manager.record import ActorRecord, SavedActor
from border_cli.actor_manager.restarts import Restarts, as_failure
from border_cli.actor_manager.shared_channel import (
    BEATS,
    CLOSING,
    COLLECTED,
    LOST,
    NOTHING,
    WAITS,
    WAITS_FOR,
    SharedChannel,
)
from border_cli.core.interfaces import ActorStats
from border_cli.core.timing import ACTOR_SECTIONS, Clock
from border_cli.errors import ActorCrashed, RunFailed
from border_cli.system.child_process import ChildProcess
from border_cli.system.shared_memory import WakePipe

log = logging.getLogger(__name__)

_RECHECK_S = 1.0  # seconds between two checks of the processes, in case a wake-up is lost

StartIncarnation = Callable[[int, int], ChildProcess]  # (actor id, incarnation in this attempt)


class ActorHandle:
    """One actor across all its processes, and its `MonitoredPart`. Once the supervisor has started,
    only its thread writes it, except for `stuck`, which the watchdog sets."""

    thread_id: int | None = None  # the actor runs in another process

    def __init__(
        self, actor_id: int, channel: SharedChannel, most_restarts: int, clock: Clock
    ) -> None:
        self.actor_id = actor_id
        self.name = f"actor {actor_id}"
        self.channel = channel
        self.record = ActorRecord(actor_id, clock)
        self.restarts = Restarts(actor_id, most_restarts)
        self.process: ChildProcess | None = None
        self.due_s = 0.0  # time at which the next incarnation starts
        self.stuck = False  # whether the watchdog has requested a restart
        self.stack: str | None = None  # stack of a process killed because it was stuck
        self.ended = False
        self.wake: Callable[[], None] = lambda: None  # wakes the supervisor
        self._counting = threading.Lock()  # held while the counters are completed or read

    def reap(self) -> None:
        """Completes the counters after the process has exited."""
        with self._counting:
            self.channel.reap()

    def stats(self, received: int) -> ActorStats:
        """Returns the counters over the whole run, given the samples received in this attempt."""
        return self.record.stats(self._read_counters(received)[0])

    def saved(self, received: int) -> SavedActor:
        """Returns the actor for a checkpoint; samples not yet received count as lost."""
        stats, collected = self._read_counters(received)
        lost = stats.lost_samples + collected - received
        # Without a beat, no process has built its actor, so no seeds were used.
        begun = self.restarts.count + 1 if self.channel.actor[BEATS] else 0
        return self.record.saved(replace(stats, lost_samples=lost), begun)

    def _read_counters(self, received: int) -> tuple[ActorStats, int]:
        """Returns the counters of this attempt, and the samples collected and not lost."""
        with self._counting:
            collected, env_steps = self.channel.counts()
            lost = self.channel.actor[LOST]
        stats = ActorStats(
            actor_id=self.actor_id,
            env_steps=env_steps,
            samples=received,
            restarts=self.restarts.count,
            lost_samples=lost,
            seconds=dict(zip(ACTOR_SECTIONS, self.channel.seconds, strict=True)),
        )
        return stats, collected

    @property
    def beats(self) -> int:
        return int(self.channel.actor[BEATS]) + self.restarts.count

    @property
    def waiting_for(self) -> str | None:
        if self.ended:
            return "nothing (it has ended)"
        process = self.process
        if process is None:
            return "its restart"
        if process.starting:
            return "its process to start"
        return WAITS_FOR.get(self.channel.actor[WAITS])

    def restart(self) -> bool:
        """Requests a new process; returns False if an earlier request is still pending."""
        if self.stuck:
            return False
        self.stuck = True
        self.wake()
        return True


class Supervisor:
    """The owner of the processes between `start` and `join`, in a thread that mostly sleeps."""

    def __init__(
        self,
        handles: Sequence[ActorHandle],
        *,
        start_incarnation: StartIncarnation,
        learner_pipe: WakePipe,
        clock: Clock,
    ) -> None:
        self._handles = handles
        self._start_incarnation = start_incarnation
        self._learner_pipe = learner_pipe
        self._clock = clock
        self._pipe = WakePipe()
        self._closing = self._killing = False
        self.crash: RunFailed | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        for handle in handles:
            handle.wake = self._pipe.wake

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        """True if any process may still be alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Prevents further starts; running processes exit when their channels are closed."""
        self._closing = True
        self._pipe.wake()

    def kill(self) -> None:
        """Kills the processes that are still running and logs their stacks."""
        self._killing = True
        self._pipe.wake()

    def join(self, timeout_s: float) -> None:
        """Waits until all processes have exited."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._pipe.close()

    def _run(self) -> None:
        try:
            while True:
                self._start_due()
                if all(handle.ended for handle in self._handles):
                    return
                self._listen(self._seconds_until_restart())
        except BaseException as error:  # every error must reach the learner
            self._fail(error)
        finally:
            self._kill_all()
            self._learner_pipe.wake()

    def _kill_all(self) -> None:
        """Kills the remaining processes, all of them before any is reaped."""
        remaining = [handle for handle in self._handles if not handle.ended]
        for handle in remaining:
            if handle.process is not None:
                handle.process.kill()
        for handle in remaining:
            if handle.process is not None:
                self._reap(handle)
            self._end(handle)

    def _fail(self, error: BaseException) -> None:
        self.crash = self.crash or as_failure(error, "the actor supervisor")
        self._closing = True
        for handle in self._handles:
            handle.channel.learner[CLOSING] = 1
            handle.channel.pipe.wake()
        self._learner_pipe.wake()

    def _start_due(self) -> None:
        for handle in self._handles:
            if handle.process is not None or handle.ended:
                continue
            if self._closing:
                self._end(handle)
            elif handle.due_s <= self._clock.now_s():
                handle.record.begin()
                try:
                    handle.process = self._start_incarnation(handle.actor_id, handle.restarts.count)
                except (OSError, EOFError):  # process or file limit reached, or no fork server
                    reason = f"its process could not be started:\n{traceback.format_exc()}"
                    self._plan_restart(handle, reason)

    def _seconds_until_restart(self) -> float:
        """Returns the seconds until the next restart is due, at most `_RECHECK_S`."""
        now_s = self._clock.now_s()
        delays_s = [
            handle.due_s - now_s
            for handle in self._handles
            if not handle.process and not handle.ended
        ]
        return max(0.0, min([_RECHECK_S, *delays_s]))

    def _listen(self, timeout_s: float) -> None:
        waitables = [
            item for handle in self._handles if handle.process for item in handle.process.waitables
        ]
        wait([self._pipe.fileno(), *waitables], timeout_s)
        self._pipe.drain()
        for handle in self._handles:
            process = handle.process
            if process is None:
                continue
            process.listen()
            if process.alive and (self._killing or handle.stuck):
                self._kill_stuck(handle, process)
            if not process.alive:
                self._replace(handle)

    def _kill_stuck(self, handle: ActorHandle, process: ChildProcess) -> None:
        if handle.stuck and not self._killing and handle.channel.actor[WAITS] != NOTHING:
            handle.stuck = False  # it is waiting now, so it is no longer stuck
            return
        stack = process.stack()
        if self._killing:
            log.error("killing %s, which did not stop in time; its stack:\n%s", handle.name, stack)
        else:
            handle.stack = stack
        process.kill()
        wait(process.waitables[-1:], _RECHECK_S)

    def _replace(self, handle: ActorHandle) -> None:
        """Counts the losses of a dead process, and plans the restart unless the run is closing."""
        handle.stuck = False
        process = handle.process
        reason = self._reap(handle)
        if handle.stack is not None:
            reason = f"{handle.stack}\nkilled after making no step for trainer.stall_timeout_s"
            handle.stack = None
        if process is not None and process.refusal is not None and not self._closing:
            self._end(handle)
            self._fail(process.refusal)
            return
        if not self._closing:
            self._plan_restart(handle, reason or "its process exited unexpectedly")
            return
        if reason is not None and not self._killing:
            log.warning("%s failed while stopping:\n%s", handle.name, reason)
        self._end(handle)

    def _plan_restart(self, handle: ActorHandle, reason: str) -> None:
        try:
            # Samples written count as delivered even if the learner has not read them yet.
            pause_s = handle.restarts.record_failure(
                reason, delivered=handle.channel.actor[COLLECTED]
            )
            handle.due_s = self._clock.now_s() + pause_s
        except ActorCrashed as error:
            self._end(handle)
            self._fail(error)

    def _reap(self, handle: ActorHandle) -> str | None:
        process, handle.process = handle.process, None
        assert process is not None
        reason = process.reap()
        handle.reap()
        return reason

    def _end(self, handle: ActorHandle) -> None:
        handle.ended = True
        handle.record.end()
        self._learner_pipe.wake()
