"""Starts, watches and restarts the processes of the actors.

A process that fails, exits or is killed from outside is reaped and started again after a pause, as
long as restarts are left; its successor continues behind the last message that is complete. One
that makes no step for too long is reported with its stack, killed and restarted; one that does not
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
    LOST,
    MADE,
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

_LOOK_AGAIN_S = 1.0

StartIncarnation = Callable[[int, int], ChildProcess]  # actor id, incarnation in this attempt


class ActorHandle:
    """One actor over all its processes, and its `Pulse`; the supervisor's thread writes it, others
    read."""

    thread_id: int | None = None  # its stack is in another process

    def __init__(
        self, actor_id: int, channel: SharedChannel, most_restarts: int, clock: Clock
    ) -> None:
        self.actor_id = actor_id
        self.name = f"actor {actor_id}"
        self.channel = channel
        self.record = ActorRecord(actor_id, clock)
        self.restarts = Restarts(actor_id, most_restarts)
        self.process: ChildProcess | None = None
        self.due_s = 0.0  # when its next incarnation begins
        self.stuck = False  # the watchdog has requested its replacement
        self.stack: str | None = None  # of the process that was killed because it was stuck
        self.ended = False
        self.wake: Callable[[], None] = lambda: None  # wakes the supervisor
        self._counting = threading.Lock()  # while a process that ended is counted

    def reap(self) -> None:
        """Completes the counters of its process, which has ended."""
        with self._counting:
            self.channel.reap()

    def stats(self, received: int) -> ActorStats:
        """Its counters over the whole run, with the samples received in this attempt."""
        return self.record.stats(self._counted(received)[0])

    def saved(self, received: int) -> SavedActor:
        """Its counters for a checkpoint: samples that the learner has not received are lost."""
        counted, made = self._counted(received)
        lost = counted.lost_samples + made - received
        # A process that made no step has used no seed.
        begun = self.restarts.made + 1 if self.channel.actor[BEATS] else 0
        return self.record.saved(replace(counted, lost_samples=lost), begun)

    def _counted(self, received: int) -> tuple[ActorStats, int]:
        """Its counters in this attempt, and its samples that were made and not lost; all of one
        moment."""
        with self._counting:
            made, env_steps = self.channel.counts()
            lost = self.channel.actor[LOST]
        stats = ActorStats(
            actor_id=self.actor_id,
            env_steps=env_steps,
            samples=received,
            restarts=self.restarts.made,
            lost_samples=lost,
            seconds=dict(zip(ACTOR_SECTIONS, self.channel.seconds, strict=True)),
        )
        return stats, made

    @property
    def beats(self) -> int:
        return int(self.channel.actor[BEATS]) + self.restarts.made

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
        """Has its process replaced; False where an earlier request had no effect."""
        if self.stuck:
            return False
        self.stuck = True
        self.wake()
        return True


class Supervisor:
    """Owns the processes between `start` and `join`; a thread of its own, which mostly sleeps."""

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
        """Whether any process may be alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """No process is started from now on; those that run end by their channels."""
        self._closing = True
        self._pipe.wake()

    def kill(self) -> None:
        """Ends those that do not end by themselves, each named with its stack."""
        self._killing = True
        self._pipe.wake()

    def join(self, timeout_s: float) -> None:
        """Waits for the end of all processes."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._pipe.close()

    def _run(self) -> None:
        try:
            while True:
                self._start_those_due()
                if all(handle.ended for handle in self._handles):
                    return
                self._listen(self._pause_s())
        except BaseException as error:  # every death must reach the learner
            self._fail(error)
        finally:
            self._kill_all()
            self._learner_pipe.wake()

    def _kill_all(self) -> None:
        """Where the thread fails, all are killed before anything else is done."""
        left = [handle for handle in self._handles if not handle.ended]
        for handle in left:
            if handle.process is not None:
                handle.process.kill()
        for handle in left:
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

    def _start_those_due(self) -> None:
        for handle in self._handles:
            if handle.process is not None or handle.ended:
                continue
            if self._closing:
                self._end(handle)
            elif handle.due_s <= self._clock.now_s():
                handle.record.begin()
                try:
                    handle.process = self._start_incarnation(handle.actor_id, handle.restarts.made)
                except (OSError, EOFError):  # no process, file or fork server is available
                    why = f"its process could not be started:\n{traceback.format_exc()}"
                    self._plan_restart(handle, why)

    def _pause_s(self) -> float:
        """Until the next restart is due."""
        now_s = self._clock.now_s()
        due = [
            handle.due_s - now_s
            for handle in self._handles
            if not handle.process and not handle.ended
        ]
        return max(0.0, min([_LOOK_AGAIN_S, *due]))

    def _listen(self, timeout_s: float) -> None:
        waitables = [
            each for handle in self._handles if handle.process for each in handle.process.waitables
        ]
        wait([self._pipe.fileno(), *waitables], timeout_s)
        self._pipe.drain()
        for handle in self._handles:
            process = handle.process
            if process is None:
                continue
            process.listen()
            if process.alive and (self._killing or handle.stuck):
                self._end_stuck(handle, process)
            if not process.alive:
                self._replace(handle)

    def _end_stuck(self, handle: ActorHandle, process: ChildProcess) -> None:
        if handle.stuck and not self._killing and handle.channel.actor[WAITS] != NOTHING:
            handle.stuck = False  # it moved in the meantime
            return
        stack = process.stack()
        if self._killing:
            log.error("killing %s, which did not stop in time; its stack:\n%s", handle.name, stack)
        else:
            handle.stack = stack
        process.kill()
        wait(process.waitables[-1:], _LOOK_AGAIN_S)

    def _replace(self, handle: ActorHandle) -> None:
        """Its process is dead: counts what it lost and plans its restart."""
        handle.stuck = False
        process = handle.process
        why = self._reap(handle)
        if handle.stack is not None:
            why = f"{handle.stack}\nkilled after making no step for trainer.stall_timeout_s"
            handle.stack = None
        if process is not None and process.refusal is not None and not self._closing:
            self._end(handle)
            self._fail(process.refusal)
            return
        if not self._closing:
            self._plan_restart(handle, why or "its process exited unexpectedly")
            return
        if why is not None and not self._killing:
            log.warning("%s failed while stopping:\n%s", handle.name, why)
        self._end(handle)

    def _plan_restart(self, handle: ActorHandle, why: str) -> None:
        try:
            # What it wrote counts as delivered, whether or not the learner has taken it in yet.
            pause_s = handle.restarts.failed(why, delivered=handle.channel.actor[MADE])
            handle.due_s = self._clock.now_s() + pause_s
        except ActorCrashed as error:
            self._end(handle)
            self._fail(error)

    def _reap(self, handle: ActorHandle) -> str | None:
        process, handle.process = handle.process, None
        assert process is not None
        why = process.reap()
        handle.reap()
        return why

    def _end(self, handle: ActorHandle) -> None:
        handle.ended = True
        handle.record.end()
        self._learner_pipe.wake()
