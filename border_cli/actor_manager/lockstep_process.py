"""Actors in lockstep with the learner, one supervised process each."""

from __future__ import annotations

import logging
import time
from functools import partial
from multiprocessing.connection import wait
from typing import Final, Self

from border_cli.actor_manager.actor import ActorFactory, Send
from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.lockstep import (
    NO_STEP,
    RECHECK_S,
    ActorServer,
    Answer,
    DistantActor,
    Interruptible,
    LockstepActorManager,
    Request,
)
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.actor_manager.worker import StepFailed
from border_cli.core.timing import Clock
from border_cli.core.types import State
from border_cli.system.child import READY, Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.processor import flushing_denormals
from border_cli.system.start import modules_of_recipe, pack, start_context, unpack

log = logging.getLogger(__name__)

ANSWER: Final = "answer"  # kinds of messages
BEAT: Final = "beat"
BEAT_S: Final = 0.5  # seconds between two beats while an actor is built


def run(
    config: ProcessConfig,
    packed: bytes,
    actor_id: int,
    incarnation: int,
    saved: State | None,
    weights: SharedWeightSlot,
    pipe: Pipe,
) -> None:
    """Runs the process: answers requests until the learner sends None.

    `packed` is a pickled `ActorFactory`, so that the process reports unpickling errors.
    """
    make_actor: ActorFactory = unpack(packed)
    beaten_s = time.monotonic()

    def beat() -> None:
        nonlocal beaten_s
        now_s = time.monotonic()
        if now_s - beaten_s >= BEAT_S:
            beaten_s = now_s
            pipe.send(BEAT)

    make = partial(
        make_actor, config, actor_id, incarnation, weights=weights, saved=saved, beat=beat
    )
    server = ActorServer(make)
    pipe.send(READY)
    with flushing_denormals():
        while True:
            (request,) = pipe.receive()
            if request is None:
                break
            for answer in server.answers(request):
                pipe.send(ANSWER, answer)
    server.close()


class ProcessActor(DistantActor):
    """An actor in a child process."""

    def __init__(
        self, process: ChildProcess, heartbeat: Interruptible, *, send: Send, join_timeout_s: float
    ) -> None:
        super().__init__(heartbeat, send)
        self._process: ChildProcess | None = process  # None once it has ended
        self._join_timeout_s = join_timeout_s

    def begin(self, request: Request) -> None:
        if self._process is not None:
            self._process.tell(request)

    def _await_answer(self) -> Answer:
        process, heartbeat, stack = self._process, self._heartbeat, None
        if process is None:
            raise StepFailed("its process has ended")
        process.listen()
        while True:
            if process.inbox:
                heartbeat.beat()
                kind, *values = process.inbox.popleft()
                if kind == ANSWER:
                    answer: Answer = values[0]
                    return answer
            elif not (process.listening and process.alive):
                self._process = None
                reason = process.reap() or "its process exited unexpectedly"
                raise StepFailed(f"{stack}\nkilled, because it {NO_STEP}" if stack else reason)
            elif heartbeat.interrupted and stack is None:
                stack = process.stack()
                process.kill()
            else:
                heartbeat.waiting_for = "its process to start" if process.starting else None
                process.listen(RECHECK_S)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.tell(None)
        if not wait(process.waitables[-1:], self._join_timeout_s):
            log.error(
                "killing %s, which did not stop in time; its stack:\n%s",
                process.name, process.stack(),
            )  # fmt: skip
        process.reap()


class LockstepProcesses(LockstepActorManager):
    """A manager whose actors step at the same time, each in a process.

    A process that dies or hangs is replaced; then the run no longer repeats to the bit. No process
    outlives the `with` block.
    """

    config: ProcessConfig
    _weights: SharedWeightSlot

    def __init__(self, config: ProcessConfig, *, make_actor: ActorFactory, clock: Clock) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._weights = SharedWeightSlot(make_actor.weight_forms)

    def __enter__(self) -> Self:
        self._packed = pack("actor_manager=process", self._make_actor.imports, self._make_actor)
        modules = modules_of_recipe(self._make_actor) - {"__main__"}  # preloaded modules
        self._context = start_context(self.config.start_method, [__name__, *sorted(modules)])
        return super().__enter__()

    def __exit__(self, exc_type: object, *rest: object) -> None:
        super().__exit__(exc_type, *rest)
        self._weights.close()

    def _make(self, actor_id: int, incarnation: int, saved: State | None) -> ProcessActor:
        process = ChildProcess(
            self._context,
            f"actor {actor_id}",
            run,
            self.config,
            self._packed,
            actor_id,
            incarnation,
            saved,
            self._weights,
            nice=self.config.nice,
        )
        heartbeat, join_timeout_s = self._workers[actor_id].heartbeat, self.config.join_timeout_s
        return ProcessActor(process, heartbeat, send=self._send, join_timeout_s=join_timeout_s)
