"""Actor managers with a fixed order of steps, and the one that steps in the caller's thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

from border_cli.actor_manager.actor import ActorFactory, Message
from border_cli.actor_manager.worker import AnyWorker, LocalActorManager, SteppingWorker
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, State
from border_cli.settings.run import ActorManagerConfig


class ReproducibleActorManager(LocalActorManager[AnyWorker]):
    """The base class of managers whose actors step only within `receive`; messages are ordered.

    Runs with one seed are bit-identical.
    """

    reproducible = True

    def __init__(
        self, config: ActorManagerConfig, *, make_actor: ActorFactory, clock: Clock
    ) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._messages: list[Experience] = []
        self._first = 0  # id of the next actor to step
        self._end: State | None = None  # the state at the stop, before the final flush

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.heartbeat.waiting_for = "its turn"
        return self

    def __exit__(self, exc_type: object, *rest: object) -> None:
        self._save_end()
        for worker in self._workers:
            worker.close()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._first = self._saved.first

    def _send(self, message: Message) -> float:
        self._messages.append(message.experience())
        self._workers[message.actor_id].sent += message.rows
        return 0.0

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:  # noqa: ARG002
        """Lets each actor that gets a grant take one step."""
        if not self._step_all():  # no actor has a grant left, so none may hold samples back
            for worker in self._workers:
                self._run_guarded(worker, worker.flush_saved)
        return self.undelivered()

    @abstractmethod
    def _step_all(self) -> bool:
        """Lets each actor that gets a grant take one step; returns whether there was any."""

    def undelivered(self) -> list[Experience]:
        messages, self._messages = self._messages, []
        return messages

    @property
    def _collected(self) -> int:
        """Samples collected and not lost in all attempts."""
        return self._saved.samples + sum(worker.collected for worker in self._workers)

    def _in_turn(self) -> list[AnyWorker]:
        """Returns all actors; the one after the last that has stepped comes first."""
        return self._workers[self._first :] + self._workers[: self._first]

    def _acquire(self, worker: AnyWorker) -> bool:
        """Returns whether the actor may take a step, after requesting a grant if it needs one."""
        if worker.collected >= worker.granted:
            worker.granted += self._limiter.try_acquire(1 - worker.budget)
        if worker.collected >= worker.granted:
            return False
        self._first = (worker.record.actor_id + 1) % len(self._workers)
        return True

    def _run_guarded(self, worker: AnyWorker, act: Callable[[], object]) -> None:
        with worker.heartbeat.working():
            try:
                act()
            except (Exception, SystemExit):
                self._recover(worker)

    def stop(self) -> list[Experience]:
        if self._end is None:
            self._save_end()
            for worker in self._workers:
                worker.flush()
                worker.close()
        return self.undelivered()

    def _save_end(self) -> None:
        """Saves the state before the final flush, so that a resumed run continues seamlessly."""
        if self._end is None:
            self._end = self.state_dict()
            self._limiter.close()

    def state_dict(self) -> State:
        if self._end is not None:
            return self._end
        actors = [worker.saved_exactly() for worker in self._workers]
        return self._saved.with_actors(actors, first=self._first).state_dict()

    def gauges(self) -> Metrics:
        return {"async/queue_fill": 0.0}


class SerialActorManager(ReproducibleActorManager[SteppingWorker]):
    """A manager that steps its actors in turn, in the caller's thread."""

    worker_type = SteppingWorker

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.heartbeat.claim()
        return super().__enter__()

    def receive_all(self, timeout_s: float) -> list[Experience]:
        arrived, deadline_s = self.receive(), self._clock.now_s() + timeout_s
        while self._collected < self._limiter.permitted and self._clock.now_s() < deadline_s:
            if not self._step_all():
                break
        return arrived + self.undelivered()

    def _step_all(self) -> bool:
        stepped = False
        for worker in self._in_turn():
            if self._acquire(worker):
                stepped = True
                self._run_guarded(worker, worker.step)
        return stepped
