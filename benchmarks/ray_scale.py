"""Samples/s that the learner receives from 1,000 simulated actors, by samples per call.

    python -m benchmarks.ray_scale [--actors 1000] [--rates 10 100 1000] [--samples-per-call 1 …]

The broker with its leases, the shared memory and the learner's side (checks and replay buffer) are
real. Everything behind the broker is simulated: actors that collect `rate` samples per second each
and return rows of the right size, a network with a latency of 0.5 ms each way, and the learner's
link, on which replies queue. A simulated call costs the broker as much CPU time as a Ray call and
its reply, which are measured first (`call_us`; `--call-us` sets it).

`to_offered` is the fraction that arrives of the samples that the actors would collect if they never
waited. `limit` is the bottleneck: the link if it carries over 90 % of its capacity, the broker or
the learner if its process was on a core for over 90 % of the time, otherwise the actors. If
`samples_per_call` is null, the broker chooses.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, cast

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.isolated import call
from benchmarks.table import Reading, emit, make_parser, say, summary
from border_cli.actor_manager.actor import ActorFactory, Message
from border_cli.core.rows import Rows, columns_of, storage_nbytes, transitions_of
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.timing import MonotonicClock
from border_cli.core.types import Snapshot
from border_cli.ray.broker import Broker, BrokerRecipe
from border_cli.ray.calls import ActorReport, ReportKind, Transport
from border_cli.ray.config import RayConfig
from border_cli.ray.connection import ClusterSettings, connect
from border_cli.ray.leases import LeaseSettings
from border_cli.ray.manager import RayActorManager
from border_cli.ray.nodes import ClusterNeeds
from border_cli.ray.remote_actor import CallResult
from border_cli.replay_buffer.uniform import UniformReplayBuffer
from border_cli.settings.run import ReplayBufferConfig, StartMethod
from border_cli.system.child import READY, Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.start import start_context
from border_cli.trainer.intake import Intake
from border_cli.trainer.metrics import Counters, MetricsWindow

LATENCY_S = 0.0005  # one way
SETTLED_S = 8.0
CAPACITY = 100_000
SETTING = "actor_manager"
STORAGE_NBYTES = 2**30


def _box(shape: tuple[int, ...], dtype: str, low: float, high: float) -> BoxSpace:
    return BoxSpace(
        shape=shape, dtype=dtype, low=np.full(shape, low, dtype), high=np.full(shape, high, dtype)
    )


SPECS = {
    "cartpole": EnvSpec("CartPole-v1", _box((4,), "float32", -9, 9), DiscreteSpace(2), 500),
    "ant": EnvSpec(
        "Ant-v5", _box((105,), "float32", -9e9, 9e9), _box((8,), "float32", -1, 1), 1_000
    ),
    "pong": EnvSpec("ALE/Pong-v5", _box((4, 84, 84), "uint8", 0, 255), DiscreteSpace(6), None),
}


class Echo:
    """A Ray actor that returns rows immediately, to measure what a call costs the caller."""

    def __init__(self, samples: int) -> None:
        self._made = _answer(SPECS["cartpole"], samples)

    def prepare(self) -> None:
        """Does nothing: there is nothing to import."""

    def build(self) -> CallResult:
        """Returns an empty answer: there is nothing to build."""
        return CallResult()

    def act(self, *_: Any) -> CallResult:
        """Returns the rows."""
        return self._made


def call_us(calls: int, samples: int) -> Reading:
    """Measures the CPU time of the caller's process for a Ray call and its reply."""
    with connect(ClusterSettings(address=None)):
        from border_cli.ray.transport import RayTransport

        news = threading.Event()
        transport = RayTransport(
            actor=Echo,
            arguments=lambda *_: (samples,),
            name=lambda actor_id, _: f"echo-{actor_id}",
            options={"num_cpus": 0},
            within_s=1.0,
            wake=news.set,
        )
        transport.start(0, 0)
        _drain(transport, news, 2)
        for number in range(8):
            transport.call(0, number, samples, None)
        _drain(transport, news, 8)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        for number in range(calls + 4):
            if number >= 4:
                _drain(transport, news, 1)
            if number < calls:
                transport.call(0, number, samples, None)
        spent_s, elapsed_s = time.process_time() - cpu_s, time.perf_counter() - began_s
    return {"call_us": 1e6 * spent_s / calls, "wall_us": 1e6 * elapsed_s / calls}


