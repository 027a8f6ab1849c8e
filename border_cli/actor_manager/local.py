"""What the managers that keep their actors in this process share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from border_cli.actor_manager.actor import Actor
from border_cli.actor_manager.actor_record import ManagerRecord
from border_cli.actor_manager.channel import Closed
from border_cli.actor_manager.gate import Gate
from border_cli.actor_manager.proxy import Parcel, Send
from border_cli.actor_manager.weights import WeightSlot
from border_cli.actor_manager.worker import Worker
from border_cli.core.config import ActorManagerConfig
from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import Clock
from border_cli.core.types import Beat, Experience, Snapshot, State


class MakeActor(Protocol):
    """Builds one life of one actor, in the thread that calls it."""

    def __call__(
        self,
        config: ActorManagerConfig,
        actor_id: int,
        life: int,
        *,
        send: Send,
        weights: WeightSlot,
        resumed: State | None,
        beat: Beat,
    ) -> Actor: ...


class LocalActorManager(ActorManager):
    """Owns the gate, the weight slot and one worker per actor; not who calls the workers."""

    def __init__(self, config: ActorManagerConfig, *, make_actor: MakeActor, clock: Clock) -> None:
        self.config = config
        self._gate = Gate(burst=config.n_buffer)
        self._weights = WeightSlot()
        self._clock = clock
        self._before = ManagerRecord.fresh(config.num_actors)
        self._workers = [
            Worker(
                actor_id,
                partial(self._make, make_actor),
                max_restarts=config.max_restarts,
                clock=clock,
            )
            for actor_id in range(config.num_actors)
        ]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._before = ManagerRecord.load(state, self.config.num_actors)
        for worker, record in zip(self._workers, self._before.actors, strict=True):
            worker.load(record)
        self._gate.resume(self._before.leased)

    def _make(
        self, make_actor: MakeActor, actor_id: int, life: int, resumed: State | None
    ) -> Actor:
        def beat() -> bool:
            self._workers[actor_id].heartbeat.beat()
            return not self._gate.closed

        actor = make_actor(
            self.config,
            actor_id,
            life,
            send=self._send,
            weights=self._weights,
            resumed=resumed,
            beat=beat,
        )
        if resumed is not None and self._gate.closed:  # it may have been cut short on its way
            actor.close()
            raise Closed
        return actor

    def _send(self, parcel: Parcel) -> float:
        worker = self._workers[parcel.actor_id]
        waited_s = self._put(worker, parcel.experience())
        worker.delivered(parcel.rows)
        return waited_s

    @abstractmethod
    def _put(self, worker: Worker, message: Experience) -> float:
        """Takes a message of the worker on its way; returns the seconds it waited for room."""

    def _bury(self, worker: Worker) -> float:
        """Handles the exception under way: gives its samples back; returns the pause due now."""
        lost, delay_s = worker.failed()
        self._gate.give_back(worker.balance + lost)
        worker.balance = 0
        return delay_s

    def _pause(self, worker: Worker, delay_s: float) -> None:
        """Waits before a new life; raises `Closed` at once when the gate closes."""
        with worker.heartbeat.waiting("its restart"):
            self._gate.wait_closed(delay_s)

    def publish(self, snapshot: Snapshot) -> None:
        self._weights.publish(snapshot)

    def permit(self, samples_total: float) -> None:
        self._gate.permit(samples_total)

    def stats(self) -> list[ActorStats]:
        return [worker.stats for worker in self._workers]

    def heartbeats(self) -> list[Heartbeat]:
        return [worker.heartbeat for worker in self._workers]
