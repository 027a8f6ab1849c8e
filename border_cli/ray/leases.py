"""Leases: which actor of a cluster makes how many samples, and what becomes of it.

A lease is one call: "act with these weights, return up to n samples". The permission of the rate
limiter is divided into leases whose sum never exceeds it. An actor has at most `max_in_flight` of
them, so that it acts while its last answer travels. Their size follows the speed of the actor: a
call takes about `call_s`, as long as the permission allows, which costs neither broker nor network
much and keeps the weights fresh.

Everything has a deadline. A lease that does not return in time, and those behind it, go back to the
permission; the actor is killed and replaced. What it may have
made is counted as lost then, and ignored if it arrives later. The others use what is left.

A pure state machine: time is handed in, and a `Transport` does what it decides. One thread owns it.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from border_cli.actor_manager.restarts import Restarts
from border_cli.errors import ActorCrashed, RunFailed
from border_cli.ray.calls import ActorReport, ReportKind, Transport
from border_cli.ray.remote_actor import Answer
from border_cli.words import counted

log = logging.getLogger(__name__)

STARTS_S: Final = 120.0  # for the first process to find room, start and import what it needs
CALLS_PER_S: Final = 30  # of all actors together; each costs some ms in actor, broker and raylet
LONGEST_CALL_S: Final = 1.0
GROWTH: Final = 4  # by which a lease may be larger than the one before
LOOK_S: Final = 0.25  # between two looks at all deadlines


class Stage(IntEnum):
    """Where an actor stands."""

    OFF = 0  # of `num_actors=auto`: others are started before it
    PAUSED = 1  # until its restart
    STARTING = 2  # its process waits for room, starts and imports
    BUILDING = 3  # its environments
    ACTING = 4
    CLOSING = 5
    ENDED = 6


NO_PROCESS: Final = (Stage.OFF, Stage.PAUSED, Stage.ENDED)


@dataclass(slots=True)
class Lease:
    """One call under way."""

    number: int
    samples: int
    issued_s: float
    begun_s: float  # when all calls before it had returned
    answer: Answer | None = None  # that arrived before one of an earlier call


@dataclass(slots=True)
class LeasedActor:
    """One actor over all its incarnations."""

    actor_id: int
    restarts: Restarts
    incarnation: int = -1  # in this attempt
    stage: Stage = Stage.OFF
    place: str = ""  # host and process
    since_s: float = 0.0  # in this stage
    due_s: float = 0.0  # when it starts again
    version: int = 0  # of its weights
    size: float = 1.0  # samples of its next lease
    last_call: int = 0  # number of its newest lease
    received: int = 0  # samples
    idle_since_s: float = 0.0
    leases: deque[Lease] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Times:
    """Where the seconds of one call went."""

    call_s: float  # the actor acted
    transfer_s: float  # the actor could have acted, but request or answer were on their way
    queue_s: float  # it waited for the actor's call before it
    blocked_s: float  # before it, in which the actor had no call at all


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Limits of all leases."""

    num_actors: int
    paced_samples: int  # of a lease where a replay ratio leaves no more for each
    most_samples: int  # of any lease
    max_in_flight: int
    max_restarts: int
    stall_timeout_s: float

    @property
    def call_s(self) -> float:
        """How long a call shall take."""
        return min(LONGEST_CALL_S, self.num_actors / CALLS_PER_S)


Delivered = Callable[[int, Answer, Times], None]  # actor id
Lost = Callable[[int, int], None]  # actor id, samples


