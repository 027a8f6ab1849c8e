"""An actor manager that steps all actors in the caller's thread, reproducible to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from border_cli.actor_manager.actor import ActorFactory, Message
from border_cli.actor_manager.worker import LocalActorManager, Worker
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, State
from border_cli.settings.run import ActorManagerConfig


class SerialActorManager(LocalActorManager):
    """A manager that steps its actors in turn; runs with one seed are bit-identical.

    `receive` steps each actor once. With a timeout, it continues until all permitted samples are
    collected or the time is over, which does not change the result of the run.
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
            worker.heartbeat.claim()
            worker.heartbeat.waiting_for = "its turn"
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        if not self._step_all():  # no actor has a grant left, so none may hold samples back
            for worker in self._workers:
                self._run_guarded(worker, worker.flush_saved)
        elif timeout_s > 0:
            deadline_s = self._clock.now_s() + timeout_s
            while self._collected < self._limiter.permitted and self._clock.now_s() < deadline_s:
                self._step_all()
        return self.undelivered()

    @property
    def _collected(self) -> int:
        """Samples collected and not lost in all attempts."""
        return self._saved.samples + sum(worker.collected for worker in self._workers)

    def undelivered(self) -> list[Experience]:
        messages, self._messages = self._messages, []
        return messages

    def _step_all(self) -> bool:
        """Steps each actor that gets a grant; the next call starts after the last of them."""
        first, stepped = self._first, False
        for offset in range(len(self._workers)):
            actor_id = (first + offset) % len(self._workers)
            if self._step(self._workers[actor_id]):
                stepped = True
                self._first = (actor_id + 1) % len(self._workers)
        return stepped

    def _step(self, worker: Worker) -> bool:
        if worker.collected >= worker.granted:
            worker.granted += self._limiter.try_acquire(1 - worker.budget)
        if worker.collected >= worker.granted:
            return False
        self._run_guarded(worker, worker.step)
        return True

    def _run_guarded(self, worker: Worker, act: Callable[[], object]) -> None:
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
