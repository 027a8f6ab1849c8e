"""The broker, with actors that are called directly in the test's thread."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from border_cli.actor_manager.actor import ActorFactory
from border_cli.actor_manager.message_ring import MessageReader
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.core.interfaces import EnvFactory
from border_cli.core.types import Experience
from border_cli.errors import ActorCrashed
from border_cli.ray.broker import Broker, BrokerRecipe
from border_cli.ray.calls import ActorReport, ReportKind, Transport
from border_cli.ray.channel import (
    CLOSING,
    DRAINED,
    GRANTED,
    LAST,
    LOST,
    RESTARTS,
    ROWS,
    SURPLUS,
    BrokerChannel,
)
from border_cli.ray.config import RayConfig
from border_cli.ray.connection import ClusterSettings
from border_cli.ray.nodes import ClusterNeeds
from border_cli.ray.remote_actor import RemoteActor
from border_cli.system.start import pack
from tests.support.actor_managers import Built, count, kept, snapshot
from tests.support.fakes import SPEC, FakeClock, OneStep
from tests.support.scripted_envs import (
    CalmEnvFactory,
    Life,
    ScriptedEnvFactory,
    TellingPolicyFactory,
    fail,
)


class InProcessTransport(Transport):
    """Runs every call immediately. A call to an actor in `dead` reports that the actor died."""

    def __init__(self, arguments: Callable[[int, int], tuple[Any, ...]]) -> None:
        self.reports: deque[ActorReport] = deque()
        self.dead: set[int] = set()
        self._arguments = arguments
        self._actors: dict[int, tuple[int, RemoteActor]] = {}
        self._weights: NDArray[np.uint8] | None = None

    def publish(self, weights: NDArray[np.uint8]) -> None:
        self._weights = weights

    def start(self, actor_id: int, incarnation: int) -> None:
        actor = RemoteActor(*self._arguments(actor_id, incarnation))
        self._actors[actor_id] = incarnation, actor
        self.reports.append(ActorReport(ReportKind.PLACED, actor_id, incarnation, actor.prepare()))
        self.reports.append(ActorReport(ReportKind.BUILT, actor_id, incarnation, actor.build()))

    def call(self, actor_id: int, lease: int, samples: int, version: int | None) -> None:
        incarnation, actor = self._actors[actor_id]
        if actor_id in self.dead:
            self.reports.append(
                ActorReport(ReportKind.DIED, actor_id, incarnation, "killed by SIGKILL")
            )
            return
        result = actor.act(samples, math.inf, version, None if version is None else self._weights)
        self.reports.append(ActorReport(ReportKind.RETURNED, actor_id, incarnation, result, lease))

    def close(self, actor_id: int) -> None:
        incarnation, actor = self._actors[actor_id]
        actor.close()
        self.reports.append(ActorReport(ReportKind.CLOSED, actor_id, incarnation))

    def kill(self, actor_id: int) -> None:
        del self._actors[actor_id]
        self.dead.discard(actor_id)


class BrokerRun:
    """A broker, and the learner's side of its shared memory."""

    def __init__(
        self, factory: EnvFactory | None = None, *, room: int = 99, **settings: Any
    ) -> None:
        self.config = RayConfig(**{"num_actors": 2, "n_buffer": 5} | settings)
        self.clock = FakeClock()
        make_actor = ActorFactory(
            seed=0,
            env_factory=factory or CalmEnvFactory(),
            policy_factory=TellingPolicyFactory(),
            make_step_processor=OneStep,
        )
        actors = self.config.most_actors
        self.channel = BrokerChannel(SPEC, capacity=40 * actors, num_actors=actors)
        self.weights = SharedWeightSlot({})
        packed = pack("test", [], make_actor)
        recipe = BrokerRecipe(
            config=self.config,
            run_name="run",
            stall_timeout_s=60.0,
            make_actor=packed,
            cluster=ClusterSettings(address=None),
            needs=ClusterNeeds(setting="test"),
            incarnations=[0] * actors,
            samples=0,
            log_level=logging.WARNING,
            channel=self.channel,
            weights=self.weights,
        )
        self.transport = InProcessTransport(
            lambda actor_id, incarnation: (
                packed, self.config, actor_id, incarnation, logging.WARNING,
            ),
        )  # fmt: skip
        self.broker = Broker(recipe, self.transport, self.clock, room=room)
        self.reader = MessageReader(self.channel.ring)
        self.broker.begin()

    def permit(self, samples: float, *, last: bool = False) -> None:
        self.channel.permitted[0] = samples
        self.channel.learner[LAST] = last

    def step(self, times: int = 1, after_s: float = 0.0) -> list[Experience]:
        """Steps the broker `times` times and returns the experience that the learner receives."""
        received: list[Experience] = []
        for _ in range(times):
            self.clock.time_s += after_s
            self.broker.step()
            received += map(kept, self.reader.take())
            self.reader.release()
        return received

    def close(self) -> list[Experience]:
        self.channel.learner[CLOSING] = 1
        received = self.step(5)
        assert self.channel.broker[DRAINED]
        assert self.broker.leases.over
        return received

    def words(self, word: int) -> list[int]:
        return [words[word] for words in self.channel.actors]


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Restores the root logger, whose handlers and level a remote actor replaces."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_actors_make_exactly_what_is_permitted_and_all_of_it_is_counted() -> None:
    run = BrokerRun()
    run.weights.publish(snapshot(opt_steps=7))
    run.permit(103)
    received = run.step(60)
    assert 93 < count(received) <= 103  # short by less than two messages
    run.permit(103, last=True)
    received += run.step(10)
    received += run.close()
    assert count(received) == sum(experience.env_steps for experience in received) == 103
    assert {experience.opt_steps for experience in received} == {7}
    assert sum(run.words(ROWS)) == 103
    assert run.words(SURPLUS) == [0, 0]
    assert run.channel.broker[GRANTED] == 103


