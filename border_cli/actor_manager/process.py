"""One supervised process per actor: environments that cost CPU run beside the learner."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from border_cli.actor_manager.actor_record import ManagerRecord
from border_cli.actor_manager.arrivals import Arrivals
from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.factory import ActorFactory
from border_cli.actor_manager.lane import CLOSING, LEARNER_WAITS, Lane
from border_cli.actor_manager.leases import Leases
from border_cli.actor_manager.notes import LAST, ask
from border_cli.actor_manager.post import Post
from border_cli.actor_manager.process_record import record_of, stats_of
from border_cli.actor_manager.remote import Recipe, run
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.actor_manager.supervisor import Supervisor
from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.stop import Pulse
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, Snapshot, State
from border_cli.process.bell import Bell
from border_cli.process.child_process import ChildProcess
from border_cli.process.memory import fence
from border_cli.process.recipe import dump
from border_cli.process.start import start_context

RING_SHARES = 4  # messages of `n_buffer` rows that may wait for the learner, per actor
KILLED_S = 5.0  # within which killed processes are gone
LOOK_AGAIN_S = 1.0


class ProcessActorManager(ActorManager):
    """Runs N actors between `__enter__` and `__exit__`; no process of them outlives the block.

    The learner's thread calls every method and reads the rows where the actors wrote them; what it
    received is valid until its next `receive`. A thread of the manager's supervises the processes:
    it touches neither rows nor weights.
    """

    def __init__(self, config: ProcessConfig, *, make_actor: ActorFactory, clock: Clock) -> None:
        self.config = config
        self._make_actor = make_actor
        self._clock = clock
        self._bell = Bell()
        spec, actors = make_actor.env_factory.spec, range(config.num_actors)
        capacity = RING_SHARES * config.n_buffer
        returns = make_actor.returns_gamma is not None
        self._lanes = [
            Lane(spec, capacity=capacity, learner_bell=self._bell, returns=returns) for _ in actors
        ]
        self._weights = SharedWeightSlot(make_actor.weight_forms)
        self._leases = Leases(self._lanes, config.n_buffer)
        self._posts = [
            Post(actor_id, self._lanes[actor_id], config.max_restarts) for actor_id in actors
        ]
        self._arrivals = Arrivals(self._posts)
        self._before = ManagerRecord.fresh(config.num_actors)  # what this attempt begins with
        self._settled: ManagerRecord | None = None
        self._question = 0
        self._supervisor = Supervisor(
            self._posts, start_life=self._start_life, learner_bell=self._bell, clock=clock
        )
        self._stopped = False

    def __enter__(self) -> Self:
        try:
            self._recipe = dump("actor_manager=process", self._make_actor.imports, self._make_actor)
            self._context = start_context(
                self.config.start_method, [__name__, *sorted(_modules(self._make_actor))]
            )
            self._supervisor.start()
        except BaseException:  # no `with` block begins, so nobody else would clean up
            self.stop()
            raise
        return self

    def _start_life(self, actor_id: int, life: int) -> ChildProcess:
        before = self._before.actors[actor_id]
        recipe = Recipe(
            config=self.config,
            make_actor=self._recipe,
            actor_id=actor_id,
            life=before.next_life + life,
            resumed=before.actor if life == 0 else None,
            lane=self._lanes[actor_id],
            weights=self._weights,
        )
        return ChildProcess(self._context, f"actor {actor_id}", run, recipe, nice=self.config.nice)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if exc_type is None and self._supervisor.crash:  # never hide the error on its way
            raise self._supervisor.crash

    def publish(self, snapshot: Snapshot) -> None:
        self._weights.publish(snapshot)

    def permit(self, samples_total: float) -> None:
        self._leases.permit(samples_total)

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        self._arrivals.release()
        arrived = self._arrivals.take()
        if arrived:
            return arrived
        if self._supervisor.crash:
            raise self._supervisor.crash
        if timeout_s > 0:
            return self._wait(timeout_s)
        return arrived

    def _wait(self, timeout_s: float) -> list[Experience]:
        """Sleeps until something arrives; whoever needs a lease for that gets one."""
        deadline_s = self._clock.now_s() + timeout_s
        with self._arrivals.awaited():
            while not self._arrivals.has_news:
                self._leases.share_out(urgent=True)
                left_s = deadline_s - self._clock.now_s()
                if left_s <= 0 or self._supervisor.crash:
                    break
                self._bell.wait(left_s)
        return self._arrivals.take()

    def settle(self, timeout_s: float) -> list[Experience]:
        if self._stopped:
            return []
        deadline_s = self._clock.now_s() + timeout_s
        self._arrivals.release()
        self._question += 1
        arrived: list[Experience] = []
        with self._arrivals.awaited():
            for lane in self._lanes:
                ask(lane, self._question)
            while True:
                waiting = self._arrivals.may_answer(self._question)
                arrived += self._arrivals.take_copies(self._question)
                left_s = deadline_s - self._clock.now_s()
                if not waiting or left_s <= 0:
                    break
                self._bell.wait(min(left_s, LOOK_AGAIN_S))
        self._settled = self._record(self._question)
        return arrived

    def state_dict(self) -> State:
        return (self._settled or self._record(None)).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._before = ManagerRecord.load(state, self.config.num_actors)
        for post, record in zip(self._posts, self._before.actors, strict=True):
            post.resume(record)
        self._leases.resume(self._before.samples)

    def _record(self, question: int | None) -> ManagerRecord:
        now_s = self._clock.now_s()
        return self._before.after(
            [
                record_of(post, reader, question, now_s)
                for post, reader in zip(self._posts, self._arrivals.readers, strict=True)
            ]
        )

    def stop(self) -> list[Experience]:
        if self._stopped:
            return []
        self._supervisor.close()
        for lane in self._lanes:
            lane.learner[CLOSING] = 1
            lane.learner[LEARNER_WAITS] = 1
            fence()
            lane.bell.ring()
        arrived = self._drain(self.config.join_timeout_s)
        if self._supervisor.running:
            self._supervisor.kill()
            arrived += self._drain(KILLED_S + len(self._posts))  # each shows its stack first
        self._supervisor.join(KILLED_S)
        self._settled = self._record(LAST)
        for lane in self._lanes:
            lane.close()
        self._weights.close()
        self._bell.close()
        self._stopped = True  # only now: the next call completes one that was interrupted
        return arrived

    def _drain(self, timeout_s: float) -> list[Experience]:
        """Copies of what arrives until all processes have ended."""
        deadline_s = self._clock.now_s() + timeout_s
        arrived: list[Experience] = []
        while True:
            running = self._supervisor.running  # what it wrote before it ended is taken below
            arrived += self._arrivals.take_copies()
            left_s = deadline_s - self._clock.now_s()
            if not running or left_s <= 0:
                return arrived
            self._bell.wait(min(left_s, 0.05))

    def stats(self) -> list[ActorStats]:
        now_s = self._clock.now_s()
        return [
            stats_of(post, reader, now_s)
            for post, reader in zip(self._posts, self._arrivals.readers, strict=True)
        ]

    def heartbeats(self) -> Sequence[Pulse]:
        return self._posts

    def gauges(self) -> Metrics:
        return {"async/queue_fill": self._arrivals.fill}


def _modules(make_actor: ActorFactory) -> set[str]:
    """Where the parts of an actor come from: worth importing once for all processes."""
    policy = getattr(make_actor.policy_factory, "func", make_actor.policy_factory)  # of a partial
    parts = (make_actor.env_factory, policy)
    names = {getattr(part, "__module__", type(part).__module__) for part in parts}
    return {name for name in names if name != "__main__" and name in sys.modules}
