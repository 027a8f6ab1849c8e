"""Leases, which determine how many samples each actor of a cluster collects.

A lease is one call: "act with these weights, return up to n samples". The learner's sample limit is
divided into leases whose sum never exceeds it. An actor has up to `max_in_flight` leases, so that
it can act while its last result is being sent. The size of a lease follows the speed of the actor:
if the limit allows, a call takes about `call_s`. This keeps the load on the broker and the network
low and the weights fresh.

Leases and the building of environments have a deadline. If a lease does not return in time, it is
cancelled together with the actor's later leases, and the actor is killed and replaced. The samples
of the overdue lease count as lost and are ignored if they arrive later. Other actors can use the
cancelled samples.

This module is a pure state machine: time is passed in, and a `Transport` executes the decisions.
One thread owns it.
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
from border_cli.ray.remote_actor import CallResult
from border_cli.words import pluralize

log = logging.getLogger(__name__)

STARTS_S: Final = 120.0  # longest time without an actor that builds its environments or acts
CALLS_PER_S: Final = 30  # for all actors; a call costs several ms in actor, broker and raylet
LONGEST_CALL_S: Final = 1.0
GROWTH: Final = 4  # a lease is at most this many times as large as the last one
POLL_S: Final = 0.25  # seconds between two checks of all deadlines


class Stage(IntEnum):
    """The stages of an actor."""

    OFF = 0  # not started yet; with `num_actors=auto`, one at a time waits for resources
    PAUSED = 1  # waiting for a restart
    STARTING = 2  # waiting for resources, starting the process, or importing modules
    BUILDING = 3  # building the environments
    ACTING = 4
    CLOSING = 5
    ENDED = 6


NO_PROCESS: Final = (Stage.OFF, Stage.PAUSED, Stage.ENDED)


@dataclass(slots=True)
class Lease:
    """A call in progress."""

    number: int
    samples: int
    issued_s: float
    begun_s: float  # time at which all earlier calls had returned
    result: CallResult | None = None  # result, if it arrived before that of an earlier call


@dataclass(slots=True)
class LeasedActor:
    """The state of one actor across its incarnations."""

    actor_id: int
    restarts: Restarts
    incarnation: int = -1  # in this attempt
    stage: Stage = Stage.OFF
    location: str = ""  # host and process
    since_s: float = 0.0  # time at which the current stage began
    due_s: float = 0.0  # time of the restart
    version: int = 0  # version of the actor's weights
    size: float = 1.0  # desired number of samples of the next lease
    last_call: int = 0  # number of the newest lease
    received: int = 0  # number of samples received
    idle_since_s: float = 0.0
    leases: deque[Lease] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Times:
    """A breakdown of the duration of one call."""

    call_s: float  # time spent acting
    transfer_s: float  # time to send the request and the result while the actor was idle
    queue_s: float  # time spent waiting for earlier calls of the actor
    blocked_s: float  # preceding time without any call


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Limits that apply to all leases."""

    num_actors: int
    paced_samples: int  # fewer free samples are not worth a lease; see `_issue` for exceptions
    most_samples: int  # maximum number of samples of a lease
    max_in_flight: int
    max_restarts: int
    stall_timeout_s: float
    num_envs: int = 1  # number of environments, and thus of samples per step, of an actor

    @property
    def call_s(self) -> float:
        """Intended duration of a call in seconds."""
        return min(LONGEST_CALL_S, self.num_actors / CALLS_PER_S)


Delivered = Callable[[int, CallResult, Times], None]  # (actor id, result, times)
Lost = Callable[[int, int], None]  # (actor id, samples)


