"""An actor manager with one supervised process per actor, for CPU-intensive environments.

By default, Python's fork server imports the modules of all actors once (`spawn` if unavailable).
Actor processes are forked from it and receive picklable arguments, including the registration of
the environment's id. They ignore Ctrl-C and SIGTERM, because the learner stops them, and exit when
their parent exits for any reason. They run at a lower priority (`actor_manager.nice`), so that
sampling only uses CPU time that the learner leaves free, have one BLAS thread, and log through the
parent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from border_cli.actor_manager.actor import ActorFactory, copy_experience
from border_cli.actor_manager.actor_process import run
from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.message_ring import MessageReader
from border_cli.actor_manager.record import SavedActors
from border_cli.actor_manager.shared_channel import CLOSING, LEARNER_WAITS, SharedChannel
from border_cli.actor_manager.shared_rate_limiter import SharedRateLimiter
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.actor_manager.supervisor import ActorHandle, Supervisor
from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.stop import MonitoredPart
from border_cli.core.timing import Clock
from border_cli.core.types import Experience, Metrics, Snapshot, State
from border_cli.system.child_process import ChildProcess
from border_cli.system.shared_memory import WakePipe, fence
from border_cli.system.start import modules_of_recipe, pack, start_context

MESSAGES_PER_RING = 4  # messages of `n_buffer` rows per actor that may wait for the learner
KILL_TIMEOUT_S = 5.0  # seconds to wait for killed processes to exit


class Receiver:
    """The reader of all actors' messages, in order of their ids; owned by the learner's thread."""

    def __init__(self, handles: Sequence[ActorHandle]) -> None:
        self._channels = [handle.channel for handle in handles]
        self.readers = [MessageReader(handle.channel.ring) for handle in handles]
        self._unreleased = False

    @property
    def has_news(self) -> bool:
        """True if there are unread messages."""
        return any(reader.has_news for reader in self.readers)

    @property
    def fill(self) -> float:
        """Fraction of the space in use, between 0 and 1."""
        return sum(channel.ring.fill for channel in self._channels) / len(self._channels)

    def take(self) -> list[Experience]:
        """Returns all unread messages; they stay readable until `release`."""
        arrived: list[Experience] = []
        for reader in self.readers:
            if reader.has_news:
                arrived += reader.take()
        self._unreleased |= bool(arrived)
        return arrived

    def release(self) -> None:
        """Frees the space of all messages read."""
        if self._unreleased:
            self._unreleased = False
            for channel, reader in zip(self._channels, self.readers, strict=True):
                channel.release(reader)

    def set_waiting(self, waiting: int) -> None:
        """Sets whether the actors wake the learner when they write a message (1 or 0)."""
        for channel in self._channels:
            channel.learner[LEARNER_WAITS] = waiting
        fence()  # later writes wake the learner; earlier ones are visible to `has_news`


class ProcessActorManager(ActorManager):
    """A manager that runs one process per actor; no process outlives the `with` block.

    The learner's thread calls every method and reads transitions from shared memory without
    copying, so they are valid only until the next `receive`. The manager's own thread supervises
    the processes and accesses neither transitions nor weights.
    """

    def __init__(self, config: ProcessConfig, *, make_actor: ActorFactory, clock: Clock) -> None:
        self.config = config
        self._make_actor = make_actor
        self._clock = clock
        self._pipe = WakePipe()
        spec, actors = make_actor.env_factory.spec, range(config.num_actors)
        capacity = MESSAGES_PER_RING * config.n_buffer
        returns = make_actor.returns_gamma is not None
        self._channels = [
            SharedChannel(
                spec,
                capacity=capacity,
                learner_pipe=self._pipe,
                extras=make_actor.extras,
                returns=returns,
            )
            for _ in actors
        ]
        self._weights = SharedWeightSlot(make_actor.weight_forms)
        self._limiter = SharedRateLimiter(self._channels, config.n_buffer)
        self._handles = [
            ActorHandle(actor_id, self._channels[actor_id], config.max_restarts, clock)
            for actor_id in actors
        ]
        self._receiver = Receiver(self._handles)
        self._saved = SavedActors.fresh(config.num_actors)  # state at the start of this attempt
        self._supervisor = Supervisor(
            self._handles,
            start_incarnation=self._start_incarnation,
            learner_pipe=self._pipe,
            clock=clock,
        )
        self._stopped = False

    def __enter__(self) -> Self:
        self._packed = pack("actor_manager=process", self._make_actor.imports, self._make_actor)
        modules = modules_of_recipe(self._make_actor) - {"__main__"}  # preloaded modules
        self._context = start_context(self.config.start_method, [__name__, *sorted(modules)])
        self._supervisor.start()
        return self

    def _start_incarnation(self, actor_id: int, incarnation: int) -> ChildProcess:
        number = self._handles[actor_id].record.incarnation(incarnation + 1)
        channel, config = self._channels[actor_id], self.config
        arguments = config, self._packed, actor_id, number, channel, self._weights
        return ChildProcess(self._context, f"actor {actor_id}", run, *arguments, nice=config.nice)

    def __exit__(self, exc_type: object, *rest: object) -> None:
        self.stop()
        if exc_type is None and self._supervisor.crash:  # do not hide a propagating exception
            raise self._supervisor.crash

    def publish(self, snapshot: Snapshot) -> None:
        self._weights.publish(snapshot)

    def permit(self, samples_total: float) -> None:
        self._limiter.permit(samples_total)

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        self._receiver.release()
        arrived = self._receiver.take()
        if arrived:
            return arrived
        if self._supervisor.crash:
            raise self._supervisor.crash
        if timeout_s > 0:
            return self._wait(timeout_s)
        return arrived

    def _wait(self, timeout_s: float) -> list[Experience]:
        """Grants the actors the samples they need and sleeps until a message arrives."""
        deadline_s = self._clock.now_s() + timeout_s
        self._receiver.set_waiting(1)
        try:
            while not self._receiver.has_news:
                self._limiter.distribute(urgent=True)
                left_s = deadline_s - self._clock.now_s()
                if left_s <= 0 or self._supervisor.crash:
                    break
                self._pipe.wait(left_s)
        finally:
            self._receiver.set_waiting(0)
        return self._receiver.take()

    def state_dict(self) -> State:
        actors = [
            handle.saved(reader.rows[handle.actor_id])
            for handle, reader in zip(self._handles, self._receiver.readers, strict=True)
        ]
        return self._saved.with_actors(actors).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._saved = SavedActors.load(state, self.config.num_actors).without_states()
        for handle, saved in zip(self._handles, self._saved.actors, strict=True):
            handle.record.earlier = saved
        self._limiter.resume(self._saved.samples)

    def stop(self) -> list[Experience]:
        if self._stopped:
            return []
        self._supervisor.close()
        for channel in self._channels:
            channel.learner[CLOSING] = 1
            channel.learner[LEARNER_WAITS] = 1
            fence()
            channel.pipe.wake()
        arrived = self._drain(self.config.join_timeout_s)
        if self._supervisor.running:
            self._supervisor.kill()
            # One more second per process, because its stack is dumped first.
            arrived += self._drain(KILL_TIMEOUT_S + len(self._handles))
        self._supervisor.join(KILL_TIMEOUT_S)
        for channel in self._channels:
            channel.close()
        self._weights.close()
        self._pipe.close()
        self._stopped = True  # set last, so that a second call completes an interrupted stop
        return arrived

    def _drain(self, timeout_s: float) -> list[Experience]:
        """Returns copies of all messages that arrive until all processes have exited."""
        deadline_s = self._clock.now_s() + timeout_s
        arrived: list[Experience] = []
        while True:
            running = self._supervisor.running  # read first, so that no message is missed
            arrived += map(copy_experience, self._receiver.take())
            self._receiver.release()
            left_s = deadline_s - self._clock.now_s()
            if not running or left_s <= 0:
                return arrived
            self._pipe.wait(min(left_s, 0.05))

    def stats(self) -> list[ActorStats]:
        return [
            handle.stats(reader.rows[handle.actor_id])
            for handle, reader in zip(self._handles, self._receiver.readers, strict=True)
        ]

    def heartbeats(self) -> Sequence[MonitoredPart]:
        return self._handles

    def gauges(self) -> Metrics:
        return {"async/queue_fill": self._receiver.fill}
