"""All actors in the caller's thread, one after another."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from types import TracebackType
from typing import Self

from border_cli.actor_manager.local import LocalActorManager, MakeActor
from border_cli.actor_manager.worker import Worker
from border_cli.core.clock import Clock
from border_cli.core.config import ActorManagerConfig
from border_cli.core.types import Experience, Metrics


class SerialActorManager(LocalActorManager):
    """`receive` lets every actor step once; two runs with one seed are the same to the bit.

    `order` (of actor ids, repeated for ever) replaces the turn of all actors, one id per turn: a
    way to try schedules that threads might take.
    """

    def __init__(
        self,
        config: ActorManagerConfig,
        *,
        make_actor: MakeActor,
        clock: Clock,
        order: Iterable[int] | None = None,
    ) -> None:
        super().__init__(config, make_actor=make_actor, clock=clock)
        self._order = cycle(order) if order is not None else None
        self._messages: list[Experience] = []
        self._first = 0  # actor id

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
        self._gate.close()
        for worker in self._workers:
            worker.close()

    def _put(self, worker: Worker, message: Experience) -> float:  # noqa: ARG002 - always room
        self._messages.append(message)
        return 0.0

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:  # noqa: ARG002 - never waits
        if self._order is None:
            moved = self._round()
        else:
            moved = self._turn(self._workers[next(self._order)])
        if not moved:  # everybody is held back: nobody may sit on samples
            for worker in self._workers:
                worker.flush()
        messages, self._messages = self._messages, []
        return messages

    def _round(self) -> bool:
        """One turn each; whoever came first when the permission ran out comes last next time."""
        first, moved = self._first, False
        for offset in range(len(self._workers)):
            actor_id = (first + offset) % len(self._workers)
            if self._turn(self._workers[actor_id]):
                moved = True
                self._first = (actor_id + 1) % len(self._workers)
        return moved

    def _turn(self, worker: Worker) -> bool:
        if worker.balance <= 0:
            worker.balance += self._gate.try_lease(1 - worker.balance)
        if worker.balance <= 0:
            return False
        with worker.heartbeat.working():
            try:
                worker.step()
            except (Exception, SystemExit):
                self._rebuild_later(worker)
        return True

    def stop(self) -> list[Experience]:
        if not self._gate.closed:
            self._gate.close()
            for worker in self._workers:
                worker.flush()
                worker.close()
        messages, self._messages = self._messages, []
        return messages

    def gauges(self) -> Metrics:
        return {"async/queue_fill": 0.0}
