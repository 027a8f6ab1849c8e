"""Actors that step at the same time, in lockstep with the learner: parallel, and reproducible.

The learner's thread chooses the actors that step next in the same way as `SerialActorManager`. Each
of these takes its steps in its own thread or process, with the same weights, and then waits for the
next request. The learner reads their samples ordered by step and then by actor, so for an equal
seed, number of actors and number of environments the run is the same to the bit as with serial
actors.
"""

from __future__ import annotations

import logging
import math
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final, Self

from border_cli.actor_manager.actor import Actor, ActorFactory, Message, Send
from border_cli.actor_manager.record import SavedActor
from border_cli.actor_manager.serial import ReproducibleActorManager
from border_cli.actor_manager.worker import StepFailed, Worker
from border_cli.core.rows import concatenate, slice_rows
from border_cli.core.stop import MonitoredPart
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, State, Transitions
from border_cli.errors import BadStep, Stalled
from border_cli.settings.run import ActorManagerConfig

log = logging.getLogger(__name__)

RECHECK_S: Final = 0.5  # seconds between two checks whether an actor has ended or hangs
NO_STEP: Final = "made no step for trainer.stall_timeout_s"


@dataclass(kw_only=True)
class Command:
    """What an actor has to do."""

    steps: int = 0
    flush: bool = False  # whether to send buffered samples
    state: bool = False  # whether to return the state of the actor


@dataclass(kw_only=True)
class Answer:
    """The response of an actor to a request, up to its failure if it failed."""

    samples: list[int] = field(default_factory=list)  # transitions made, by step
    messages: list[list[Message]] = field(default_factory=list)  # messages sent, by step
    state: State | None = None
    env_steps: int = 0  # counters of the actor, as in `ActorStats`
    restarted_episodes: int = 0
    seconds: Sequence[float] = ()
    unsent: int = 0  # transitions made and not sent
    failure: BadStep | Stalled | str | None = None  # a string is a traceback
    rows: Transitions | None = None  # transitions of all messages of a packed answer

    def pack(self) -> None:
        """Joins the transitions of all messages, which are then pickled faster."""
        parts = [part for sent in self.messages for message in sent for part in message.parts]
        if parts:
            self.rows = concatenate(parts)
            self.messages = [
                [replace(message, parts=[]) for message in sent] for sent in self.messages
            ]

    def unpack(self) -> None:
        """Undoes `pack`; the messages share the memory of the joined transitions."""
        if self.rows is None:
            return
        first = 0
        for sent in self.messages:
            for message in sent:
                if message.rows:
                    part = slice(first, first := first + message.rows)
                    message.parts.append(slice_rows(self.rows, part))

    def raise_failure(self) -> None:
        """Raises the failure of the actor, if there is one."""
        if isinstance(self.failure, str):
            raise StepFailed(self.failure)
        if self.failure is not None:
            raise self.failure