class Leases:
    """Divides the permission and supervises the actors; the broker's thread owns it.

    `on_delivered` gets every answer once, in the order of the actor's calls; `on_lost` the samples
    of a lease that never returns, once.
    """

    def __init__(
        self,
        settings: LeaseSettings,
        transport: Transport,
        *,
        on_delivered: Delivered,
        on_lost: Lost,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._on_delivered = on_delivered
        self._on_lost = on_lost
        self.actors = [
            LeasedActor(actor_id, Restarts(actor_id, settings.max_restarts, renewed=True))
            for actor_id in range(settings.num_actors)
        ]
        self.version = 0  # of the newest weights
        self.acting = 0  # actors that act
        self.received = 0  # samples of this run that were delivered
        self.reserved = 0  # samples of all leases
        self.space = 0  # for samples that arrive
        self.lacks_space = False  # for another lease
        self._permitted = 0.0  # samples in all
        self._last = self._urgent = False
        self._numbers = 0
        self._looks_s = -math.inf
        self._closing = False
        self._alive_s = 0.0  # when an actor was built or acted last
        self._last_reason = ""

    # What the broker says.

    def begin(self, now_s: float, wanted: int) -> None:
        """Starts this many actors; the others one by one, as each finds room."""
        self._alive_s = now_s
        for actor in self.actors[:wanted]:
            self._start(actor, now_s)

    def close(self, now_s: float) -> None:
        """Issues nothing more; each actor ends once its calls have returned."""
        self._closing = True
        for actor in self.actors:
            if actor.stage == Stage.ACTING and not actor.leases:
                self._end_acting(actor, now_s)
            elif actor.stage < Stage.ACTING:
                self._kill(actor)
                self._enter(actor, Stage.ENDED, now_s)

    def kill(self, now_s: float) -> list[int]:
        """Ends all; returns those whose calls had not returned."""
        hung = [actor.actor_id for actor in self.actors if actor.leases]
        for actor in self.actors:
            if actor.stage != Stage.ENDED:
                self._give_up_leases(actor)
                self._kill(actor)
                self._enter(actor, Stage.ENDED, now_s)
        return hung

    @property
    def drained(self) -> bool:
        """Whether nothing more will be delivered."""
        return self._closing and not any(actor.leases for actor in self.actors)

    @property
    def over(self) -> bool:
        """Whether all actors have ended."""
        return all(actor.stage == Stage.ENDED for actor in self.actors)

    @property
    def granted(self) -> int:
        """Samples of the permission that are used up."""
        return self.received + self.reserved

    # What the transport says.

    def take(self, report: ActorReport, now_s: float) -> None:
        """Takes in what happened. Raises BadStep, and RunFailed where no actor is left."""
        actor = self.actors[report.actor_id]
        if report.incarnation != actor.incarnation or actor.stage in NO_PROCESS:
            return  # of one that was replaced
        if report.kind is ReportKind.DIED:
            self._failed(actor, str(report.value), now_s)
        elif report.kind is ReportKind.PLACED and actor.stage == Stage.STARTING:
            actor.place = report.value
            self._enter(actor, Stage.BUILDING, now_s)
        elif report.kind is ReportKind.BUILT:
            self._built(actor, report.value, now_s)
        elif report.kind is ReportKind.RETURNED:
            self._returned(actor, report, now_s)
        elif report.kind is ReportKind.CLOSED:
            self._kill(actor)
            self._enter(actor, Stage.ENDED, now_s)

    def _built(self, actor: LeasedActor, answer: Answer, now_s: float) -> None:
        if answer.failure is not None:
            self._on_delivered(actor.actor_id, answer, Times(0.0, 0.0, 0.0, 0.0))
            self._failed(actor, answer.failure, now_s)
            return
        self._enter(actor, Stage.ACTING, now_s)
        actor.idle_since_s = now_s
        if self._closing:
            self._end_acting(actor, now_s)

    def _returned(self, actor: LeasedActor, report: ActorReport, now_s: float) -> None:
        for lease in actor.leases:
            if lease.number == report.lease:
                lease.answer = report.value
        while actor.leases and actor.leases[0].answer is not None:
            self._deliver(actor, actor.leases[0], now_s)
        if self._closing and actor.stage == Stage.ACTING and not actor.leases:
            self._end_acting(actor, now_s)

    def _deliver(self, actor: LeasedActor, lease: Lease, now_s: float) -> None:
        """The first of its leases has returned."""
        answer = lease.answer
        assert answer is not None
        actor.leases.popleft()
        self.reserved -= lease.samples
        self.received += answer.rows
        actor.received += answer.rows
        times = Times(
            call_s=answer.acted_s,
            transfer_s=max(0.0, now_s - lease.begun_s - answer.acted_s),
            queue_s=lease.begun_s - lease.issued_s,
            blocked_s=max(0.0, lease.issued_s - actor.idle_since_s),
        )
        if actor.leases:
            actor.leases[0].begun_s = now_s
        else:
            actor.idle_since_s = now_s
        self._on_delivered(actor.actor_id, answer, times)
        if answer.refusal is not None:
            raise answer.refusal
        if answer.failure is not None:
            self.reserved -= sum(each.samples for each in actor.leases)
            actor.leases.clear()  # it makes nothing of them
            self._failed(actor, answer.failure, now_s)
            return
        self._resize(actor, lease, answer)

    def _resize(self, actor: LeasedActor, lease: Lease, answer: Answer) -> None:
        """The next lease shall take `call_s`."""
        if answer.rows and answer.acted_s > 0:
            wanted = self._settings.call_s * answer.rows / answer.acted_s
            larger = min(wanted, GROWTH * max(lease.samples, answer.rows))
            actor.size = max(1.0, min(larger, self._settings.most_samples))

    # Decisions.

    def pump(self, now_s: float) -> None:
        """Starts, calls and kills what is due."""
        if now_s - self._looks_s >= LOOK_S:
            self._looks_s = now_s
            self._look(now_s)
        if not self._closing and self.version:
            self._issue(now_s)

    def _look(self, now_s: float) -> None:
        for actor in self.actors:
            if actor.stage == Stage.PAUSED and actor.due_s <= now_s:
                self._start(actor, now_s)
            elif late := self._late(actor, now_s):
                self._failed(actor, late, now_s)
        stages = {actor.stage for actor in self.actors}
        off = [actor for actor in self.actors if actor.stage == Stage.OFF]
        if off and not self._closing and not stages & {Stage.STARTING, Stage.ENDED}:
            # The next one of `num_actors=auto` waits for room, now that nobody else does.
            self._start(off[0], now_s)
        if stages & {Stage.BUILDING, Stage.ACTING}:
            self._alive_s = now_s
        elif not self._closing and now_s - self._alive_s > STARTS_S:
            reason = f"; the last failure: {self._last_reason}" if self._last_reason else ""
            raise RunFailed(
                f"no actor has found a place on the Ray cluster for {STARTS_S:g} s: see "
                f"actor_manager.resources{reason}"
            )

    def _late(self, actor: LeasedActor, now_s: float) -> str | None:
        """Why it is past a deadline."""
        limit_s = self._settings.stall_timeout_s
        if actor.leases and now_s - actor.leases[0].begun_s > limit_s:
            return f"its call did not return within {limit_s:g} s (trainer.stall_timeout_s)"
        if actor.stage == Stage.BUILDING and now_s - actor.since_s > limit_s:
            return f"it was not built within {limit_s:g} s (trainer.stall_timeout_s)"
        return None

    def permit(self, samples: float, *, last: bool, urgent: bool) -> None:
        """The permission; `last`: it no longer grows; `urgent`: the learner waits for samples."""
        self._permitted, self._last, self._urgent = samples, last, urgent

    def _issue(self, now_s: float) -> None:
        """Divides what is free among those that can take a call, the idle ones first, and of these
        the ones that were called longest ago.

        Fewer than `paced_samples` are not worth a call, unless no more will come, or the learner
        waits and nothing is on its way to it.
        """
        scarce = self._last or (self._urgent and not self.reserved)
        for in_flight in range(self._settings.max_in_flight):
            ready = [
                each
                for each in self.actors
                if each.stage == Stage.ACTING and len(each.leases) == in_flight
            ]
            ready.sort(key=lambda each: each.last_call)
            for waiting, actor in zip(range(len(ready), 0, -1), ready, strict=True):
                samples = self._size(actor, waiting, scarce)
                if samples <= 0:
                    return
                self._call(actor, samples, now_s)

    def _size(self, actor: LeasedActor, waiting: int, scarce: bool) -> int:
        """Samples of its next lease; 0 where too few are free."""
        size = min(math.floor(actor.size), self.space - self.reserved)
        self.lacks_space = size <= 0
        free = self._permitted - self.granted
        if free == math.inf:
            return size
        if free < self._settings.paced_samples and not scarce:
            return 0
        slots = self.acting * self._settings.max_in_flight
        share = max(self._settings.paced_samples, math.floor(free / slots))
        size = min(size, share, math.floor(free))
        return min(size, math.ceil(free / waiting)) if scarce else size

    def _call(self, actor: LeasedActor, samples: int, now_s: float) -> None:
        self._numbers += 1
        version = None if actor.version == self.version else self.version
        actor.version, actor.last_call = self.version, self._numbers
        actor.leases.append(Lease(self._numbers, samples, now_s, now_s))
        self.reserved += samples
        self._transport.call(actor.actor_id, self._numbers, samples, version)

    # Lives and deaths.

    def _start(self, actor: LeasedActor, now_s: float) -> None:
        actor.place, actor.version, actor.size = "", 0, 1.0
        actor.incarnation += 1
        self._transport.start(actor.actor_id, actor.incarnation)
        self._enter(actor, Stage.STARTING, now_s)

    def _failed(self, actor: LeasedActor, why: str, now_s: float) -> None:
        """Gives its leases back and plans its replacement, as long as restarts are left."""
        self._give_up_leases(actor)
        self._kill(actor)
        self._last_reason = why.strip().rpartition("\n")[2]
        at = f" on {actor.place}" if actor.place else ""
        if self._closing:
            log.warning("actor %d failed while stopping%s:\n%s", actor.actor_id, at, why)
            self._enter(actor, Stage.ENDED, now_s)
            return
        try:
            actor.due_s = now_s + actor.restarts.failed(why, delivered=actor.received, where=at)
        except ActorCrashed as error:
            self._give_up(actor, error, at, now_s)
            return
        self._enter(actor, Stage.PAUSED, now_s)

    def _give_up(self, actor: LeasedActor, error: ActorCrashed, at: str, now_s: float) -> None:
        self._enter(actor, Stage.ENDED, now_s)
        left = sum(each.stage not in (Stage.ENDED, Stage.OFF) for each in self.actors)
        if not left:
            raise error
        log.error("%s%s; the run goes on with %s", error.message, at, counted(left, "actor"))

    def _give_up_leases(self, actor: LeasedActor) -> None:
        """They return to the permission; the first may have been made and is counted as lost."""
        if actor.leases:
            self._on_lost(actor.actor_id, actor.leases[0].samples)
        self.reserved -= sum(lease.samples for lease in actor.leases)
        actor.leases.clear()

    def _end_acting(self, actor: LeasedActor, now_s: float) -> None:
        self._enter(actor, Stage.CLOSING, now_s)
        self._transport.close(actor.actor_id)

    def _kill(self, actor: LeasedActor) -> None:
        if actor.stage not in NO_PROCESS:
            self._transport.kill(actor.actor_id)

    def _enter(self, actor: LeasedActor, stage: Stage, now_s: float) -> None:
        self.acting += (stage == Stage.ACTING) - (actor.stage == Stage.ACTING)
        actor.stage, actor.since_s = stage, now_s
