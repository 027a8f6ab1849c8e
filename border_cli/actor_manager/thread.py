"""One thread per actor: the reference's design."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from border_cli.actor_manager.actor_record import ActorRecord
from border_cli.actor_manager.channel import Channel, Closed
from border_cli.actor_manager.config import ThreadConfig
from border_cli.actor_manager.inbox import Inbox, Letter, Note
from border_cli.actor_manager.local import LocalActorManager, MakeActor
from border_cli.actor_manager.thread_failures import ThreadFailures
from border_cli.actor_manager.worker import Worker
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, State

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

    What an actor notes of itself goes through the channel behind the messages it has sent, so that
    the two fit exactly.
    """

    config: ThreadConfig

    def __init__(self, config: ThreadConfig, *, make_actor: MakeActor, clock: Clock) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._channel: Channel[Letter] = Channel(MESSAGES_PER_ACTOR * config.num_actors)
        self._inbox = Inbox(self._channel, config.num_actors, clock)
        self._ends: dict[int, ActorRecord] = {}  # where actors stood when they ended
        self._state: State | None = None  # as of the last `settle` or `stop`
        self._stopped = False
        self._failures = ThreadFailures()
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
            self._failures.raise_any()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._inbox.received = [record.samples for record in self._before.actors]

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        arrived = self._inbox.take()
        if arrived:
            return arrived
        self._failures.raise_crash()
        if timeout_s > 0:
            self._gate.urge(True)
            arrived = self._inbox.take(timeout_s)
            self._gate.urge(False)
        return arrived

    def settle(self, timeout_s: float) -> list[Experience]:
        if self._stopped:
            return []
        arrived, records = self._inbox.take_up_to_notes(
            self._gate.ask(), timeout_s, awaits=self._awaits
        )
        self._state = self._state_with(records)
        return arrived

    def _awaits(self, answered: Mapping[int, object]) -> bool:
        """Whether anybody who has not answered is going to; who dies or ends wakes the channel."""
        return any(
            worker.alive and thread.is_alive()
            for worker, thread in zip(self._workers, self._threads, strict=True)
            if worker.actor_id not in answered
        )

    def _state_with(self, records: Mapping[int, ActorRecord]) -> State:
        """Fits what was received; those without a record begin anew."""
        actors = [
            records.get(worker.actor_id) or worker.record_unanswered(received)
            for worker, received in zip(self._workers, self._inbox.received, strict=True)
        ]
        return self._before.after(actors).state_dict()

    def state_dict(self) -> State:
        return self._state_with({}) if self._state is None else self._state

    def stop(self) -> list[Experience]:
        self._gate.close()
        deadline_s = self._clock.now_s() + self.config.join_timeout_s
        arrived: list[Experience] = []
        while any(thread.is_alive() for thread in self._threads):
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0 or self._failures.hung:
                self._failures.name_hung(self._threads, self.config.join_timeout_s)
                break
            arrived += self._inbox.take(min(left_s, 0.05))  # an ending thread wakes us sooner
        self._channel.close()
        arrived += self._inbox.take()
        if not self._stopped:
            self._stopped = True
            self._state = self._state_with(self._ends)
        return arrived

    def gauges(self) -> Metrics:
        return {"async/queue_fill": self._channel.fill}

    def _run(self, worker: Worker) -> None:
        worker.heartbeat.claim()
        try:
            with worker.heartbeat.waiting("the first weights"):
                self._gate.wait_opened()
            while True:
                self._live(worker)
        except Closed:  # the learner is done with us
            self._ends[worker.actor_id] = worker.record()
        except BaseException as error:  # every death must reach the learner
            self._failures.report(error)
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
            delay_s = self._bury(worker)
            self._channel.wake()  # nobody shall wait for what it stood for
            self._pause(worker, delay_s)

    def _turn(self, worker: Worker) -> None:
        if self._gate.closed:
            raise Closed
        if self._gate.asked != worker.answered:
            self._answer(worker)
        if worker.balance <= 0:
            worker.balance += self._gate.try_lease(self.config.n_buffer - worker.balance)
        if worker.balance > 0:
            worker.step()
            return
        worker.flush_saved()  # whoever waits for the learner must not sit on its samples
        began_s = self._clock.now_s()
        with worker.heartbeat.waiting("the rate limiter (trainer.samples_per_opt_step)"):
            want = self.config.n_buffer - worker.balance
            worker.balance += self._gate.lease(want, answered=worker.answered)
        worker.blocked_s += self._clock.now_s() - began_s

    def _answer(self, worker: Worker) -> None:
        question = self._gate.asked
        worker.flush()
        self._put(worker, Note(question, worker.record()))
        worker.answered = question  # only now: a failure on the way is answered in its next life

    def _put(self, worker: Worker, message: Letter) -> float:
        began_s = self._clock.now_s()
        with worker.heartbeat.waiting("space in the channel"):
            self._channel.put(message)
        return self._clock.now_s() - began_s
