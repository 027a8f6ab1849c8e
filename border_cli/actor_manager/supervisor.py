"""Starts, watches and restarts the processes of the actors."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait

from border_cli.actor_manager.lane import CLOSING, NOTHING, WAITS
from border_cli.actor_manager.post import Post
from border_cli.core.errors import ActorCrashed, RunFailed
from border_cli.core.timing import Clock
from border_cli.process.bell import Bell
from border_cli.process.child_process import ChildProcess

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0
STATUS_WHEN_CLOSING_S = 0.1  # for which its exit status may hold up the end of all

StartLife = Callable[[int, int], ChildProcess]  # actor id, life


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
        self._closing = self._killing = self._starting = self._abandoned = False
        self.crash: RunFailed | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        for post in posts:
            post.ask = self._bell.ring

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether any process may be alive."""
        return self._thread.is_alive() and not self._abandoned

    def close(self) -> None:
        """No life begins from now on; those that are end by their lanes."""
        self._closing = True
        self._bell.ring()

    def kill(self) -> None:
        """Ends those that do not end by themselves, each named with its stack."""
        self._killing = True
        self._bell.ring()
        if self._starting:  # it waits for a fork server that is stopped, perhaps for ever
            log.error("the fork server starts no actors and was abandoned")
            self._abandoned = True  # the thread touches nothing any more
            self._leave_nobody()

    def join(self, timeout_s: float) -> None:
        """Waits for the end of all processes."""
        if self._thread.ident is not None and not self._abandoned:
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._bell.close()

    def _run(self) -> None:
        try:
            while not all(post.ended for post in self._posts):
                self._start_those_due()
                if not all(post.ended for post in self._posts):
                    self._listen(self._pause_s())
        except BaseException as error:  # every death must reach the learner
            self._fail(error)
        finally:
            self._leave_nobody()
            self._learner_bell.ring()

    def _leave_nobody(self) -> None:
        """Where the thread fails or hangs: all are killed before anything else is done."""
        left = [post for post in self._posts if post.process is not None or not post.ended]
        for post in left:
            if post.process is not None:
                post.process.kill()
        for post in left:
            try:
                if post.process is not None:
                    self._bury(post)
            except Exception:
                log.exception("cleaning up %s failed", post.name)
            self._end(post)

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, RunFailed):
            failure = RunFailed(f"the actor supervisor failed: {error!r}")
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
                self._begin_life(post)

    def _begin_life(self, post: Post) -> None:
        self._starting = True
        try:
            post.process = self._start_life(post.actor_id, post.restarts.made)
        except (OSError, EOFError):  # no process or file is to be had, or no fork server
            why = f"its process could not be started:\n{traceback.format_exc()}"
            self._plan_next_life(post, why)
        finally:
            self._starting = False
        if self._abandoned:
            self._leave_nobody()

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
        stack = process.stack()
        if self._killing:
            log.error("killing %s, which did not stop in time; its stack:\n%s", post.name, stack)
        else:
            post.stack = stack
        process.kill()
        wait(process.news[-1:], _LOOK_AGAIN_S)

    def _replace(self, post: Post) -> None:
        """Its process is dead: counts what died with it and plans its next life."""
        post.stuck = False
        process = post.process
        why = self._bury(post)
        if post.stack is not None:
            why = f"{post.stack}\nkilled after making no step for trainer.stall_timeout_s"
            post.stack = None
        if process is not None and process.refusal is not None and not self._closing:
            self._end(post)
            self._fail(process.refusal)
            return
        if not self._closing:
            self._plan_next_life(post, why or "its process exited unexpectedly")
            return
        if why is not None and not self._killing:
            log.warning("%s failed while stopping:\n%s", post.name, why)
        self._end(post)

    def _plan_next_life(self, post: Post, why: str) -> None:
        try:
            post.due_s = self._clock.now_s() + post.failed(why)
        except ActorCrashed as error:
            log.error("actor %d failed and is not restarted", post.actor_id)
            self._end(post)
            self._fail(error)
            return
        log.warning(
            "actor %d failed, restart %d of %d:\n%s",
            post.actor_id, post.restarts.made, post.restarts.most, why,
        )  # fmt: skip

    def _bury(self, post: Post) -> str | None:
        process, post.process = post.process, None
        assert process is not None
        why = process.bury(STATUS_WHEN_CLOSING_S) if self._closing else process.bury()
        post.lane.bury()
        self._learner_bell.ring()  # it may wait for an answer that will not come
        return why

    def _end(self, post: Post) -> None:
        post.ended = True
        post.stopped_s = self._clock.now_s()
        self._learner_bell.ring()
