"""An actor manager for Ray clusters of one or more machines.

This is the learner's side. It owns the shared memory and one child process, the broker
(`ray/broker.py`), and does not use Ray itself. It reads samples directly from shared memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from border_cli.actor_manager.actor import ActorFactory, copy_experience
from border_cli.actor_manager.message_ring import MessageReader
from border_cli.actor_manager.record import ActorRecord, SavedActor, SavedActors
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.core.interfaces import ActorManager, ActorStats
from border_cli.core.rows import storage_nbytes
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import MonitoredPart
from border_cli.core.timing import ACTOR_SECTIONS, Clock, SharesSince
from border_cli.core.types import Experience, Metrics, Snapshot, State
from border_cli.errors import RunFailed
from border_cli.ray.broker import ENDED, JOINED, BrokerRecipe, run
from border_cli.ray.channel import (
    ACTING,
    BEATS,
    CLOSING,
    DRAINED,
    GRANTED,
    INCARNATIONS,
    LAST,
    LEARNER_WAITS,
    LEAVING,
    LOST,
    NETWORK,
    RESTARTS,
    ROWS,
    SPACE_WAITS,
    SURPLUS,
    BrokerChannel,
)
from border_cli.ray.config import RayConfig
from border_cli.ray.connection import ClusterSettings, find_connection_error, refuse_without_ray
from border_cli.ray.nodes import ClusterNeeds
from border_cli.ray.travel import find_own_modules
from border_cli.settings.run import AUTO, StartMethod
from border_cli.system.child_process import ChildProcess
from border_cli.system.shared_memory import WakePipe, fence
from border_cli.system.start import modules_of_recipe, pack, start_context, wait_for

SETTING: Final = "actor_manager=ray"
NICE: Final = 5  # niceness of the broker; equals the default of actor processes
STARTS_S: Final = 150.0  # seconds for the broker to connect or report an error
ENDS_S: Final = 8.0  # seconds for the broker to disconnect, even on a busy machine
MESSAGES_PER_RING: Final = 4  # messages of `n_buffer` transitions per actor
ROWS_PER_ACTOR: Final = 1024  # rows of the ring per actor, unless RING_NBYTES is exceeded
RING_NBYTES: Final = 128 * 2**20
RECHECK_S: Final = 1.0
GAUGES_S: Final = 1.0  # minimum seconds between two measurements of the network fractions


def ring_rows(config: RayConfig, spec: EnvSpec) -> int:
    """Returns the capacity of the ring in transitions; `RING_NBYTES` limits all above a minimum."""
    num_actors, rows_per_actor = config.most_actors, MESSAGES_PER_RING * config.n_buffer
    max_rows = RING_NBYTES // max(1, storage_nbytes(spec, 1))
    min_rows = max(rows_per_actor, 2 * config.max_in_flight * num_actors)
    return max(min_rows, min(max_rows, num_actors * max(rows_per_actor, ROWS_PER_ACTOR)))


class BrokerPulse(MonitoredPart):
    """The heartbeat of the broker for the watchdog; the broker itself monitors the actors."""

    name = "the Ray broker"
    thread_id = None
    waiting_for = None

    def __init__(self, channel: BrokerChannel) -> None:
        self._channel = channel
        self._looks = 0

    @property
    def beats(self) -> int:
        """A count of the broker's steps. While the broker connects, which has its own deadline,
        the count increases with every read."""
        if not self._channel.broker[BEATS]:
            self._looks += 1
        return self._channel.broker[BEATS] + self._looks

    def restart(self) -> bool:
        return False


class RayActorManager(ActorManager):
    """A manager that runs actors on a cluster; no process outlives the `with` block.

    The learner's thread calls every method, and received data is valid until the next `receive`. A
    thread of the manager listens to the broker.
    """

    def __init__(self, config: RayConfig, *, make_actor: ActorFactory, clock: Clock) -> None:
        self.config = config
        self._make_actor = make_actor
        self._clock = clock
        num_actors, spec = config.most_actors, make_actor.env_factory.spec
        self._channel = BrokerChannel(
            spec,
            capacity=ring_rows(config, spec),
            num_actors=num_actors,
            extras=make_actor.extras,
            returns=make_actor.returns_gamma is not None,
        )
        self._reader = MessageReader(self._channel.ring)
        self._weights = SharedWeightSlot(make_actor.weight_forms)
        self._saved = SavedActors.fresh(num_actors)  # state at the start of this attempt
        self._records = [ActorRecord(actor_id, clock) for actor_id in range(num_actors)]
        self._pulse = BrokerPulse(self._channel)
        self._shares = SharesSince()
        self._gauged_s = clock.now_s()
        self._network: Metrics = {}
        self._permitted = 0.0
        self._last = False
        self._woken_for = -1  # samples granted when the broker was last woken
        self._stopped = False
        self._broker = _Listener(self._channel.learner_pipe, own=config.address is None)

    @property
    def cluster(self) -> ClusterSettings | None:
        """Settings for joining the actors' Ray from another process; None until it is connected."""
        return self._broker.joined

    def __enter__(self) -> Self:
        refuse_without_ray(SETTING)
        try:
            self._broker.start(self._start_broker())
            self._broker.wait_until_ready(STARTS_S)
        except BaseException:  # clean up here, because `__exit__` will not be called
            self.stop()
            self._close()
            raise
        for record in self._records:
            record.begin()
        return self

    def _start_broker(self) -> ChildProcess:
        config, make_actor = self.config, self._make_actor
        modules: Sequence[str] = ()
        if config.address is not None:
            modules = find_own_modules({*make_actor.modules, *modules_of_recipe(make_actor)})
        recipe = BrokerRecipe(
            config=config,
            run_name=make_actor.run_name,
            stall_timeout_s=make_actor.stall_timeout_s,
            make_actor=pack(SETTING, make_actor.imports, make_actor),
            cluster=ClusterSettings(address=config.address, modules=modules),
            needs=self._needs(),
            incarnations=[actor.next_incarnation for actor in self._saved.actors],
            samples=self._saved.samples,
            num_envs=make_actor.num_envs,
            log_level=logging.getLogger().getEffectiveLevel(),
            channel=self._channel,
            weights=self._weights,
        )
        context = start_context(StartMethod.auto, [run.__module__])
        return ChildProcess(context, "Ray", run, recipe, nice=NICE)

    def _needs(self) -> ClusterNeeds:
        config, make_actor = self.config, self._make_actor
        trial, auto = make_actor.trial, config.num_actors == AUTO
        exclusive = config.address is None and not auto
        return ClusterNeeds(
            setting=SETTING,
            resources=config.resources or ({} if exclusive else {"CPU": 1.0}),
            count=1 if auto else config.most_actors,
            trial=None if trial is None else pack(SETTING, make_actor.imports, trial),
        )

    def __exit__(self, exc_type: object, *rest: object) -> None:
        self.stop()
        self._close()
        if exc_type is None and self._broker.crash:  # do not hide a propagating exception
            raise self._broker.crash

    def _close(self) -> None:
        self._channel.learner[LEAVING] = 1
        fence()
        self._channel.pipe.wake()
        self._broker.end(ENDS_S)
        self._channel.close()
        self._weights.close()

    def publish(self, snapshot: Snapshot) -> None:
        self._weights.publish(snapshot)

    def permit(self, samples_total: float) -> None:
        last, channel = samples_total <= self._permitted, self._channel
        if last:
            if self._last:
                return
        else:
            self._permitted = channel.permitted[0] = samples_total
        self._last = last
        channel.learner[LAST] = last
        granted = channel.broker[GRANTED]
        enough = last or samples_total - granted >= self.config.paced_samples
        if enough and granted != self._woken_for:
            self._woken_for = granted
            fence()
            channel.pipe.wake()

    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        if self._reader.release() and self._channel.broker[SPACE_WAITS]:
            fence()
            self._channel.pipe.wake()
        arrived = self._reader.take()
        if arrived:
            return arrived
        if self._broker.crash:
            raise self._broker.crash
        return self._wait(timeout_s) if timeout_s > 0 else arrived

    def _wait(self, timeout_s: float) -> list[Experience]:
        """Sleeps until a message arrives; the broker may issue smaller leases than usual."""
        channel, deadline_s = self._channel, self._clock.now_s() + timeout_s
        channel.learner[LEARNER_WAITS] = 1
        fence()
        if self._permitted - channel.broker[GRANTED] >= 1:
            channel.pipe.wake()
        try:
            while not self._reader.has_news:
                left_s = deadline_s - self._clock.now_s()
                if left_s <= 0 or self._broker.crash:
                    break
                channel.learner_pipe.wait(left_s)
        finally:
            channel.learner[LEARNER_WAITS] = 0
        return self._reader.take()

    def stop(self) -> list[Experience]:
        if self._stopped:
            return []
        self._broker.closing = True
        self._channel.learner[CLOSING] = self._channel.learner[LEARNER_WAITS] = 1
        fence()
        self._channel.pipe.wake()
        deadline_s = self._clock.now_s() + self.config.join_timeout_s + RECHECK_S
        arrived: list[Experience] = []
        while True:
            failed = self._broker.crash is not None or not self._broker.alive
            finished = failed or bool(self._channel.broker[DRAINED])
            arrived += map(copy_experience, self._reader.take())
            if self._reader.release():
                self._channel.pipe.wake()
            left_s = deadline_s - self._clock.now_s()
            if finished or left_s <= 0:
                break
            self._channel.learner_pipe.wait(min(left_s, 0.05))
        for record in self._records:
            record.end()
        self._stopped = True  # set last, so that a second call completes an interrupted stop
        return arrived

    def state_dict(self) -> State:
        actors = [self._save_actor(record) for record in self._records]
        return self._saved.with_actors(actors).state_dict()

    def _save_actor(self, record: ActorRecord) -> SavedActor:
        """Returns an actor for a checkpoint; samples not received by the learner count as lost."""
        stats, arrived = self._read_counters(record.actor_id)
        unreceived = max(0, arrived - stats.samples)
        begun = self._channel.actors[record.actor_id][INCARNATIONS]
        return record.saved(replace(stats, lost_samples=stats.lost_samples + unreceived), begun)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._saved = SavedActors.load(state, self.config.most_actors).without_states()
        for record, saved in zip(self._records, self._saved.actors, strict=True):
            record.earlier = saved
        self._channel.broker[GRANTED] = self._saved.samples

    def stats(self) -> list[ActorStats]:
        return [record.stats(self._read_counters(record.actor_id)[0]) for record in self._records]

    def _read_counters(self, actor_id: int) -> tuple[ActorStats, int]:
        """Returns the counters of an actor in this attempt, and the samples that have arrived.

        Env steps are derived from the arrived and the lost samples, which are read only once. The
        counters are therefore consistent even if the broker writes in the meantime.
        """
        words = self._channel.actors[actor_id]
        arrived, lost = words[ROWS], words[LOST]
        stats = ActorStats(
            actor_id=actor_id,
            env_steps=arrived + lost + words[SURPLUS],
            samples=self._reader.rows[actor_id],
            restarts=words[RESTARTS],
            lost_samples=lost,
            seconds=dict(zip(ACTOR_SECTIONS, self._channel.seconds[actor_id], strict=True)),
        )
        return stats, arrived

    def heartbeats(self) -> Sequence[MonitoredPart]:
        return [self._pulse]

    def gauges(self) -> Metrics:
        now_s = self._clock.now_s()
        if now_s - self._gauged_s >= GAUGES_S:
            self._gauged_s = now_s
            seconds = dict(zip(NETWORK, self._channel.network, strict=True))
            self._network = self._shares.update(seconds)
        fractions = self._network
        return {
            "async/queue_fill": self._channel.ring.fill,
            "async/actors": float(self._channel.broker[ACTING]),
            "time/network/call": fractions.get("call", 0.0),
            "time/network/transfer": fractions.get("transfer", 0.0),
            "time/network/queue": fractions.get("queue", 0.0),
        }


