"""Runs evaluations in a separate process while training continues.

One evaluation runs at a time; an evaluation that comes due meanwhile is skipped with a warning. If
the process dies or hangs, a new one evaluates the snapshot again, up to three processes in all. An
exception in the evaluator ends the run. The end of a run waits for a running evaluation. By
default, a bit-reproducible run evaluates inline (`runner.py`), because the time at which a
background result arrives depends on the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any, Final

import numpy as np

from border_cli.core.interfaces import ActorManager, Evaluation, EvaluationRunner, Evaluator, Policy
from border_cli.core.stop import Heartbeat, MonitoredPart, StopFlag
from border_cli.core.types import Snapshot
from border_cli.errors import RunFailed
from border_cli.evaluator.runner import EvaluationParts
from border_cli.settings.run import StartMethod
from border_cli.system.child import READY, Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.shared_memory import SharedArrays, integers
from border_cli.system.start import pack, start_context, unpack

log = logging.getLogger(__name__)

SETTING: Final = "evaluator.background=true"
NICE = 5  # lower priority than the learner, as for actor processes
MAX_INCARNATIONS = 3  # processes per snapshot
ENDS_S = 2.0  # time for an idle process to exit
LOOK_UP_S = 0.2
DONE: Final = "done"  # evaluation


class BackgroundEvaluationRunner(EvaluationRunner, MonitoredPart):
    """A runner that evaluates in a separate process; called by the learner's thread.

    `open` starts the process, which reuses its environments.
    """

    in_background = True
    name = "evaluation"
    thread_id = None  # its stack is in another process

    @classmethod
    def of(cls, parts: EvaluationParts) -> EvaluationRunner:
        """Creates the runner of a run."""
        pieces = parts.make_evaluator, parts.make_policy, parts.confirmation
        return cls(pack(SETTING, parts.imports, pieces), stop=parts.stop, main=run)

    def __init__(self, packed: bytes, *, stop: StopFlag, main: Callable[..., None]) -> None:
        """`main` runs in the process, with `packed` as its first argument."""
        self._packed = packed
        self._main = main
        self._stop = stop
        self._shared = SharedArrays([(np.dtype(np.int64), (1,))])
        self._beats = integers(self._shared.arrays[0])
        self._child: ChildProcess | None = None
        self._snapshot: Snapshot | None = None  # being evaluated
        self._incarnations = 0  # processes that failed on this snapshot
        self._on_step: Callable[[], None] = lambda: None
        self._sent = 0  # snapshots sent, including repetitions

    @property
    def pulse(self) -> MonitoredPart:
        return self

    @property
    def beats(self) -> int:
        return self._beats[0] + self._sent

    @property
    def waiting_for(self) -> str | None:
        child = self._child
        if not self.busy:
            return "its turn"
        return "its process to start" if child is not None and child.starting else None

    def restart(self) -> bool:
        """Kills the process; `collect` detects its death and starts a new one."""
        child = self._child
        if child is None:
            return False
        log.error("killing the evaluation, which makes no progress; its stack:\n%s", child.stack())
        child.kill()
        return True

    def open(self, actors: ActorManager | None = None) -> None:
        """Starts the process."""
        del actors
        self._child = self._start()

    def _start(self) -> ChildProcess:
        context = start_context(StartMethod.auto, [__name__])
        arguments = *self._arguments(), self._shared
        return ChildProcess(context, self.name, self._main, *arguments, nice=NICE)

    def _arguments(self) -> tuple[Any, ...]:
        """Returns the arguments of `main` that precede the shared memory."""
        return (self._packed,)

    def on_step(self, call: Callable[[], None]) -> None:
        self._on_step = call

    def submit(self, snapshot: Snapshot) -> None:
        assert not self.busy, "one snapshot at a time"
        self._incarnations = 0
        self._send(snapshot)

    def _send(self, snapshot: Snapshot) -> None:
        self._sent += 1  # first, so that an active part shows progress
        self._snapshot = snapshot
        self._child = self._child or self._start()
        try:
            self._child.connection.send(snapshot)
        except OSError:
            return  # the process is dead, which `collect` detects

    @property
    def busy(self) -> bool:
        return self._snapshot is not None

    def collect(self) -> Evaluation | None:
        child = self._child
        if child is None or not self.busy:
            return None
        child.listen()
        if child.inbox:
            self._snapshot = None
            evaluation: Evaluation = child.inbox.popleft()[1]
            return evaluation
        if not child.alive:
            self._replace(child)
        return None

    def _replace(self, child: ChildProcess) -> None:
        self._child = None
        if child.refusal is not None:
            child.reap()
            raise child.refusal
        why, raised = child.reap() or "its process exited unexpectedly", child.traceback is not None
        if child.killed and not raised:
            why = "killed after making no step for trainer.stall_timeout_s"
        self._incarnations += 1
        if raised or self._incarnations >= MAX_INCARNATIONS:
            summary = why.strip().rpartition("\n")[2]  # last line of a traceback
            raise RunFailed(f"the evaluation failed: {summary}", f"\n{why}" if raised else "")
        log.warning("restarting the evaluation: %s", why)
        assert self._snapshot is not None, "nothing was submitted"
        self._send(self._snapshot)

    def wait(self) -> Evaluation:
        while True:
            self._stop.check()
            self._on_step()
            evaluation = self.collect()
            if evaluation is not None:
                return evaluation
            assert self._child is not None, "nothing was submitted"
            wait(self._child.waitables, LOOK_UP_S)

    def close(self) -> None:
        """Ends the process: kills it during an evaluation, else lets it close its environments."""
        child, self._child = self._child, None
        if child is not None:
            if self.busy:
                child.kill()
            child.connection.close()
            wait(child.waitables[-1:], ENDS_S)
            child.reap()
        self._shared.close()


class SharedHeartbeat(Heartbeat):
    """A heartbeat in shared memory, so that another process can read it."""

    def __init__(self, shared: SharedArrays) -> None:
        super().__init__("evaluation")
        self._shared = integers(shared.arrays[0])

    def beat(self) -> None:
        super().beat()
        self._shared[0] += 1


def run(packed: bytes, shared: SharedArrays, pipe: Pipe) -> None:
    """The main function of the process: evaluates snapshots until the learner closes the pipe.

    `packed` contains `make_evaluator`, `make_policy` and `confirmation` of `EvaluationParts`.
    """
    make_evaluator, make_policy, confirmation = unpack(packed)
    heartbeat = SharedHeartbeat(shared)
    heartbeat.beat()
    pipe.send(READY)
    evaluator: Evaluator = make_evaluator(stop=StopFlag(), heartbeat=heartbeat)
    try:
        while True:
            snapshot = pipe.receive()
            policy: Policy = make_policy()  # new, so that results are independent
            policy.bind_thread()
            pipe.send(DONE, confirmation.evaluate(evaluator, policy, snapshot))
    except EOFError:
        return
    finally:
        evaluator.close()