class Leases:
    """A state machine that issues leases and supervises actors; owned by the broker's thread.

    `on_delivered` is called once per result, in the order of the actor's calls. `on_lost` is called
    once per lease whose samples may have been collected but will never arrive.
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
        self.version = 0  # version of the newest weights
        self.acting = 0  # number of acting actors
        self.received = 0  # samples delivered in the whole run
        self.reserved = 0  # samples of all current leases
        self.space = 0  # free rows in the ring
        self.lacks_space = False  # whether a lease was refused for lack of space
        self._permitted = 0.0  # limit on the total number of samples
        self._last = self._urgent = False
        self._numbers = 0  # number of the newest lease
        self._checked_s = -math.inf  # time of the last check of all actors
        self._closing = False
        self._alive_s = 0.0  # last time at which an actor was building or acting
        self._last_reason = ""

    # Requests of the broker.

    def begin(self, now_s: float, wanted: int) -> None:
        """Starts `wanted` actors; the others start one at a time, as resources allow."""
        self._alive_s = now_s
        for actor in self.actors[:wanted]:
            self._start(actor, now_s)

    def close(self, now_s: float) -> None:
        """Stops issuing leases; each actor ends once its calls have returned."""
        self._closing = True
        for actor in self.actors:
            if actor.stage == Stage.ACTING and not actor.leases:
                self._close_actor(actor, now_s)
            elif actor.stage < Stage.ACTING:
                self._kill(actor)
                self._enter(actor, Stage.ENDED, now_s)

    def kill(self, now_s: float) -> list[int]:
        """Kills all actors and returns the ids of those with unfinished calls."""
        hung = [actor.actor_id for actor in self.actors if actor.leases]
        for actor in self.actors:
            if actor.stage != Stage.ENDED:
                self._cancel_leases(actor)
                self._kill(actor)
                self._enter(actor, Stage.ENDED, now_s)
        return hung

    @property
    def drained(self) -> bool:
        """True if no more results will be delivered."""
        return self._closing and not any(actor.leases for actor in self.actors)

    @property
    def over(self) -> bool:
        """True if all actors have ended."""
        return all(actor.stage == Stage.ENDED for actor in self.actors)

    @property
    def granted(self) -> int:
        """Samples that count towards the limit."""
        return self.received + self.reserved

    # Reports of the transport.

    def handle_report(self, report: ActorReport, now_s: float) -> None:
        """Processes a report. Raises BadStep, and RunFailed if no actor is left."""
        actor = self.actors[report.actor_id]
        if report.incarnation != actor.incarnation or actor.stage in NO_PROCESS:
            return  # the incarnation has been replaced
        if report.kind is ReportKind.DIED:
            self._handle_failure(actor, str(report.value), now_s)
        elif report.kind is ReportKind.PLACED and actor.stage == Stage.STARTING:
            actor.location = report.value
            self._enter(actor, Stage.BUILDING, now_s)
        elif report.kind is ReportKind.BUILT:
            self._handle_built(actor, report.value, now_s)
        elif report.kind is ReportKind.RETURNED:
            self._handle_returned(actor, report, now_s)
        elif report.kind is ReportKind.CLOSED:
            self._kill(actor)
            self._enter(actor, Stage.ENDED, now_s)

    def _handle_built(self, actor: LeasedActor, answer: CallResult, now_s: float) -> None:
        if answer.refusal is not None:
            raise answer.refusal
        if answer.failure is not None:
            self._on_delivered(actor.actor_id, answer, Times(0.0, 0.0, 0.0, 0.0))
            self._handle_failure(actor, answer.failure, now_s)
            return
        self._enter(actor, Stage.ACTING, now_s)
        actor.idle_since_s = now_s
        if self._closing:
            self._close_actor(actor, now_s)

    def _handle_returned(self, actor: LeasedActor, report: ActorReport, now_s: float) -> None:
        for lease in actor.leases:
            if lease.number == report.lease:
                lease.result = report.value
        while actor.leases and actor.leases[0].result is not None:
            self._deliver(actor, actor.leases[0], now_s)
        if self._closing and actor.stage == Stage.ACTING and not actor.leases:
            self._close_actor(actor, now_s)

    def _deliver(self, actor: LeasedActor, lease: Lease, now_s: float) -> None:
        """Delivers the result of the actor's first lease."""
        answer = lease.result
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
            self.reserved -= sum(later.samples for later in actor.leases)
            actor.leases.clear()  # a failed actor will not execute them
            self._handle_failure(actor, answer.failure, now_s)
            return
        self._resize(actor, lease, answer)

    def _resize(self, actor: LeasedActor, lease: Lease, answer: CallResult) -> None:
        """Sets the size of the next lease, so that the call takes about `call_s`."""
        if answer.rows and answer.acted_s > 0:
            desired = self._settings.call_s * answer.rows / answer.acted_s
            limited = min(desired, GROWTH * max(lease.samples, answer.rows))
            actor.size = max(1.0, min(limited, self._settings.most_samples))

    # Decisions.

    def pump(self, now_s: float) -> None:
        """Starts, calls and kills actors as required."""
        if now_s - self._checked_s >= POLL_S:
            self._checked_s = now_s
            self._check_actors(now_s)
        if not self._closing and self.version:
            self._issue(now_s)

    def _check_actors(self, now_s: float) -> None:
        for actor in self.actors:
            if actor.stage == Stage.PAUSED and actor.due_s <= now_s:
                self._start(actor, now_s)
            elif reason := self._missed_deadline(actor, now_s):
                self._handle_failure(actor, reason, now_s)
        stages = {actor.stage for actor in self.actors}
        off = [actor for actor in self.actors if actor.stage == Stage.OFF]
        if off and not self._closing and not stages & {Stage.STARTING, Stage.ENDED}:
            # With `num_actors=auto`, only one actor at a time waits for resources.
            self._start(off[0], now_s)
        if stages & {Stage.BUILDING, Stage.ACTING}:
            self._alive_s = now_s
        elif not self._closing and now_s - self._alive_s > STARTS_S:
            hint = f"; the last failure: {self._last_reason}" if self._last_reason else ""
            raise RunFailed(
                f"no actor could be started on the Ray cluster for {STARTS_S:g} s: see "
                f"actor_manager.resources{hint}"
            )

    def _missed_deadline(self, actor: LeasedActor, now_s: float) -> str | None:
        """Returns a description of the deadline that an actor has missed, or None."""
        limit_s = self._settings.stall_timeout_s
        if actor.leases and now_s - actor.leases[0].begun_s > limit_s:
            return f"its call did not return within {limit_s:g} s (trainer.stall_timeout_s)"
        if actor.stage == Stage.BUILDING and now_s - actor.since_s > limit_s:
            return f"its environments were not built within {limit_s:g} s (trainer.stall_timeout_s)"
        return None

    def permit(self, samples: float, *, last: bool, urgent: bool) -> None:
        """Sets the limit, whether it no longer rises, and whether the learner is waiting."""
        self._permitted, self._last, self._urgent = samples, last, urgent

    def _issue(self, now_s: float) -> None:
        """Divides the available samples among the actors that can accept another call.

        Idle actors come first, and among these the ones called longest ago. Fewer than
        `paced_samples` samples are not worth a call, unless the limit no longer rises, or the
        learner is waiting and no samples are in flight.
        """
        scarce = self._last or (self._urgent and not self.reserved)
        for in_flight in range(self._settings.max_in_flight):
            ready = [
                candidate
                for candidate in self.actors
                if candidate.stage == Stage.ACTING and len(candidate.leases) == in_flight
            ]
            ready.sort(key=lambda candidate: candidate.last_call)
            for remaining, actor in zip(range(len(ready), 0, -1), ready, strict=True):
                samples = self._size(actor, remaining, scarce)
                if samples <= 0:
                    return
                self._call(actor, samples, now_s)

    def _size(self, actor: LeasedActor, remaining: int, scarce: bool) -> int:
        """Returns the samples of the actor's next lease, or 0 if too few are available."""
        space, envs = self.space - self.reserved, self._settings.num_envs
        size = min(math.floor(actor.size), space)
        self.lacks_space = size <= 0
        free = self._permitted - self.granted
        if free == math.inf:
            return size
        if free < self._settings.paced_samples and not scarce:
            return 0
        slots = self.acting * self._settings.max_in_flight
        share = max(self._settings.paced_samples, math.floor(free / slots))
        size = min(size, share, math.floor(free))
        size = min(size, math.ceil(free / remaining)) if scarce else size
        whole = max(size - size % envs, envs)  # whole steps of all environments
        return min(whole, math.floor(free), space)

    def _call(self, actor: LeasedActor, samples: int, now_s: float) -> None:
        self._numbers += 1
        version = None if actor.version == self.version else self.version
        actor.version, actor.last_call = self.version, self._numbers
        actor.leases.append(Lease(self._numbers, samples, now_s, now_s))
        self.reserved += samples
        self._transport.call(actor.actor_id, self._numbers, samples, version)

    # Starts and failures.

    def _start(self, actor: LeasedActor, now_s: float) -> None:
        actor.location, actor.version, actor.size = "", 0, 1.0
        actor.incarnation += 1
        self._transport.start(actor.actor_id, actor.incarnation)
        self._enter(actor, Stage.STARTING, now_s)

    def _handle_failure(self, actor: LeasedActor, cause: str, now_s: float) -> None:
        """Cancels the leases of an actor and plans a restart if any are left."""
        self._cancel_leases(actor)
        self._kill(actor)
        self._last_reason = cause.strip().rpartition("\n")[2]
        site = f" on {actor.location}" if actor.location else ""
        if self._closing:
            log.warning("actor %d failed while stopping%s:\n%s", actor.actor_id, site, cause)
            self._enter(actor, Stage.ENDED, now_s)
            return
        try:
            actor.due_s = now_s + actor.restarts.record_failure(
                cause, delivered=actor.received, where=site
            )
        except ActorCrashed as error:
            self._give_up(actor, error, site, now_s)
            return
        self._enter(actor, Stage.PAUSED, now_s)

    def _give_up(self, actor: LeasedActor, error: ActorCrashed, site: str, now_s: float) -> None:
        self._enter(actor, Stage.ENDED, now_s)
        alive = sum(other.stage not in (Stage.ENDED, Stage.OFF) for other in self.actors)
        if not alive:
            raise error
        log.error("%s%s; the run continues with %s", error.message, site, pluralize(alive, "actor"))

    def _cancel_leases(self, actor: LeasedActor) -> None:
        """Cancels all leases of an actor; samples of the first may exist, so they count as lost."""
        if actor.leases:
            self._on_lost(actor.actor_id, actor.leases[0].samples)
        self.reserved -= sum(lease.samples for lease in actor.leases)
        actor.leases.clear()

    def _close_actor(self, actor: LeasedActor, now_s: float) -> None:
        self._enter(actor, Stage.CLOSING, now_s)
        self._transport.close(actor.actor_id)

    def _kill(self, actor: LeasedActor) -> None:
        if actor.stage not in NO_PROCESS:
            self._transport.kill(actor.actor_id)

    def _enter(self, actor: LeasedActor, stage: Stage, now_s: float) -> None:
        self.acting += (stage == Stage.ACTING) - (actor.stage == Stage.ACTING)
        actor.stage, actor.since_s = stage, now_s
