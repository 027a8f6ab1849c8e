"""The broker, a child process that connects the learner with the actors on a Ray cluster.

It keeps Ray's threads out of the learner's process. The broker always exits with the learner, and
its Ray actors exit with the broker. It reads the weights and the sample limit from shared memory,
uses `Leases` to divide the limit, and writes the actors' samples into the ring that the learner
reads.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from border_cli.actor_manager.actor import BLOCKED, SEND, Message
from border_cli.actor_manager.message_ring import MessageWriter
from border_cli.actor_manager.shared_weights import SharedWeightSlot, pack_snapshot
from border_cli.core.timing import ACTOR_SECTIONS, Clock, MonotonicClock
from border_cli.errors import RunFailed
from border_cli.ray.calls import Transport
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
    RESTARTS,
    ROWS,
    SPACE_WAITS,
    SURPLUS,
    BrokerChannel,
)
from border_cli.ray.config import RayConfig
from border_cli.ray.connection import ClusterSettings, connect
from border_cli.ray.leases import Leases, LeaseSettings, Times
from border_cli.ray.nodes import ClusterNeeds, check_nodes, options_of
from border_cli.ray.remote import import_path, log_printed_lines
from border_cli.ray.remote_actor import CallResult, RemoteActor
from border_cli.system.child import READY, Pipe

log = logging.getLogger(__name__)

# Messages to the learner.
JOINED: Final = "joined"  # with the ClusterSettings for joining the same Ray
ENDED: Final = "ended"  # with the RunFailed that ended the broker
POLL_S: Final = 0.25
CALL_LIMIT: Final = 2  # a call ends early if it takes this many times its intended duration


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecipe:
    """The arguments of the broker process, which are pickled when it is started."""

    config: RayConfig
    run_name: str
    stall_timeout_s: float
    make_actor: bytes  # a pickled `ActorFactory`
    cluster: ClusterSettings
    needs: ClusterNeeds
    incarnations: Sequence[int]  # number of each actor's first incarnation in this attempt
    samples: int  # samples received in earlier attempts
    log_level: int
    channel: BrokerChannel
    weights: SharedWeightSlot
    num_envs: int = 1  # number of environments of an actor

    def lease_settings(self) -> LeaseSettings:
        config, num_actors = self.config, self.config.most_actors
        share = self.channel.ring.capacity // (num_actors * config.max_in_flight)
        return LeaseSettings(
            num_actors=num_actors,
            paced_samples=config.paced_samples,
            most_samples=max(1, share),
            max_in_flight=config.max_in_flight,
            max_restarts=config.max_restarts,
            stall_timeout_s=self.stall_timeout_s,
            num_envs=self.num_envs,
        )


def run(recipe: BrokerRecipe, pipe: Pipe) -> None:
    """Runs the broker process."""
    log_printed_lines()
    clock = MonotonicClock()
    with connect(recipe.cluster) as joined:
        room = check_nodes(recipe.cluster, recipe.needs)
        broker = Broker(recipe, _build_transport(recipe), clock, room=room)
        pipe.send(JOINED, joined)
        pipe.send(READY)
        try:
            broker.run()
        except RunFailed as error:
            pipe.send(ENDED, error)  # sent before disconnecting, which may take a while


def _build_transport(recipe: BrokerRecipe) -> Transport:
    # Imported late: it imports Ray, and the learner imports this module.
    from border_cli.ray.transport import RayTransport

    def arguments(actor_id: int, incarnation: int) -> tuple[Any, ...]:
        number = recipe.incarnations[actor_id] + incarnation
        logging_and_path = recipe.log_level, import_path()
        return recipe.make_actor, recipe.config, actor_id, number, *logging_and_path

    def name(actor_id: int, incarnation: int) -> str:
        suffix = f".{incarnation}" if incarnation else ""
        return f"border/{recipe.run_name}/actor-{actor_id}{suffix}"

    return RayTransport(
        actor=RemoteActor,
        arguments=arguments,
        name=name,
        options=options_of(recipe.needs.resources),
        within_s=CALL_LIMIT * recipe.lease_settings().call_s,
        wake=recipe.channel.pipe.wake,
    )


class Broker:
    """The loop that moves limits, weights and samples between shared memory and the transport."""

    def __init__(
        self, recipe: BrokerRecipe, transport: Transport, clock: Clock, *, room: int
    ) -> None:
        """`room`: number of actors that fit initially; the others are started one at a time."""
        self._config = recipe.config
        self._channel = recipe.channel
        self._weights = recipe.weights
        self._transport = transport
        self._clock = clock
        self._writer = MessageWriter(recipe.channel.ring)
        self._pending: deque[Message] = deque()  # messages waiting for space in the ring
        self.leases = Leases(
            recipe.lease_settings(),
            transport,
            on_delivered=self._deliver,
            on_lost=self._lose,
        )
        self.leases.received = recipe.samples
        self._num_initial = min(room, recipe.config.most_actors)  # actors to start immediately
        self._reported_s = -math.inf  # time of the last call of `_report_actors`
        self._closes_s: float | None = None  # time at which unfinished calls are killed
        self._past_seconds = [[0.0] * len(ACTOR_SECTIONS) for _ in self.leases.actors]

    def run(self) -> None:
        """Runs until the learner closes the channel, all actors have ended, and the learner leaves.

        Waiting for the learner keeps a Ray started here alive for the other processes that use it.
        Raises RunFailed.
        """
        self.begin()
        while not self.finished:
            self.step()
            self._channel.pipe.wait(POLL_S)
        self._report_actors()
        while not self._channel.learner[LEAVING]:
            self._channel.broker[BEATS] += 1
            self._channel.pipe.wait(POLL_S)

    @property
    def finished(self) -> bool:
        """True if all actors have ended, and no message waits for space that the learner makes."""
        waits = self._pending and not self._channel.learner[LEAVING]
        return self._closes_s is not None and self.leases.over and not waits

    def begin(self) -> None:
        """Starts the initial actors."""
        self.leases.begin(self._clock.now_s(), self._num_initial)

    def step(self) -> None:
        """Does everything that is currently possible, without blocking."""
        channel, leases, reports = self._channel, self.leases, self._transport.reports
        now_s = self._clock.now_s()
        leases.permit(
            channel.permitted[0],
            last=bool(channel.learner[LAST]),
            urgent=bool(channel.learner[LEARNER_WAITS]),
        )
        try:
            while reports:
                leases.handle_report(reports.popleft(), now_s)
        finally:  # the learner stores what was collected before the last failure
            self._write()
        if channel.learner[CLOSING]:
            self._close(now_s)
        else:
            newer = self._weights.newer_than(leases.version)
            if newer is not None:
                leases.version, snapshot = newer
                self._transport.publish(pack_snapshot(snapshot))
        waiting_rows = sum(message.rows for message in self._pending)
        leases.space = channel.ring.capacity - channel.ring.rows_in_flight - waiting_rows
        leases.pump(now_s)
        channel.broker[GRANTED] = leases.granted
        channel.broker[SPACE_WAITS] = bool(self._pending) or leases.lacks_space
        if now_s - self._reported_s >= POLL_S:
            self._reported_s = now_s
            self._report_actors()
        channel.broker[BEATS] += 1

    def _write(self) -> None:
        """Writes pending messages while there is space and wakes a waiting learner."""
        channel, written = self._channel, False
        while self._pending and self._writer.has_space(self._pending[0]):
            rest = self._writer.write(self._pending.popleft())
            written = True
            if rest is not None:
                self._pending.appendleft(rest)
        if written and channel.learner[LEARNER_WAITS]:
            channel.learner_pipe.wake()

    def _close(self, now_s: float) -> None:
        leases = self.leases
        if self._closes_s is None:
            self._closes_s = now_s + self._config.join_timeout_s
            leases.close(now_s)
        if now_s >= self._closes_s:
            for actor_id in leases.kill(now_s):
                log.error("killed actor %d, whose call did not return in time", actor_id)
        if leases.drained and not self._pending and not self._channel.broker[DRAINED]:
            self._report_actors()
            self._channel.broker[DRAINED] = 1
            self._channel.learner_pipe.wake()

    def _report_actors(self) -> None:
        """Writes the restarts and incarnations of the actors to shared memory."""
        for actor in self.leases.actors:
            words = self._channel.actors[actor.actor_id]
            words[RESTARTS] = actor.restarts.count
            words[INCARNATIONS] = actor.incarnation + 1
        self._channel.broker[ACTING] = self.leases.acting

    def _deliver(self, actor_id: int, answer: CallResult, times: Times) -> None:
        words = self._channel.actors[actor_id]
        words[SURPLUS] += answer.env_steps - answer.rows
        words[ROWS] += answer.rows
        if answer.message is not None:
            self._pending.append(answer.message)
        for name, level, text in answer.logged:
            logging.getLogger(name).log(level, "actor %d: %s", actor_id, text)
        # How the time of the call was spent.
        network, seconds = self._channel.network, self._channel.seconds[actor_id]
        for number, spent_s in enumerate((times.call_s, times.transfer_s, times.queue_s)):
            network[number] += spent_s
        past = self._past_seconds[actor_id]
        for section, spent_s in enumerate(answer.seconds):
            seconds[section] += max(0.0, spent_s - past[section])
            past[section] = spent_s
        seconds[SEND] += times.transfer_s
        seconds[BLOCKED] += times.blocked_s

    def _lose(self, actor_id: int, samples: int) -> None:
        self._channel.actors[actor_id][LOST] += samples