def test_a_learner_that_takes_nothing_bounds_what_is_made() -> None:
    run = BrokerRun()
    run.weights.publish(snapshot())
    run.permit(math.inf)
    for _ in range(200):
        run.broker.step()
    assert 0 < sum(run.words(ROWS)) <= run.channel.ring.capacity
    before = sum(run.words(ROWS))
    assert count(run.step(50)) > before  # collection continues


def test_a_process_that_dies_is_replaced_and_its_lease_counted_as_lost_once() -> None:
    run = BrokerRun(num_actors=1)
    run.weights.publish(snapshot())
    run.permit(200)
    received = run.step(4)
    run.transport.dead.add(0)
    received += run.step(2)
    received += run.step(40, after_s=0.3)
    run.permit(200, last=True)
    received += run.step(5) + run.close()
    assert count(received) == 200
    assert run.words(RESTARTS) == [1]
    (lost,) = run.words(LOST)
    assert 0 < lost <= 100
    assert (run.words(ROWS), run.words(SURPLUS)) == ([200], [0])


class WatchedWords:
    """The words of an actor, with a callback after every write."""

    def __init__(self, words: Any, on_write: Callable[[], object]) -> None:
        self._words = words
        self._on_write = on_write

    def __getitem__(self, word: Any) -> Any:
        return self._words[word]

    def __setitem__(self, word: int, value: int) -> None:
        self._words[word] = value
        self._on_write()


def test_a_state_saved_between_two_writes_has_a_sample_for_every_env_step() -> None:
    run = BrokerRun(num_actors=1)
    manager = Built("ray", num_actors=1).manager
    [words] = run.channel.actors
    manager._channel, manager._reader = run.channel, run.reader
    counts: list[tuple[int, int, int]] = []

    def read_counts() -> None:
        (actor,) = manager.state_dict()["actors"]
        counts.append((actor["env_steps"], actor["samples"], actor["lost_samples"]))

    run.channel.actors = [WatchedWords(words, read_counts)]
    run.weights.publish(snapshot())
    run.permit(200)
    run.step(4)
    run.transport.dead.add(0)
    run.step(2)
    run.step(40, after_s=0.3)
    assert all(steps == samples + lost for steps, samples, lost in counts)
    assert {lost > 0 for _, _, lost in counts} == {False, True}


def test_auto_starts_as_many_as_fit_and_more_when_nodes_join() -> None:
    run = BrokerRun(num_actors="auto", max_actors=5, room=2, address="auto")
    run.weights.publish(snapshot())
    run.permit(math.inf)
    assert {message.actor_id for message in run.step(2)} == {0, 1}
    assert {message.actor_id for message in run.step(10, after_s=1.0)} == {0, 1, 2, 3, 4}


def test_a_ray_manager_loads_and_returns_the_state_of_another_kind_of_manager() -> None:
    """Needs no cluster, because the ray manager is never entered."""
    with Built("serial", num_actors=3, n_buffer=4).manager as serial:
        serial.publish(snapshot())
        serial.permit(30)
        received = sum(count(serial.receive()) for _ in range(30))
        state = serial.state_dict()
    manager = Built("ray", num_actors=2, n_buffer=4, state=state).manager
    loaded = manager.state_dict()
    assert loaded["samples"] == received > 0
    for name in ("samples", "env_steps", "lost_samples", "duration_s", "seconds"):
        before = [actor[name] for actor in state["actors"]]
        assert [actor[name] for actor in loaded["actors"]] == before
    assert [actor["incarnation"] for actor in loaded["actors"]] == [0, 0, 0]  # seeds are not reused
    assert manager.stop() == []


def test_messages_that_wait_for_space_arrive_after_the_actors_have_ended() -> None:
    run = BrokerRun(CalmEnvFactory(num_envs=8))
    run.weights.publish(snapshot())
    run.permit(math.inf)
    while not run.broker._pending:  # the learner takes nothing
        run.broker.step()
    run.channel.learner[CLOSING] = 1
    while not run.broker.leases.over:
        run.broker.step()
    assert not run.channel.broker[DRAINED]
    assert not run.broker.finished
    received = run.step(2)
    assert run.channel.broker[DRAINED]
    assert run.broker.finished
    assert count(received) == sum(run.words(ROWS))


def test_rows_made_before_the_last_failure_reach_the_learner(tmp_path: Path) -> None:
    factory = ScriptedEnvFactory(folder=tmp_path, lives=(Life(deed=fail, at=30),))
    run = BrokerRun(factory, num_actors=1, max_restarts=0)
    run.weights.publish(snapshot())
    run.permit(1000)
    with pytest.raises(ActorCrashed, match="the simulator broke at step 30"):
        deque(iter(run.broker.step, "never returned"))
    assert count(run.reader.take()) == sum(run.words(ROWS)) == 29