class ActorServer:
    """Answers the requests of the learner with one actor; owned by the actor's thread or process.

    The first request builds the actor. `beat` is called with the actor and the number of samples of
    each step. The actor is built and stepped within `lock`.
    """

    def __init__(
        self,
        make: Callable[[Send], Actor],
        *,
        beat: Callable[[Actor, int], None],
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._make, self._beat = make, beat
        self._lock = nullcontext() if lock is None else lock
        self._actor: Actor | None = None
        self._sent: list[Message] = []

    def _send(self, message: Message) -> float:
        self._sent.append(message)
        return 0.0

    def answer(self, request: Command) -> Answer:
        """Executes a request. An error of the actor is part of the answer."""
        answer = Answer()
        try:
            if self._actor is None:
                with self._lock:
                    self._actor = self._make(self._send)
                self._actor.bind_thread()
            self._execute(self._actor, request, answer)
        except BadStep as error:
            answer.failure = error
        except (Exception, SystemExit):
            answer.failure = traceback.format_exc()
        return answer

    def _execute(self, actor: Actor, request: Command, answer: Answer) -> None:
        try:
            for _ in range(request.steps):
                with self._lock:
                    samples = actor.step()
                answer.samples.append(samples)
                answer.messages.append(self._take())
                self._beat(actor, samples)
            if request.flush:
                actor.flush()
                answer.messages.append(self._take())
            if request.state:
                answer.state = actor.state_dict()
        finally:
            answer.env_steps, answer.unsent = actor.env_steps, actor.unsent
            answer.restarted_episodes, answer.seconds = actor.restarted_episodes, actor.seconds

    def _take(self) -> list[Message]:
        sent, self._sent = self._sent, []
        return sent

    def close(self) -> None:
        """Closes the environments."""
        if self._actor is not None:
            self._actor.close()


class DistantActor(ABC):
    """The learner's view of an actor in another thread or process.

    The learner's thread owns it; the watchdog's thread reads `beats`, `starting` and `thread_id`,
    and calls `interrupt`.
    """

    thread_id: int | None = None  # its thread, if that belongs to this process

    def __init__(self, send: Send) -> None:
        self._send = send
        self.interrupted = False
        self.env_steps = self.restarted_episodes = self.unsent = 0
        self.seconds: Sequence[float] = ()

    @property
    @abstractmethod
    def beats(self) -> int:
        """Number of its steps so far."""

    @property
    def starting(self) -> bool:
        """True if it may still be importing modules."""
        return False

    def interrupt(self) -> None:
        """Ends the wait for its answer, because it hangs."""
        self.interrupted = True

    @abstractmethod
    def begin(self, request: Command) -> None:
        """Sends a request, which it executes at once. `finish` must follow."""

    def finish(self) -> Answer:
        """Waits for the answer to the last request.

        Raises StepFailed if the process has died.
        """
        answer = self._await_answer()
        self.env_steps, self.unsent = answer.env_steps, answer.unsent
        self.restarted_episodes, self.seconds = answer.restarted_episodes, answer.seconds
        return answer

    @abstractmethod
    def _await_answer(self) -> Answer: ...

    @abstractmethod
    def close(self) -> None:
        """Ends the actor."""

    def _call(self, request: Command) -> Answer:
        self.begin(request)
        answer = self.finish()
        answer.raise_failure()
        return answer

    def flush(self) -> None:
        """Sends the buffered transitions."""
        for sent in self._call(Command(flush=True)).messages:
            for message in sent:
                self._send(message)

    def state_dict(self) -> State:
        """Returns the state of the actor."""
        state = self._call(Command(state=True)).state
        assert state is not None
        return state


class LockstepWorker(Worker[DistantActor]):
    """A worker whose actor steps in another thread or process, and its `MonitoredPart`."""

    def begin(self, steps: int) -> None:
        """Lets the actor take this number of steps, building it first if necessary."""
        (self._actor or self._start_incarnation()).begin(Command(steps=steps))
        self.heartbeat.waiting_for = None

    def finish(self) -> Answer:
        """Waits until the actor has taken its steps or has failed."""
        assert self._actor is not None
        try:
            return self._actor.finish()
        except StepFailed as error:
            return Answer(failure=str(error))
        except Stalled as error:
            return Answer(failure=error)
        finally:
            self.heartbeat.waiting_for = "its turn"

    @property
    def name(self) -> str:
        return self.heartbeat.name

    @property
    def thread_id(self) -> int | None:
        return None if self._actor is None else self._actor.thread_id

    @property
    def beats(self) -> int:
        return self.heartbeat.beats + (0 if self._actor is None else self._actor.beats)

    @property
    def waiting_for(self) -> str | None:
        if self._actor is not None and self._actor.starting:
            return "its process to start"
        return self.heartbeat.waiting_for

    def restart(self) -> bool:
        actor = self._actor
        if actor is None or actor.interrupted:
            return False
        actor.interrupt()
        return True


class LockstepActorManager(ReproducibleActorManager[LockstepWorker]):
    """The base class of managers whose actors step at the same time, but only within `receive`."""

    worker_type = LockstepWorker

    def __init__(
        self, config: ActorManagerConfig, *, make_actor: ActorFactory, clock: Clock
    ) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._steps = 1  # steps of each actor in the last call of `receive_all`
        self._step_s = 0.0  # seconds per step in that call

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.heartbeat.waiting_for = "its turn"
        return self

    def heartbeats(self) -> Sequence[MonitoredPart]:
        return self._workers

    def receive_all(self, timeout_s: float) -> list[Experience]:
        began_s, steps = self._clock.now_s(), self._choose_steps(timeout_s)
        if steps == 1:
            arrived = self.receive()
        else:
            self._run(self._in_turn(), steps)
            arrived = self.undelivered()
        self._steps, self._step_s = steps, (self._clock.now_s() - began_s) / steps
        return arrived

    def _choose_steps(self, timeout_s: float) -> int:
        """Returns how many steps all actors take before the learner continues.

        Serial actors would certainly take as many, because a step makes at most one sample per
        environment. The number at most doubles, because a request to stop takes effect later.
        """
        used = max(self._collected, self._limiter.granted)
        certain = (self._limiter.permitted - used) / self._make_actor.num_envs / len(self._workers)
        fitting = timeout_s / self._step_s if self._step_s else math.inf
        return max(1, int(min(certain, fitting, 2 * self._steps)))

    def _step_all(self) -> bool:
        chosen = [worker for worker in self._in_turn() if self._acquire(worker)]
        self._run(chosen, 1)
        return bool(chosen)

    def _run(self, workers: Sequence[LockstepWorker], steps: int) -> None:
        """Lets these actors step at the same time, and takes their messages in order."""
        begun = [worker for worker in workers if self._begin(worker, steps)]
        answers = [worker.finish() for worker in begun]
        for number in range(steps):
            for worker, answer in zip(begun, answers, strict=True):
                if number < len(answer.samples):
                    self._acquire(worker)  # again after the first of several steps
                    for message in answer.messages[number]:
                        self._send(message)
                    worker.collected += answer.samples[number]
        for worker, answer in zip(begun, answers, strict=True):
            self._run_guarded(worker, answer.raise_failure)

    def _begin(self, worker: LockstepWorker, steps: int) -> bool:
        try:
            worker.begin(steps)
        except (OSError, EOFError):  # a limit of processes or files is reached
            self._recover(worker)
            return False
        return True

    def _save_actor(self, worker: LockstepWorker) -> SavedActor:
        try:
            return worker.saved_exactly()
        except (StepFailed, Stalled):  # the next step replaces it, or the run ends
            return worker.saved(worker.sent)

    def _flush(self, worker: LockstepWorker) -> None:
        try:
            worker.flush()
        except (StepFailed, Stalled) as error:
            log.warning("%s failed while stopping:\n%s", worker.name, error)
