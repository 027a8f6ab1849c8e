"""An actor manager with one thread per actor, and its bounded channel to the learner."""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from typing import Self

from border_cli.actor_manager.actor import ActorFactory, Message
from border_cli.actor_manager.config import ThreadConfig
from border_cli.actor_manager.rate_limiter import Closed
from border_cli.actor_manager.restarts import as_failure
from border_cli.actor_manager.worker import LocalActorManager, SteppingWorker
from border_cli.core.interfaces import ActorStats
from border_cli.core.stop import stack_of
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, State
from border_cli.errors import ActorHung, RunFailed

log = logging.getLogger(__name__)

MESSAGES_PER_ACTOR = 2  # messages per actor that may wait for the learner

# Python's default of 5 ms is as long as one step of many environments. With 32 actors that sleep
# for 5 ms per step, this interval yields 92 % of the possible samples, and the default 88 %. While
# rate-limited actors are working, this interval slows the learner down by 2 %.
SWITCH_INTERVAL_S = 5e-4

_RECHECK_S = 1.0  # seconds between two checks of a condition, in case a wake-up is lost


class Channel:
    """A bounded FIFO queue of messages with many producers and one consumer.

    Producers block while the channel is full, so a slow learner does not increase memory use.
    `close` ends all waits; the messages in the channel can still be drained.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity  # messages
        self._messages: deque[Experience] = deque()
        self._closed = False
        self._woken = False  # whether `wake` was called since the last wait
        lock = threading.Lock()
        self._arrived = threading.Condition(lock)
        self._space = threading.Condition(lock)

    def put(self, message: Experience) -> None:
        """Adds a message, blocking until there is space. Raises `Closed` on a closed channel."""
        with self._space:
            while len(self._messages) >= self._capacity and not self._closed:
                self._space.wait(_RECHECK_S)
            if self._closed:
                raise Closed
            self._messages.append(message)
            self._arrived.notify()

    def drain(self, timeout_s: float = 0.0) -> list[Experience]:
        """Removes and returns all messages, waiting up to `timeout_s` for the first one."""
        if not self._messages and timeout_s <= 0:
            return []  # called before every update, so it avoids the lock
        with self._arrived:
            if not (self._messages or self._closed or self._woken):
                self._arrived.wait(timeout_s)
            self._woken = False
            messages = list(self._messages)
            self._messages.clear()
            self._space.notify_all()
            return messages

    def close(self) -> None:
        """Ends all waits and rejects new messages."""
        with self._space:
            self._closed = True
            self._space.notify_all()
            self._arrived.notify_all()

    def wake(self) -> None:
        """Ends the consumer's current or next wait early, without a message."""
        with self._arrived:
            self._woken = True
            self._arrived.notify_all()

    @property
    def fill(self) -> float:
        """Fraction of the capacity in use, between 0 and 1."""
        return len(self._messages) / self._capacity


