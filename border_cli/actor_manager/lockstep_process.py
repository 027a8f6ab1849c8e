"""Actors in lockstep with the learner, one supervised process each."""

from __future__ import annotations

import logging
from functools import partial
from multiprocessing.connection import wait
from types import TracebackType
from typing import Final, NoReturn, Self

import numpy as np

from border_cli.actor_manager.actor import Actor, ActorFactory, Send
from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.lockstep import (
    NO_STEP,
    RECHECK_S,
    ActorServer,
    Answer,
    Command,
    DistantActor,
    LockstepActorManager,
)
from border_cli.actor_manager.record import rows_in_proxy
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.actor_manager.worker import StepFailed
from border_cli.core.timing import Clock
from border_cli.core.types import State
from border_cli.system.child import READY, Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.processor import flushing_denormals
from border_cli.system.shared_memory import SharedArrays, integers
from border_cli.system.start import modules_of_recipe, pack, start_context, unpack

log = logging.getLogger(__name__)

ANSWER: Final = "answer"  # kind of message

# Words written by the actor, so that nothing is miscounted if its process is killed.
BEATS: Final = 0
ENV_STEPS: Final = 1
COLLECTED: Final = 2  # samples, including those of the saved state that were not sent
WORDS: Final = 8


def run(
    config: ProcessConfig,
    packed: bytes,
    actor_id: int,
    incarnation: int,
    saved: State | None,
    shared: SharedArrays,
    weights: SharedWeightSlot,
    pipe: Pipe,
) -> None:
    """Runs the process: answers requests until the learner sends None.

    `packed` is a pickled `ActorFactory`, so that the process reports unpickling errors.
    """
    make_actor: ActorFactory = unpack(packed)
    words = integers(shared.arrays[0])
    words[COLLECTED] = rows_in_proxy(saved)

    def beat() -> None:
        words[BEATS] += 1

    def count(actor: Actor, samples: int) -> None:
        words[COLLECTED] += samples
        words[ENV_STEPS] = actor.env_steps
        beat()

    make = partial(
        make_actor, config, actor_id, incarnation, weights=weights, saved=saved, beat=beat
    )
    server = ActorServer(lambda send: make(send=send), beat=count)
    pipe.send(READY)
    with flushing_denormals():
        while True:
            (request,) = pipe.receive()
            if request is None:
                break
            answer = server.answer(request)
            answer.pack()
            pipe.send(ANSWER, answer)
    server.close()


class ProcessActor(DistantActor):
    """An actor in a child process."""

    def __init__(
        self, process: ChildProcess, shared: SharedArrays, *, send: Send, join_timeout_s: float
    ) -> None:
        super().__init__(send)
        self._process: ChildProcess | None = process  # None once it has ended
        self._shared, self._words = shared, integers(shared.arrays[0])
        self._received = 0  # samples
        self._join_timeout_s = join_timeout_s

    @property
    def beats(self) -> int:
        return self._words[BEATS]

    @property
    def starting(self) -> bool:
        process = self._process
        return process is not None and process.starting

    def begin(self, request: Command) -> None:
        if self._process is not None:
            self._process.tell(request)

    def _await_answer(self) -> Answer:
        process, stack = self._process, None
        if process is None:
            raise StepFailed("its process has ended")
        while not process.inbox:
            if self.interrupted and stack is None:
                stack = process.stack()
                process.kill()
            process.listen(RECHECK_S)
            if not (process.inbox or (process.listening and process.alive)):
                self._fail(process, stack)
        answer: Answer = process.inbox.popleft()[1]
        answer.unpack()
        self._received += sum(message.rows for sent in answer.messages for message in sent)
        return answer

    def _fail(self, process: ChildProcess, stack: str | None) -> NoReturn:
        """Completes the counters of a process that has died, and raises StepFailed."""
        self._end()
        reason = process.reap() or "its process exited unexpectedly"
        raise StepFailed(reason if stack is None else f"{stack}\nkilled, because it {NO_STEP}")

    def _end(self) -> None:
        self._process = None
        self.env_steps = self._words[ENV_STEPS]
        self.unsent = self._words[COLLECTED] - self._received
        self._shared.close()

    def close(self) -> None:
        process = self._process
        if process is None:
            return
        process.tell(None)
        if not wait(process.waitables[-1:], self._join_timeout_s):
            log.error(
                "killing %s, which did not stop in time; its stack:\n%s",
                process.name, process.stack(),
            )  # fmt: skip
        self._end()
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

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(exc_type, exc, traceback)
        self._weights.close()

    def _make(self, actor_id: int, incarnation: int, saved: State | None) -> ProcessActor:
        shared = SharedArrays([(np.dtype(np.int64), (WORDS,))])
        arguments = actor_id, incarnation, saved, shared, self._weights
        process = ChildProcess(
            self._context,
            f"actor {actor_id}",
            run,
            self.config,
            self._packed,
            *arguments,
            nice=self.config.nice,
        )
        return ProcessActor(
            process, shared, send=self._send, join_timeout_s=self.config.join_timeout_s
        )
