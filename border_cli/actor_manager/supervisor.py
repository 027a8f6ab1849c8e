"""Starts, watches and restarts the processes of the actors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait

from border_cli.actor_manager.lane import BEATS, CLOSING, NOTHING, WAITS, WAITS_FOR, Lane
from border_cli.actor_manager.restarts import Restarts
from border_cli.core.clock import Clock
from border_cli.core.errors import ActorCrashed, RunFailed
from border_cli.core.stop import Pulse
from border_cli.process.bell import Bell
from border_cli.process.child_process import ChildProcess

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0

StartLife = Callable[[int, int], ChildProcess]  # actor id, life


class Post(Pulse):
    """One actor over all its lives; the supervisor's thread writes it, others read."""

    def __init__(self, actor_id: int, lane: Lane, most_restarts: int) -> None:
        self.actor_id = actor_id
        self.lane = lane
        self.restarts = Restarts(actor_id, most_restarts)
        self.most_restarts = most_restarts
        self.process: ChildProcess | None = None
        self.due_s = 0.0  # when its next life begins
        self.started_s: float | None = None
        self.stopped_s: float | None = None
        self.lost = 0  # samples that died with a process
        self.stuck = False  # the watchdog wants it to be replaced
        self.ended = False
        self.ask: Callable[[], None] = lambda: None  # wakes the supervisor

    @property
    def name(self) -> str:
        return f"actor {self.actor_id}"

    @property
    def beats(self) -> int:
        return int(self.lane.actor[BEATS]) + self.restarts.made

    @property
    def waiting_for(self) -> str | None:
        if self.ended:
            return "nothing: it has ended"
        if self.process is None:
            return "its next life"
        return WAITS_FOR.get(self.lane.actor[WAITS])

    @property
    def thread_id(self) -> int | None:
        return None  # its stack is in another process

    def revive(self) -> bool:
        """Has its process replaced; the stack of the stuck one is logged."""
        self.stuck = True
        self.ask()
        return True


class Supervisor:
    """Owns the processes between `start` and `join`; a thread of its own, which mostly sleeps."""

    def __init__(
        self, posts: Sequence[Post], *, start_life: StartLife, learner_bell: Bell, clock: Clock
    ) -> None:
        self._posts = posts
        self._start_life = start_life
        self._learner_bell = learner_bell
        self._clock = clock
        self._bell = Bell()
        self._closing = self._killing = False
        self.crash: RunFailed | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        for post in posts:
            post.ask = self._bell.ring

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether any process may be alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """No life begins from now on; those that are end by their lanes."""
        self._closing = True
        self._bell.ring()

    def kill(self) -> None:
        """Ends those that do not end by themselves, each named with its stack."""
        self._killing = True
        self._bell.ring()

    def join(self, timeout_s: float) -> None:
        """Waits for the end of all processes."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._bell.close()

    def _run(self) -> None:
        try:
            while not all(post.ended for post in self._posts):
                self._start_those_due()
                self._listen(self._pause_s())
        except BaseException as error:  # every death must reach the learner
            self._fail(error)
        finally:
            for post in self._posts:
                if post.process is not None:
                    post.process.kill()
                    self._bury(post)
            self._learner_bell.ring()

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, RunFailed):
            failure = RunFailed(f"the supervisor of the actors failed: {error!r}")
            failure.__cause__ = error
            error = failure
        self.crash = self.crash or error
        self._closing = True
        for post in self._posts:
            post.lane.learner[CLOSING] = 1
            post.lane.bell.ring()
        self._learner_bell.ring()

    def _start_those_due(self) -> None:
        for post in self._posts:
            if post.process is not None or post.ended:
                continue
            if self._closing:
                self._end(post)
            elif post.due_s <= self._clock.now_s():
                if post.started_s is None:
                    post.started_s = self._clock.now_s()
                post.process = self._start_life(post.actor_id, post.restarts.made)

    def _pause_s(self) -> float:
        """Until the next life is due."""
        now_s = self._clock.now_s()
        due = [post.due_s - now_s for post in self._posts if not post.process and not post.ended]
        return max(0.0, min([_LOOK_AGAIN_S, *due]))

    def _listen(self, timeout_s: float) -> None:
        news = [each for post in self._posts if post.process for each in post.process.news]
        wait([self._bell.fileno(), *news], timeout_s)
        self._bell.hush()
        for post in self._posts:
            process = post.process
            if process is None:
                continue
            process.listen()
            if process.alive and (self._killing or post.stuck):
                self._end_stuck(post, process)
            if not process.alive:
                self._replace(post)

    def _end_stuck(self, post: Post, process: ChildProcess) -> None:
        if post.stuck and not self._killing and post.lane.actor[WAITS] != NOTHING:
            post.stuck = False  # it moved in the meantime
            return
        why = "did not stop in time" if self._killing else "made no step"
        log.error("actor %d %s and is killed; its stack:\n%s", post.actor_id, why, process.stack())
        process.kill()
        wait(process.news[-1:], _LOOK_AGAIN_S)

    def _replace(self, post: Post) -> None:
        """Its process is dead: counts what died with it and plans its next life."""
        stuck, post.stuck = post.stuck, False
        why = self._bury(post)
        if self._closing:
            self._end(post)
            return
        if stuck:
            why = "it made no step for trainer.stall_timeout_s and was killed"
        why = why or "its process ended by itself"
        try:
            post.due_s = self._clock.now_s() + post.restarts.failed(why)
        except ActorCrashed as error:
            log.error("actor %d failed, no restart is left", post.actor_id)
            self._end(post)
            self._fail(error)
            return
        log.warning(
            "actor %d failed, restart %d of %d:\n%s",
            post.actor_id, post.restarts.made, post.most_restarts, why,
        )  # fmt: skip

    def _bury(self, post: Post) -> str | None:
        process, post.process = post.process, None
        assert process is not None
        why = process.bury()
        post.lost += post.lane.bury()
        return why

    def _end(self, post: Post) -> None:
        post.ended = True
        post.stopped_s = self._clock.now_s()
        self._learner_bell.ring()