def _drain(transport: Transport, news: threading.Event, count: int) -> None:
    while count:
        news.clear()
        while transport.reports and count:
            report = transport.reports.popleft()
            if report.kind is ReportKind.DIED:
                raise RuntimeError(report.value)
            count -= 1
        if count and not news.wait(30.0) and not transport.reports:
            raise TimeoutError("Ray returns nothing")


def _answer(spec: EnvSpec, samples: int, acted_s: float = 1e-9) -> CallResult:
    columns = {name: column.copy() for name, column in Rows.empty(spec, samples).columns.items()}
    message = Message(
        actor_id=0,
        opt_steps=0,
        env_steps=samples,
        parts=[transitions_of(columns)],
        rows=samples,
        episodes=(),
    )
    return CallResult(message=message, acted_s=acted_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The simulated cluster."""

    actors: int
    rate: float  # samples per second of one actor
    gbit_per_s: float  # bandwidth of the learner's link
    call_us: float
    env: str
    samples_per_call: int | None


class SimulatedTransport(Transport):
    """Simulated actors that reply on time; a thread reports the replies as they arrive."""

    def __init__(self, cluster: Cluster, wake: Any) -> None:
        self.reports: deque[ActorReport] = deque()
        self.link_s = 0.0  # seconds for which the link was busy
        self._cluster = cluster
        self._wake = wake
        self._rows = SPECS[cluster.env]
        self._answers: dict[int, CallResult] = {}
        self._free_s = [0.0] * cluster.actors  # times at which actors finish their calls
        self._link_free_s = 0.0
        self._due: list[tuple[float, int, ActorReport]] = []
        self._numbers = 0
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def publish(self, weights: NDArray[np.uint8]) -> None:
        del weights

    def start(self, actor_id: int, incarnation: int) -> None:
        now_s = time.perf_counter()
        self._plan(now_s, ActorReport(ReportKind.PLACED, actor_id, incarnation, "n, process 0"))
        self._plan(now_s, ActorReport(ReportKind.BUILT, actor_id, incarnation, CallResult()))

    def call(self, actor_id: int, lease: int, samples: int, version: int | None) -> None:
        del version
        self._burn(self._cluster.call_us / 2)
        acted_s = samples / self._cluster.rate
        begun_s = max(time.perf_counter() + LATENCY_S, self._free_s[actor_id])
        self._free_s[actor_id] = begun_s + acted_s
        answer = self._made(samples, acted_s)
        assert answer.message is not None
        answer = replace(answer, message=replace(answer.message, actor_id=actor_id))
        self._plan(begun_s + acted_s, ActorReport(ReportKind.RETURNED, actor_id, 0, answer, lease))

    def _made(self, samples: int, acted_s: float) -> CallResult:
        answer = self._answers.get(samples)
        if answer is None:
            answer = _answer(self._rows, samples, acted_s)
            self._answers[samples] = answer
        return answer

    def close(self, actor_id: int) -> None:
        self._plan(time.perf_counter(), ActorReport(ReportKind.CLOSED, actor_id, 0))

    def kill(self, actor_id: int) -> None:
        del actor_id

    def end(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(5.0)

    def _plan(self, at_s: float, report: ActorReport) -> None:
        with self._changed:
            self._numbers += 1
            heapq.heappush(self._due, (at_s, self._numbers, report))
            if self._due[0][1] == self._numbers:
                self._changed.notify()

    def _run(self) -> None:
        """Sends replies over the link one after another, in the order in which actors finish."""
        while True:
            with self._changed:
                while not self._ended and (not self._due or self._waits_s() > 0):
                    self._changed.wait(min(1.0, self._waits_s()) if self._due else 1.0)
                if self._ended:
                    return
                at_s, _, report = heapq.heappop(self._due)
            self._cross(at_s, report)

    def _waits_s(self) -> float:
        return self._due[0][0] - time.perf_counter()

    def _cross(self, at_s: float, report: ActorReport) -> None:
        if report.kind is ReportKind.RETURNED:
            [rows] = report.value.message.parts
            nbytes = sum(column.nbytes for column in columns_of(rows).values())
            crossing_s = 8 * nbytes / (1e9 * self._cluster.gbit_per_s)
            self.link_s += crossing_s
            self._link_free_s = max(self._link_free_s, at_s) + crossing_s
            ahead_s = self._link_free_s + LATENCY_S - time.perf_counter()
            if ahead_s > 0:
                time.sleep(ahead_s)  # later replies cannot overtake
            self._burn(self._cluster.call_us / 2)
        self.reports.append(report)
        self._wake()

    @staticmethod
    def _burn(microseconds: float) -> None:
        until_s = time.thread_time() + 1e-6 * microseconds
        while time.thread_time() < until_s:
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRecipe(BrokerRecipe):
    """The recipe of a broker whose leases may have a fixed size."""

    simulated: Cluster

    def lease_settings(self) -> LeaseSettings:
        settings = super(SimulatedRecipe, self).lease_settings()
        samples = self.simulated.samples_per_call
        if samples is None:
            return settings
        values = {field.name: getattr(settings, field.name) for field in fields(settings)}
        return FixedLeases(**values | {"most_samples": samples})


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLeases(LeaseSettings):
    """Settings under which all leases have the maximum size."""

    @property
    def call_s(self) -> float:
        """Returns a duration that no call reaches."""
        return 1e6


def simulate(recipe: SimulatedRecipe, pipe: Pipe) -> None:
    """Runs the broker in its process, with simulated actors in place of Ray's."""
    transport = SimulatedTransport(recipe.simulated, recipe.channel.pipe.wake)
    broker = Broker(recipe, transport, MonotonicClock(), room=recipe.simulated.actors)
    pipe.send(READY)
    broker.run()
    transport.end()


class SimulatedManager(RayActorManager):
    """The real manager in the learner's process, connected to a simulated cluster."""

    simulated: Cluster

    def _start_broker(self) -> ChildProcess:
        recipe = SimulatedRecipe(
            config=self.config,
            run_name="simulated",
            stall_timeout_s=60.0,
            make_actor=b"",
            cluster=ClusterSettings(address=None),
            needs=ClusterNeeds(setting=SETTING),
            incarnations=[0] * self.config.most_actors,
            samples=0,
            log_level=logging.WARNING,
            channel=self._channel,
            weights=self._weights,
            simulated=self.simulated,
        )
        context = start_context(StartMethod.auto, [RayActorManager.__module__])
        self.child = ChildProcess(context, "Ray", simulate, recipe, nice=5)
        return self.child


@dataclass(frozen=True, slots=True)
class _Environments:
    spec: EnvSpec


class _NoAgent:
    observes = False


def scale(cluster: Mapping[str, Any], seconds: float) -> Reading:
    """Measures one simulated cluster."""
    simulated = Cluster(**cluster)
    spec = SPECS[simulated.env]
    factory: Any = ActorFactory(
        seed=0,
        env_factory=cast(Any, _Environments(spec)),
        policy_factory=cast(Any, None),
        make_step_processor=cast(Any, None),
    )
    config = RayConfig(num_actors=simulated.actors)
    manager = SimulatedManager(config, make_actor=factory, clock=MonotonicClock())
    manager.simulated = simulated
    counters = Counters()
    rows = min(CAPACITY, STORAGE_NBYTES // storage_nbytes(spec, 1))
    buffer = UniformReplayBuffer(
        ReplayBufferConfig(capacity=rows), spec=spec, rng=np.random.default_rng(0)
    )
    intake = Intake(
        cast(Any, _NoAgent()),
        buffer,
        counters=counters,
        window=MetricsWindow(counters),
        observation=spec.observation,
    )
    with manager:
        manager.publish(Snapshot(opt_steps=0, env_steps=0, warm_up=False, arrays={}))
        manager.permit(math.inf)
        _take_for(manager, intake, SETTLED_S)
        broker = psutil.Process(manager.child.pid)
        before = _now(counters, broker)
        _take_for(manager, intake, seconds)
        after = _now(counters, broker)
    elapsed_s, samples, learner_s, broker_s, messages = (
        later - earlier for later, earlier in zip(after, before, strict=True)
    )
    nbytes = samples * storage_nbytes(spec, 1)
    return {
        "samples_per_s": samples / elapsed_s,
        "mbytes_per_s": nbytes / elapsed_s / 1e6,
        "to_offered": samples / elapsed_s / (simulated.actors * simulated.rate),
        "samples_per_message": samples / max(1.0, messages),
        "learner_busy": learner_s / elapsed_s,
        "broker_busy": broker_s / elapsed_s,
        "link_busy": 8 * nbytes / elapsed_s / (1e9 * simulated.gbit_per_s),
    }


def _take_for(manager: RayActorManager, intake: Intake, seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        arrived = manager.receive(0.05)
        MESSAGES[0] += len(arrived)
        intake.take(arrived)


MESSAGES = [0]


def _now(counters: Counters, broker: psutil.Process) -> tuple[float, ...]:
    times = broker.cpu_times()
    return (
        time.perf_counter(),
        counters.samples_total,
        time.thread_time(),
        times.user + times.system,
        MESSAGES[0],
    )


def limit(reading: Mapping[str, Any]) -> str:
    """Returns the bottleneck."""
    busy = {part: reading[f"{part}_busy"]["median"] for part in ("link", "broker", "learner")}
    name = max(busy, key=lambda part: busy[part])
    return name if busy[name] > 0.9 else "the actors"


def main() -> None:
    parser = make_parser(__doc__, repetitions=1)
    parser.add_argument("--actors", type=int, default=1_000)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="timed seconds per row (default: 5)"
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0, 100.0, 1_000.0])
    parser.add_argument("--envs", nargs="+", choices=list(SPECS), default=["cartpole", "ant"])
    parser.add_argument("--gbit-per-s", type=float, nargs="+", default=[10.0])
    parser.add_argument("--samples-per-call", type=int, nargs="*", default=[1, 10, 100])
    parser.add_argument("--call-us", type=float, help="microseconds of the broker per call")
    arguments = parser.parse_args()
    microseconds = arguments.call_us
    if microseconds is None:
        say("measuring a Ray call")
        call_cost = call("benchmarks.ray_scale:call_us", calls=4_000, samples=20)
        emit("ray_scale", "call", call_cost)
        microseconds = call_cost["call_us"]
    for env, rate, gbit, samples in product(
        arguments.envs, arguments.rates, arguments.gbit_per_s, [None, *arguments.samples_per_call]
    ):
        cluster = {
            "actors": arguments.actors,
            "rate": rate,
            "gbit_per_s": gbit,
            "call_us": microseconds,
            "env": env,
            "samples_per_call": samples,
        }
        say(f"{cluster}")
        readings = [
            call("benchmarks.ray_scale:scale", cluster=cluster, seconds=arguments.seconds)
            for _ in range(arguments.repetitions)
        ]
        content = summary(readings)
        emit("ray_scale", env, {**cluster, **content, "limit": limit(content)})


if __name__ == "__main__":
    main()