class ThreadActorManager(LocalActorManager[SteppingWorker]):
    """A manager that runs one thread per actor within its `with` block.

    When an actor has no restarts left, it closes the rate limiter. The other actors then send their
    samples and end, and `receive` raises `ActorCrashed` with the first traceback of the failed
    actor. A thread that does not stop in time is reported by `ActorHung` and abandoned as a daemon.
    """

    config: ThreadConfig
    worker_type = SteppingWorker

    def __init__(self, config: ThreadConfig, *, make_actor: ActorFactory, clock: Clock) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._channel = Channel(MESSAGES_PER_ACTOR * config.num_actors)
        self._received = [0] * config.num_actors  # samples received in this attempt, by actor
        self._failing = threading.Lock()
        self._crash: RunFailed | None = None  # the first crash
        self._hung: ActorHung | None = None  # the first hung actor
        self._threads = [
            threading.Thread(
                target=self._run, args=(worker,), name=worker.heartbeat.name, daemon=True
            )
            for worker in self._workers
        ]

    def __enter__(self) -> Self:
        self._interval_before_s = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._interval_before_s))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, exc_type: object, *rest: object) -> None:
        self.stop()
        sys.setswitchinterval(self._interval_before_s)
        if exc_type is None:  # do not hide a propagating exception
            self._raise_crash()
            if self._hung:
                raise self._hung

    def _run(self, worker: SteppingWorker) -> None:
        """Runs the thread of one actor."""
        worker.heartbeat.claim()
        try:
            while True:
                self._run_incarnation(worker)
        except Closed:
            pass  # the learner needs no more samples
        except BaseException as error:  # every error must reach the learner
            with self._failing:
                self._crash = self._crash or as_failure(error, "an actor thread")
            self._limiter.close()
        finally:
            worker.close()
            self._channel.wake()

    def _run_incarnation(self, worker: SteppingWorker) -> None:
        """Steps the actor until it fails, then pauses; raises `Closed` when the run stops."""
        try:
            while True:
                self._step(worker)
        except Closed:
            worker.flush()
            raise
        except (Exception, SystemExit):
            self._recover(worker)

    def _step(self, worker: SteppingWorker) -> None:
        if self._limiter.closed:
            raise Closed
        if worker.collected >= worker.granted:
            worker.granted += self._limiter.try_acquire(self.config.n_buffer - worker.budget)
        if worker.collected < worker.granted:
            worker.step()
            return
        worker.flush()  # a waiting actor must not hold samples back
        began_s = self._clock.now_s()
        with worker.heartbeat.waiting("the rate limiter (trainer.samples_per_opt_step)"):
            worker.granted += self._limiter.acquire(self.config.n_buffer - worker.budget)
        worker.blocked_s += self._clock.now_s() - began_s

    def _send(self, message: Message) -> float:
        experience, worker = message.experience(), self._workers[message.actor_id]
        began_s = self._clock.now_s()
        with worker.heartbeat.waiting("space in the channel"):
            self._channel.put(experience)
        waited_s = self._clock.now_s() - began_s
        worker.sent += message.rows
        return waited_s

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        arrived = self._take()
        if not arrived:
            self._raise_crash()
            if timeout_s > 0:
                self._limiter.set_urgent(True)
                arrived = self._take(timeout_s)
                self._limiter.set_urgent(False)
        return arrived

    def _take(self, timeout_s: float = 0.0) -> list[Experience]:
        arrived = self._channel.drain(timeout_s)
        for experience in arrived:
            self._received[experience.actor_id] += len(experience.transitions)
        return arrived

    def stop(self) -> list[Experience]:
        self._limiter.close()
        deadline_s = self._clock.now_s() + self.config.join_timeout_s
        arrived: list[Experience] = []
        while any(thread.is_alive() for thread in self._threads):
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0 or self._hung:
                self._report_hung()
                break
            arrived += self._take(min(left_s, 0.05))  # a thread that exits ends this wait
        self._channel.close()
        return arrived + self._take()

    def _report_hung(self) -> None:
        """Logs the stack of every thread that is still alive after the deadline, only once."""
        if self._hung:
            return
        for actor_id, thread in enumerate(self._threads):
            if thread.is_alive():
                hung = ActorHung(actor_id, self.config.join_timeout_s, stack_of(thread))
                log.error("%s", hung)
                self._hung = self._hung or hung

    def _raise_crash(self) -> None:
        if self._crash:
            raise self._crash

    def state_dict(self) -> State:
        actors = [
            worker.saved(received)
            for worker, received in zip(self._workers, self._received, strict=True)
        ]
        return self._saved.with_actors(actors).state_dict()

    def stats(self) -> list[ActorStats]:
        return [
            worker.stats_of(received)
            for worker, received in zip(self._workers, self._received, strict=True)
        ]

    def gauges(self) -> Metrics:
        return {"async/queue_fill": self._channel.fill}
