"""The supervisor where processes cannot even be started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from fakes import FakeClock
from lanes import lane_of

from border_cli.actor_manager.lane import CLOSING
from border_cli.actor_manager.post import Post
from border_cli.actor_manager.supervisor import Supervisor
from border_cli.core.errors import ActorCrashed, RunFailed
from border_cli.process.bell import Bell
from border_cli.process.child_process import ChildProcess

StartLife = Callable[[int, int], ChildProcess]


class Watched:
    """A supervisor of two posts; its clock does not move, so that no pause ever ends."""

    def __init__(self, start_life: StartLife, *, most_restarts: int) -> None:
        self.bell = Bell()
        self.clock = FakeClock()
        self.lanes = [lane_of("vector", capacity=4) for _ in range(2)]
        self.posts = [
            Post(actor_id, lane, most_restarts) for actor_id, lane in enumerate(self.lanes)
        ]
        self.supervisor = Supervisor(
            self.posts, start_life=start_life, learner_bell=self.bell, clock=self.clock
        )

    def end(self) -> None:
        self.supervisor.close()
        self.supervisor.join(5)
        assert not self.supervisor.running
        for lane in self.lanes:
            lane.learner_bell.close()
            lane.close()
        self.bell.close()


@pytest.fixture
def watched() -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def _watched(start_life: StartLife, *, most_restarts: int) -> Watched:
        made.append(Watched(start_life, most_restarts=most_restarts))
        return made[-1]

    yield _watched
    for each in made:
        each.end()


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


@pytest.mark.parametrize("error", [ConnectionRefusedError("nobody there"), EOFError("cut off")])
def test_a_process_that_cannot_be_started_is_a_failed_life(
    watched: Callable[..., Watched], error: Exception
) -> None:
    def cannot(_actor_id: int, _life: int) -> ChildProcess:
        raise error

    one = watched(cannot, most_restarts=5)
    one.supervisor.start()
    until(lambda: all(post.restarts.made for post in one.posts))
    assert one.supervisor.crash is None
    assert [post.due_s for post in one.posts] == [0.1, 0.1]
    assert {post.waiting_for for post in one.posts} == {"its restart"}


def test_a_process_that_can_never_be_started_ends_the_run(watched: Callable[..., Watched]) -> None:
    def cannot(_actor_id: int, _life: int) -> ChildProcess:
        raise OSError("too many open files")

    one = watched(cannot, most_restarts=0)
    one.supervisor.start()
    until(lambda: not one.supervisor.running)
    assert isinstance(one.supervisor.crash, ActorCrashed)
    assert "too many open files" in str(one.supervisor.crash)
    assert all(post.ended for post in one.posts)
    assert all(lane.learner[CLOSING] for lane in one.lanes)


def test_a_defect_of_the_supervisor_reaches_the_learner_and_leaves_no_process(
    watched: Callable[..., Watched],
) -> None:
    events: list[str] = []

    class Alive:
        def kill(self) -> None:
            events.append("killed")

        def bury(self, status_s: float) -> str:
            assert status_s < 1
            events.append("buried")
            raise ValueError("it is stubborn")

    def start_one(actor_id: int, _life: int) -> ChildProcess:
        if actor_id == 0:
            return Alive()  # type: ignore[return-value]
        raise KeyError("a defect")

    one = watched(start_one, most_restarts=5)
    one.supervisor.start()
    until(lambda: not one.supervisor.running)
    assert isinstance(one.supervisor.crash, RunFailed)
    assert "the actor supervisor failed: KeyError('a defect')" in str(one.supervisor.crash)
    assert events == ["killed", "buried"]
    assert all(post.waiting_for == "nothing (it has ended)" for post in one.posts)
