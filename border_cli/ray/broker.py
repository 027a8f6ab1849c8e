"""The broker: the child process that speaks with Ray, between the learner and the actors.

It keeps Ray's threads out of the learner's process, and ends with it whatever happens; with the
broker all its Ray actors end. It takes weights and permission from shared memory, has `Leases`
divide them, and writes what the actors return into the ring that the learner reads.
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
from border_cli.actor_manager.shared_weights import SharedWeightSlot, packed
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
from border_cli.ray.remote import import_path, log_what_is_printed
from border_cli.ray.remote_actor import Answer, RemoteActor
from border_cli.system.child import READY, Pipe

log = logging.getLogger(__name__)

JOINED: Final = "joined"  # ClusterSettings with which others join; a message to the learner
ENDED: Final = "ended"  # the RunFailed that ended it
LOOK_S: Final = 0.25
CALL_LASTS: Final = 2  # times the time that a call shall take; then it returns what it has


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecipe:
    """All that the process needs; pickled on its way there."""

    config: RayConfig
    run_name: str
    stall_timeout_s: float
    make_actor: bytes  # packed
    cluster: ClusterSettings
    needs: ClusterNeeds
    incarnations: Sequence[int]  # the first of each actor
    samples: int  # received in earlier attempts
    log_level: int
    channel: BrokerChannel
    weights: SharedWeightSlot

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
        )


def run(recipe: BrokerRecipe, pipe: Pipe) -> None:
    """The process."""
    log_what_is_printed()
    clock = MonotonicClock()
    with connect(recipe.cluster) as joined:
        room = check_nodes(recipe.cluster, recipe.needs)
        broker = Broker(recipe, _transport(recipe), clock, room=room)
        pipe.send(JOINED, joined)
        pipe.send(READY)
        try:
            broker.run()
        except RunFailed as error:
            pipe.send(ENDED, error)  # before the cluster is left, which may take its time


def _transport(recipe: BrokerRecipe) -> Transport:
    from border_cli.ray.transport import RayTransport  # imports Ray, as nothing else here

    def arguments(actor_id: int, incarnation: int) -> tuple[Any, ...]:
        number = recipe.incarnations[actor_id] + incarnation
        more = recipe.log_level, import_path()
        return recipe.make_actor, recipe.config, actor_id, number, *more

    def name(actor_id: int, incarnation: int) -> str:
        again = f".{incarnation}" if incarnation else ""
        return f"border/{recipe.run_name}/actor-{actor_id}{again}"

    return RayTransport(
        actor=RemoteActor,
        arguments=arguments,
        name=name,
        options=options_of(recipe.needs.resources),
        within_s=CALL_LASTS * recipe.lease_settings().call_s,
        wake=recipe.channel.pipe.wake,
    )


class Broker:
    """Moves permission, weights and samples between shared memory and the transport."""

    def __init__(
        self, recipe: BrokerRecipe, transport: Transport, clock: Clock, *, room: int
    ) -> None:
        """`room`: how many actors of `num_actors=auto` fit at first; others follow one by one."""
        self._config = recipe.config
        self._channel = recipe.channel
        self._weights = recipe.weights
        self._transport = transport
        self._clock = clock
        self._writer = MessageWriter(recipe.channel.ring)
        self._pending: deque[Message] = deque()  # for which the ring has no space
        self.leases = Leases(
            recipe.lease_settings(),
            transport,
            on_delivered=self._deliver,
            on_lost=self._lose,
        )
        self.leases.received = recipe.samples
        self._at_first = min(room, recipe.config.most_actors)
        self._looked_s = -math.inf
        self._closes_s: float | None = None  # when what has not returned is killed
        self._past_seconds = [[0.0] * len(ACTOR_SECTIONS) for _ in self.leases.actors]

    def run(self) -> None:
        """Until the learner closes the ring, all has returned, and the learner leaves.

        Others may have joined a Ray of our own, which is kept for them till then. Raises RunFailed.
        """
        self.begin()
        while self._closes_s is None or not self.leases.over:
            self.step()
            self._channel.pipe.wait(LOOK_S)
        self._show()
        while not self._channel.learner[LEAVING]:
            self._channel.broker[BEATS] += 1
            self._channel.pipe.wait(LOOK_S)

    def begin(self) -> None:
        """Starts the actors."""
        self.leases.begin(self._clock.now_s(), self._at_first)

    def step(self) -> None:
        """Everything that can be done now."""
        channel, leases, reports = self._channel, self.leases, self._transport.reports
        now_s = self._clock.now_s()
        leases.permit(
            channel.permitted[0],
            last=bool(channel.learner[LAST]),
            urgent=bool(channel.learner[LEARNER_WAITS]),
        )
        while reports:
            leases.take(reports.popleft(), now_s)
        self._write()
        if channel.learner[CLOSING]:
            self._close(now_s)
        else:
            newer = self._weights.newer_than(leases.version)
            if newer is not None:
                leases.version, snapshot = newer
                self._transport.publish(packed(snapshot))
        waiting = sum(each.rows for each in self._pending)
        leases.space = channel.ring.capacity - channel.ring.rows_in_flight - waiting
        leases.pump(now_s)
        channel.broker[GRANTED] = leases.granted
        channel.broker[SPACE_WAITS] = bool(self._pending) or leases.lacks_space
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._show()
        channel.broker[BEATS] += 1

    def _write(self) -> None:
        """Writes what there is space for, and wakes a learner that waits."""
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
            self._show()
            self._channel.broker[DRAINED] = 1
            self._channel.learner_pipe.wake()

    def _show(self) -> None:
        """How the actors stand."""
        for actor in self.leases.actors:
            words = self._channel.actors[actor.actor_id]
            words[RESTARTS] = actor.restarts.made
            words[INCARNATIONS] = actor.incarnation + 1
        self._channel.broker[ACTING] = self.leases.acting

    def _deliver(self, actor_id: int, answer: Answer, times: Times) -> None:
        words = self._channel.actors[actor_id]
        words[SURPLUS] += answer.env_steps - answer.rows
        words[ROWS] += answer.rows
        if answer.message is not None:
            self._pending.append(answer.message)
        for name, level, text in answer.logged:
            logging.getLogger(name).log(level, "actor %d: %s", actor_id, text)
        # Where the time of the call went.
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
