"""Actors in lockstep with the learner, one thread each."""

from __future__ import annotations

import sys
import threading
import traceback
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from border_cli.actor_manager.actor import Actor, ActorFactory, Send
from border_cli.actor_manager.config import ThreadConfig
from border_cli.actor_manager.lockstep import (
    NO_STEP,
    RECHECK_S,
    ActorServer,
    Answer,
    Command,
    DistantActor,
    LockstepActorManager,
)
from border_cli.actor_manager.thread import SWITCH_INTERVAL_S
from border_cli.core.timing import Clock
from border_cli.core.types import State
from border_cli.errors import Stalled
from border_cli.system.processor import flushing_denormals


class ThreadedActor(DistantActor):
    """An actor in a thread of this process."""

    def __init__(
        self,
        name: str,
        make: partial[Actor],
        *,
        send: Send,
        lock: AbstractContextManager[object],
        join_timeout_s: float,
    ) -> None:
        super().__init__(send)
        self._beats = 0  # written by its thread
        self._make, self._lock = make, lock
        self._join_timeout_s = join_timeout_s
        self._requests: SimpleQueue[Command | None] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.thread_id = self._thread.ident

    def _run(self) -> None:
        make = partial(self._make, beat=self._beat)
        server = ActorServer(
            lambda send: make(send=send), beat=lambda *_: self._beat(), lock=self._lock
        )
        with flushing_denormals():
            while (request := self._requests.get()) is not None:
                self._answers.put(server.answer(request))
        server.close()

    def _beat(self) -> None:
        self._beats += 1

    @property
    def beats(self) -> int:
        return self._beats

    def begin(self, request: Command) -> None:
        self._requests.put(request)

    def _await_answer(self) -> Answer:
        while not self.interrupted:
            try:
                return self._answers.get(timeout=RECHECK_S)
            except Empty:
                continue
        raise Stalled(f"{self._thread.name} {NO_STEP}; its stack:\n{self._stack()}")

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "(it has just ended)"

    def close(self) -> None:
        self._requests.put(None)
        if not self.interrupted:
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
        self._lock = threading.Lock() if exclusive else nullcontext()

    def __enter__(self) -> Self:
        self._interval_before_s = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._interval_before_s))
        return super().__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(exc_type, exc, traceback)
        sys.setswitchinterval(self._interval_before_s)

    def _make(self, actor_id: int, incarnation: int, saved: State | None) -> ThreadedActor:
        make = partial(
            self._make_actor,
            self.config,
            actor_id,
            incarnation,
            weights=self._weights,
            saved=saved,
        )
        return ThreadedActor(
            f"actor {actor_id}",
            make,
            send=self._send,
            lock=self._lock,
            join_timeout_s=self.config.join_timeout_s,
        )
