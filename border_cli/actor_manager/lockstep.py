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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from border_cli.actor_manager.actor import (
    NO_COUNTS,
    Actor,
    ActorCounts,
    ActorFactory,
    Message,
    Send,
)
from border_cli.actor_manager.record import SavedActor
from border_cli.actor_manager.serial import ReproducibleActorManager
from border_cli.actor_manager.worker import StepFailed, Worker
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, State
from border_cli.errors import BadStep, Stalled
from border_cli.settings.run import ActorManagerConfig

log = logging.getLogger(__name__)

RECHECK_S: Final = 0.5  # seconds between two checks whether an actor has ended or hangs
NO_LOCK: Final = nullcontext()
NO_STEP: Final = "made no step for trainer.stall_timeout_s"

Request: TypeAlias = int | str  # number of steps, FLUSH (send buffered samples), or STATE
FLUSH: Final = "flush"
STATE: Final = "state"


@dataclass(kw_only=True)
class Answer:
    """The response of an actor to a request, or to one step of it."""

    samples: int = 0  # transitions made
    messages: list[Message] = field(default_factory=list)  # messages sent
    state: State | None = None
    counts: ActorCounts = NO_COUNTS
    failure: Exception | None = None  # the last response of an actor that has failed

    def raise_failure(self) -> None:
        """Raises the failure of the actor, if there is one."""
        if self.failure is not None:
            raise self.failure


class ActorServer:
    """Answers the requests of the learner with one actor; owned by the actor's thread or process.

    The first request builds the actor with `make(send=…)`. It is built and stepped within `lock`.
    """

    def __init__(
        self, make: Callable[..., Actor], lock: AbstractContextManager[object] = NO_LOCK
    ) -> None:
        self._make, self._lock = make, lock
        self._actor: Actor | None = None
        self._sent: list[Message] = []

    def _send(self, message: Message) -> float:
        self._sent.append(message)
        return 0.0

    def answers(self, request: Request) -> Iterator[Answer]:
        """Executes a request; yields one answer per step. The last may contain an error."""
        try:
            if self._actor is None:
                with self._lock:
                    self._actor = self._make(send=self._send)
                self._actor.bind_thread()
            for _ in range(request if isinstance(request, int) else 1):
                yield self._execute(self._actor, request)
        except BadStep as error:
            yield Answer(failure=error)
        except (Exception, SystemExit):
            yield Answer(failure=StepFailed(traceback.format_exc()))

    def _execute(self, actor: Actor, request: Request) -> Answer:
        answer = Answer()
        if request == STATE:
            answer.state = actor.state_dict()
        elif request == FLUSH:
            actor.flush()
        else:
            with self._lock:
                answer.samples = actor.step()
        answer.messages, self._sent = self._sent, []
        answer.counts = actor.counts
        return answer

    def close(self) -> None:
        """Closes the environments."""
        if self._actor is not None:
            self._actor.close()


class Interruptible(Heartbeat):
    """The heartbeat of an actor for which the learner waits; the watchdog can end this wait."""

    interrupted = False

    def restart(self) -> bool:
        is_first, self.interrupted = not self.interrupted, True
        return is_first


class DistantActor(ABC):
    """The learner's view of an actor in another thread or process; owned by the learner's thread.

    Once its heartbeat is interrupted, `finish` ends the actor unless an answer has arrived.
    """

    def __init__(self, heartbeat: Interruptible, send: Send) -> None:
        self._heartbeat, self._send = heartbeat, send
        heartbeat.interrupted = False
        self.counts = NO_COUNTS

    @abstractmethod
    def begin(self, request: Request) -> None:
        """Sends a request, which the actor executes at once. One call of `finish` must follow for
        each answer."""

    def finish(self) -> Answer:
        """Waits for the next answer. Its failure is StepFailed if the process has died or hung, and
        Stalled if the thread hangs."""
        try:
            answer = self._await_answer()
        except (StepFailed, Stalled) as error:
            return Answer(failure=error)
        self._heartbeat.interrupted = False
        self.counts = answer.counts if answer.failure is None else self.counts
        return answer

    @abstractmethod
    def _await_answer(self) -> Answer: ...

    @abstractmethod
    def close(self) -> None:
        """Ends the actor."""

    def _call(self, request: Request) -> Answer:
        self.begin(request)
        answer = self.finish()
        answer.raise_failure()
        return answer

    def flush(self) -> None:
        """Sends the buffered transitions."""
        for message in self._call(FLUSH).messages:
            self._send(message)

    def state_dict(self) -> State:
        """Returns the state of the actor."""
        state = self._call(STATE).state
        assert state is not None
        return state


class LockstepWorker(Worker[DistantActor]):
    """A worker whose actor steps in another thread or process."""

    heartbeat: Interruptible
    heartbeat_type = Interruptible

    def begin(self, steps: int) -> None:
        """Lets the actor take this number of steps, building it first if necessary."""
        (self._actor or self._start_incarnation()).begin(steps)
        self.heartbeat.waiting_for = None

    def finish(self) -> Answer:
        """Waits for the result of the next step."""
        assert self._actor is not None
        answer = self._actor.finish()
        self.collected += answer.samples
        return answer

    def flush(self) -> None:
        try:
            super().flush()
        except (StepFailed, Stalled) as error:
            # The text, because a log record with the error itself would keep weights in memory.
            log.warning("%s failed while sending its samples:\n%s", self.heartbeat.name, str(error))

    def saved_exactly(self) -> SavedActor:
        try:
            return super().saved_exactly()
        except (StepFailed, Stalled):  # the next step replaces the actor, or ends the run
            return self.saved(self.sent)


class LockstepActorManager(ReproducibleActorManager[LockstepWorker]):
    """The base class of managers whose actors step at the same time, but only within `receive`."""

    worker_type = LockstepWorker

    def __init__(
        self, config: ActorManagerConfig, *, make_actor: ActorFactory, clock: Clock
    ) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._steps = 1  # steps of each actor in the last call of `receive_all`
        self._step_s = 0.0  # seconds per step in that call

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

        Serial actors would take at least as many, because a step for a rollout makes at most one
        sample per environment. The number at most doubles, because a request to stop waits for it.
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
        not_begun = {worker: answer for worker in workers if (answer := self._begin(worker, steps))}
        begun = [worker for worker in workers if worker not in not_begun]
        failed: dict[LockstepWorker, Answer] = {}
        for left in reversed(range(steps)):
            for worker in begun:
                if worker in failed:
                    continue
                self._acquire(worker)  # a grant for this step, if `_step_all` has not acquired it
                answer = worker.finish()
                for message in answer.messages:
                    self._send(message)
                if answer.failure is not None:
                    failed[worker] = answer
                if not left or worker in failed:
                    worker.heartbeat.waiting_for = "its turn"
        if failed:
            log.warning("this run is no longer bit-reproducible")
        for worker, answer in (not_begun | failed).items():
            self._run_guarded(worker, answer.raise_failure)

    def _begin(self, worker: LockstepWorker, steps: int) -> Answer | None:
        try:
            worker.begin(steps)
        except (OSError, EOFError):  # a limit of processes or files is reached
            # Raised once the others have finished, so that their answers are not lost.
            return Answer(failure=StepFailed(traceback.format_exc()))
        return None