class _Listener:
    """The owner of the broker's process; its thread receives the broker's messages."""

    def __init__(self, learner_pipe: WakePipe, *, own: bool) -> None:
        """`own`: whether the broker starts Ray, which then ends with it."""
        self._learner_pipe = learner_pipe
        self._own = own
        self._child: ChildProcess | None = None
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self.closing = False
        self.crash: Exception | None = None
        self.joined: ClusterSettings | None = None

    def start(self, child: ChildProcess) -> None:
        self._child = child
        self._thread = threading.Thread(target=self._run, args=(child,), name="Ray", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait_until_ready(self, timeout_s: float) -> None:
        """Blocks until the broker is ready; raises its error if it cannot start."""
        if not self._news.wait(timeout_s):
            raise RunFailed(f"{SETTING}: Ray did not start within {timeout_s:g} s")
        if self.crash:
            raise self.crash

    def _run(self, child: ChildProcess) -> None:
        while child.alive:
            wait_for(child.waitables, RECHECK_S)
            self._listen(child)
        traceback = child.reap()
        self._listen(child)
        if self.crash is None:
            self.crash = child.refusal
        if self.crash is None and not self.closing:
            reason = traceback or "its process exited unexpectedly"
            address = self.joined.address if self.joined and not self._own else None
            error = find_connection_error(address, RECHECK_S) if address else None
            cause = "the head node of the Ray cluster is gone" if error else "the Ray broker failed"
            self.crash = RunFailed(
                f"{cause}: {error or reason.strip().rpartition(chr(10))[2]}", f"\n{reason}"
            )
        self._news.set()
        self._learner_pipe.wake()

    def _listen(self, child: ChildProcess) -> None:
        child.listen()
        while child.inbox:
            kind, value = child.inbox.popleft()
            if kind == JOINED:
                self.joined = value
            elif kind == ENDED:
                self.crash = value
                self._learner_pipe.wake()
        if not child.starting:
            self._news.set()

    def end(self, timeout_s: float) -> None:
        """Waits for the broker to exit, and kills it after `timeout_s`."""
        self.closing = True
        if self._thread is None or self._child is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._child.kill()
            self._thread.join(timeout_s)
