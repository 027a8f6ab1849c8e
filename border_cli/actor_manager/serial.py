"""All actors in the caller's thread, one after another, reproducible to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from border_cli.actor_manager.actor import ActorFactory, Message
from border_cli.actor_manager.worker import LocalActorManager, Worker
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, State
from border_cli.settings.run import ActorManagerConfig


class SerialActorManager(LocalActorManager):
    """`receive` lets every actor step once; two runs with one seed are the same to the bit.

    `order` (of actor ids, repeated for ever) replaces the turn of all actors, one id per turn: a
    way to try schedules that threads might take.
    """

    reproducible = True

    def __init__(
        self,
        config: ActorManagerConfig,
        *,
        make_actor: ActorFactory,
        clock: Clock,
        order: Sequence[int] | None = None,
    ) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._order = order
        self._messages: list[Experience] = []
        self._first = 0  # actor id, or how many turns of the order were taken
        self._end: State | None = None  # the state at the stop, before anything was flushed

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

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:  # noqa: ARG002 - never waits
        if not self._limiter.is_open:
            return []
        moved = self._round() if self._order is None else self._next_of(self._order)
        if not moved:  # all are held back: none may keep samples that it has gathered
            for worker in self._workers:
                self._attempt(worker, worker.flush_saved)
        return self.undelivered()

    def undelivered(self) -> list[Experience]:
        messages, self._messages = self._messages, []
        return messages

    def _next_of(self, order: Sequence[int]) -> bool:
        actor_id = order[self._first % len(order)]
        self._first += 1
        return self._turn(self._workers[actor_id])

    def _round(self) -> bool:
        """One turn each; the actor that was first when the permission ran out is last next time."""
        first, moved = self._first, False
        for offset in range(len(self._workers)):
            actor_id = (first + offset) % len(self._workers)
            if self._turn(self._workers[actor_id]):
                moved = True
                self._first = (actor_id + 1) % len(self._workers)
        return moved

    def _turn(self, worker: Worker) -> bool:
        if worker.made >= worker.granted:
            worker.granted += self._limiter.try_acquire(1 - worker.budget)
        if worker.made >= worker.granted:
            return False
        self._attempt(worker, worker.step)
        return True

    def _attempt(self, worker: Worker, act: Callable[[], object]) -> None:
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
        """Before anything is flushed: a resumed run continues as if there had been no stop."""
        if self._end is None:
            self._end = self.state_dict()
            self._limiter.close()

    def state_dict(self) -> State:
        if self._end is not None:
            return self._end
        actors = [worker.saved_exactly() for worker in self._workers]
        return self._saved.after(actors, first=self._first).state_dict()

    def gauges(self) -> Metrics:
        return {"async/queue_fill": 0.0}
