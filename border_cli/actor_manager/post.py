"""One actor over all its processes."""

from __future__ import annotations

from collections.abc import Callable

from border_cli.actor_manager.actor_record import ActorRecord
from border_cli.actor_manager.lane import BEATS, MADE, WAITS, WAITS_FOR, Lane
from border_cli.actor_manager.restarts import Restarts
from border_cli.core.stop import Pulse
from border_cli.process.child_process import ChildProcess


class Post(Pulse):
    """One actor over all its lives; the supervisor's thread writes it, others read."""

    def __init__(self, actor_id: int, lane: Lane, most_restarts: int) -> None:
        self.actor_id = actor_id
        self.lane = lane
        self.restarts = Restarts(actor_id, most_restarts)
        self.before = ActorRecord(actor_id=actor_id)  # what it did before the run was resumed
        self.process: ChildProcess | None = None
        self.due_s = 0.0  # when its next life begins
        self.started_s: float | None = None
        self.stopped_s: float | None = None
        self.stuck = False  # the watchdog wants it to be replaced
        self.stack: str | None = None  # of the process that was killed because it was stuck
        self.ended = False
        self._delivered = 0  # samples of all lives until the last failure
        self.ask: Callable[[], None] = lambda: None  # wakes the supervisor

    def resume(self, record: ActorRecord) -> None:
        """Goes on from there; before anybody else has the post."""
        self.before = record
        self.restarts = Restarts(self.actor_id, self.restarts.most, before=record.restarts)
        self.lane.resume(record)

    def failed(self, why: str) -> float:
        """Takes why a process ended, whose lane is settled; seconds before the next life.

        What it wrote counts as delivered, whether or not the learner has taken it in yet.
        """
        if self.lane.actor[MADE] > self._delivered:
            self._delivered = self.lane.actor[MADE]
            self.restarts.delivered()
        return self.restarts.failed(why)

    @property
    def name(self) -> str:
        return f"actor {self.actor_id}"

    @property
    def beats(self) -> int:
        return int(self.lane.actor[BEATS]) + self.restarts.made

    @property
    def waiting_for(self) -> str | None:
        if self.ended:
            return "nothing (it has ended)"
        process = self.process
        if process is None:
            return "its restart"
        if process.starting:
            return "its process to start"
        return WAITS_FOR.get(self.lane.actor[WAITS])

    @property
    def thread_id(self) -> int | None:
        return None  # its stack is in another process

    def revive(self) -> bool:
        """Has its process replaced; False where that was asked before and did not happen."""
        if self.stuck:
            return False
        self.stuck = True
        self.ask()
        return True
