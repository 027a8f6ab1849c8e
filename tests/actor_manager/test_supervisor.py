"""The supervisor of actors, when processes cannot be started or when it fails itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from border_cli.actor_manager.shared_channel import CLOSING
from border_cli.actor_manager.supervisor import ActorHandle, Supervisor
from border_cli.errors import ActorCrashed, RunFailed
from border_cli.system.child_process import ChildProcess
from border_cli.system.shared_memory import WakePipe
from tests.support.actor_managers import until
from tests.support.channels import channel_of
from tests.support.fakes import FakeClock

StartIncarnation = Callable[[int, int], ChildProcess]


class Watched:
    """A supervisor of two actors. Its clock stands still, so that no delay ever ends."""

    def __init__(self, start_incarnation: StartIncarnation, *, most_restarts: int) -> None:
        self.pipe = WakePipe()
        self.clock = FakeClock()
        self.channels = [channel_of("vector", capacity=4) for _ in range(2)]
        self.handles = [
            ActorHandle(actor_id, channel, most_restarts, self.clock)
            for actor_id, channel in enumerate(self.channels)
        ]
        self.supervisor = Supervisor(
            self.handles,
            start_incarnation=start_incarnation,
            learner_pipe=self.pipe,
            clock=self.clock,
        )

    def end(self) -> None:
        self.supervisor.close()
        self.supervisor.join(5)
        assert not self.supervisor.running
        for channel in self.channels:
            channel.learner_pipe.close()
            channel.close()
        self.pipe.close()


@pytest.fixture
def watched() -> Iterator[Callable[..., Watched]]:
    supervised: list[Watched] = []

    def _watched(start_incarnation: StartIncarnation, *, most_restarts: int) -> Watched:
        supervised.append(Watched(start_incarnation, most_restarts=most_restarts))
        return supervised[-1]

    yield _watched
    for pair in supervised:
        pair.end()


@pytest.mark.parametrize("error", [ConnectionRefusedError("nobody there"), EOFError("cut off")])
def test_a_process_that_cannot_be_started_is_a_failed_life(
    watched: Callable[..., Watched], error: Exception
) -> None:
    def fail_to_start(_actor_id: int, _incarnation: int) -> ChildProcess:
        raise error

    pair = watched(fail_to_start, most_restarts=5)
    pair.supervisor.start()
    until(lambda: all(handle.due_s for handle in pair.handles))
    assert pair.supervisor.crash is None
    assert [handle.due_s for handle in pair.handles] == [0.1, 0.1]
    assert {handle.waiting_for for handle in pair.handles} == {"its restart"}


def test_a_process_that_can_never_be_started_ends_the_run(watched: Callable[..., Watched]) -> None:
    def fail_to_start(_actor_id: int, _incarnation: int) -> ChildProcess:
        raise OSError("too many open files")

    pair = watched(fail_to_start, most_restarts=0)
    pair.supervisor.start()
    until(lambda: not pair.supervisor.running)
    assert isinstance(pair.supervisor.crash, ActorCrashed)
    assert "too many open files" in str(pair.supervisor.crash)
    assert all(handle.ended for handle in pair.handles)
    assert all(channel.learner[CLOSING] for channel in pair.channels)


def test_a_defect_of_the_supervisor_reaches_the_learner_and_leaves_no_process(
    watched: Callable[..., Watched],
) -> None:
    events: list[str] = []

    class Alive:
        def kill(self) -> None:
            events.append("killed")

        def reap(self) -> str:
            events.append("buried")
            return "it was killed"

    def start_one(actor_id: int, _incarnation: int) -> ChildProcess:
        if actor_id == 0:
            return Alive()  # type: ignore[return-value]
        raise KeyError("a defect")

    pair = watched(start_one, most_restarts=5)
    pair.supervisor.start()
    until(lambda: not pair.supervisor.running)
    assert isinstance(pair.supervisor.crash, RunFailed)
    assert "the actor supervisor failed: KeyError('a defect')" in str(pair.supervisor.crash)
    assert events == ["killed", "buried"]
    assert all(handle.waiting_for == "nothing (it has ended)" for handle in pair.handles)
