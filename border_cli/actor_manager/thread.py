"""One thread per actor: the reference's design."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from types import TracebackType
from typing import Self

from border_cli.actor_manager.channel import Channel, Closed
from border_cli.actor_manager.config import ThreadConfig
from border_cli.actor_manager.local import LocalActorManager, MakeActor
from border_cli.actor_manager.worker import Worker
from border_cli.core.clock import Clock
from border_cli.core.errors import ActorHung, RunFailed
from border_cli.core.types import Experience, Metrics

log = logging.getLogger(__name__)

MESSAGES_PER_ACTOR = 2  # that may wait for the learner

# Python's own 5 ms are as long as a step of many an environment: 32 actors that sleep 5 ms per step
# make 92 % of their samples with this interval and 88 % with that one. Paced actors at work cost
# the learner 2 % more.
SWITCH_INTERVAL_S = 5e-4


class ThreadActorManager(LocalActorManager):
    """Runs N actors between `__enter__` and `__exit__`; none outlives the `with` block.

    An actor that is past its restarts closes the gate: the others send what they have and end, and
    `receive` raises `ActorCrashed` with the first traceback of the one that failed.
    A thread that does not stop is a daemon, abandoned and named by `ActorHung`.
    """

    config: ThreadConfig

    def __init__(self, config: ThreadConfig, *, make_actor: MakeActor, clock: Clock) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._channel = Channel(MESSAGES_PER_ACTOR * config.num_actors)
        self._crash_lock = threading.Lock()
        self._crash: RunFailed | None = None
        self._hung: ActorHung | None = None
        self._threads = [
            threading.Thread(
                target=self._run, args=(worker,), name=worker.heartbeat.name, daemon=True
            )
            for worker in self._workers
        ]

    def __enter__(self) -> Self:
        self._interval_before_s = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._interval_before_s))
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # no `with` block begins, so nobody else would end those that run
            self.stop()
            sys.setswitchinterval(self._interval_before_s)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        sys.setswitchinterval(self._interval_before_s)
        if exc_type is None:  # never hide the error that is already on its way
            self._raise_if_crashed()
            if self._hung:
                raise self._hung

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        arrived = self._channel.drain()
        if arrived:
            return arrived
        self._raise_if_crashed()
        if timeout_s > 0:
            self._gate.urge(True)
            arrived = self._channel.drain(timeout_s)
            self._gate.urge(False)
        return arrived

    def stop(self) -> list[Experience]:
        self._gate.close()
        deadline_s = self._clock.now_s() + self.config.join_timeout_s
        arrived: list[Experience] = []
        while any(thread.is_alive() for thread in self._threads):
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0 or self._hung:
                self._name_hung()
                break
            arrived += self._channel.drain(min(left_s, 0.05))  # an ending thread wakes us sooner
        self._channel.close()
        return arrived + self._channel.drain()

    def gauges(self) -> Metrics:
        return {"async/queue_fill": self._channel.fill}

    def _run(self, worker: Worker) -> None:
        worker.heartbeat.claim()
        try:
            while True:
                self._live(worker)
        except Closed:
            pass  # the learner is done with us
        except BaseException as error:  # every death must reach the learner
            with self._crash_lock:
                self._crash = self._crash or _as_failure(error)
            self._gate.close()
        finally:
            worker.close()
            self._channel.wake()

    def _live(self, worker: Worker) -> None:
        """Steps the actor until it fails or shall end."""
        try:
            while True:
                self._turn(worker)
        except Closed:
            worker.flush()
            raise
        except (Exception, SystemExit):
            self._rebuild_later(worker)

    def _turn(self, worker: Worker) -> None:
        if self._gate.closed:
            raise Closed
        if worker.balance <= 0:
            worker.balance += self._gate.try_lease(self.config.n_buffer - worker.balance)
        if worker.balance > 0:
            worker.step()
            return
        worker.flush()  # whoever waits for the learner must not sit on its samples
        began_s = self._clock.now_s()
        with worker.heartbeat.waiting("the learner's permission (trainer.samples_per_opt_step)"):
            worker.balance += self._gate.lease(self.config.n_buffer - worker.balance)
        worker.blocked_s += self._clock.now_s() - began_s

    def _put(self, worker: Worker, message: Experience) -> float:
        began_s = self._clock.now_s()
        with worker.heartbeat.waiting("room in the channel"):
            self._channel.put(message)
        return self._clock.now_s() - began_s

    def _raise_if_crashed(self) -> None:
        if self._crash:
            raise self._crash

    def _name_hung(self) -> None:
        if self._hung:
            return
        frames = sys._current_frames()
        for worker, thread in zip(self._workers, self._threads, strict=True):
            if thread.is_alive() and thread.ident is not None:
                frame = frames.get(thread.ident)
                stack = "".join(traceback.format_stack(frame)) if frame else "(it just ended)"
                hung = ActorHung(worker.actor_id, self.config.join_timeout_s, stack)
                log.error("%s", hung)
                self._hung = self._hung or hung


def _as_failure(error: BaseException) -> RunFailed:
    if isinstance(error, RunFailed):
        return error
    failure = RunFailed(f"an actor's thread ended: {error!r}")
    failure.__cause__ = error
    return failure
