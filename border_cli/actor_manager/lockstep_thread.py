"""Actors in lockstep with the learner, one thread each."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from border_cli.actor_manager.actor import ActorFactory, Send
from border_cli.actor_manager.config import ThreadConfig
from border_cli.actor_manager.lockstep import (
    NO_LOCK,
    NO_STEP,
    RECHECK_S,
    ActorServer,
    Answer,
    DistantActor,
    Interruptible,
    LockstepActorManager,
    Request,
)
from border_cli.core.stop import stack_of
from border_cli.core.timing import Clock
from border_cli.core.types import State
from border_cli.errors import Stalled
from border_cli.system.processor import flushing_denormals


class ThreadedActor(DistantActor):
    """An actor in a thread of this process."""

    def __init__(
        self,
        heartbeat: Interruptible,
        server: ActorServer,
        *,
        send: Send,
        join_timeout_s: float,
    ) -> None:
        super().__init__(heartbeat, send)
        self._server, self._join_timeout_s = server, join_timeout_s
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=heartbeat.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._heartbeat.claim()
        with flushing_denormals():
            while (request := self._requests.get()) is not None:
                for answer in self._server.answers(request):
                    self._heartbeat.beat()
                    self._answers.put(answer)
        self._server.close()

    def begin(self, request: Request) -> None:
        self._requests.put(request)

    def _await_answer(self) -> Answer:
        while not (self._answers.empty() and self._heartbeat.interrupted):
            with suppress(Empty):
                return self._answers.get(timeout=RECHECK_S)
        raise Stalled(f"{self._thread.name} {NO_STEP}; its stack:\n{stack_of(self._thread)}")

    def close(self) -> None:
        self._requests.put(None)
        if not self._heartbeat.interrupted:
            self._thread.join(self._join_timeout_s)


class LockstepThreads(LockstepActorManager):
    """A manager whose actors step at the same time, each in a thread.

    A thread that hangs ends the run, because it cannot be replaced.
    """

    config: ThreadConfig

    def __init__(self, config: ThreadConfig, *, make_actor: ActorFactory, clock: Clock) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        # The global generators belong to the whole process.
        exclusive = make_actor.env_factory.spec.own_generators
        self._lock = threading.Lock() if exclusive else NO_LOCK

    def _make(self, actor_id: int, incarnation: int, saved: State | None) -> ThreadedActor:
        config, heartbeat = self.config, self._workers[actor_id].heartbeat
        make = partial(
            self._make_actor, config, actor_id, incarnation,
            weights=self._weights, saved=saved, beat=heartbeat.beat,
        )  # fmt: skip
        server = ActorServer(make, self._lock)
        return ThreadedActor(
            heartbeat, server, send=self._send, join_timeout_s=config.join_timeout_s
        )
