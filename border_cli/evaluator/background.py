"""Evaluation in a process of its own: training goes on meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Final

import numpy as np

from border_cli.core.config import StartMethod
from border_cli.core.errors import RunFailed
from border_cli.core.interfaces import Confirmation, Evaluation, EvaluationRunner, Evaluator, Policy
from border_cli.core.stop import Heartbeat, Pulse, StopFlag
from border_cli.core.types import Snapshot
from border_cli.process.child import READY, Pipe
from border_cli.process.child_process import ChildProcess
from border_cli.process.shared_memory import SharedArrays, integers
from border_cli.process.start import pack, start_context, unpack

log = logging.getLogger(__name__)

MakeEvaluator = Callable[..., Evaluator]  # takes `stop` and `heartbeat`

NICE = 5  # before the actors, behind the learner
MOST_LIVES = 3  # processes that may die over one snapshot
ENDS_S = 2.0  # within which an idle process ends by itself
LOOK_UP_S = 0.2
DONE: Final = "done"  # evaluation


class BackgroundEvaluationRunner(EvaluationRunner, Pulse):
    """Sends snapshots to a process and collects what it finds; the learner's thread calls it.

    The process is started by `open` and keeps its environments. One that dies or hangs over a
    snapshot is replaced, and the snapshot is judged again.
    """

    in_background = True
    name = "evaluation"
    thread_id = None  # its stack is in another process

    def __init__(
        self,
        make_evaluator: MakeEvaluator,
        make_policy: Callable[[], Policy],
        *,
        imports: Sequence[str],
        stop: StopFlag,
        confirmation: Confirmation = Confirmation(),  # noqa: B008 - it cannot be changed
    ) -> None:
        parts = make_evaluator, make_policy, confirmation
        self._recipe = pack("evaluator.background=true", imports, parts)
        self._stop = stop
        self._shared = SharedArrays([(np.dtype(np.int64), (1,))])
        self._beats = integers(self._shared.arrays[0])
        self._child: ChildProcess | None = None
        self._snapshot: Snapshot | None = None  # under judgement
        self._lives = 0  # of the process, over this snapshot

    @property
    def pulse(self) -> Pulse:
        return self

    @property
    def beats(self) -> int:
        return self._beats[0] + self._lives

    @property
    def waiting_for(self) -> str | None:
        child = self._child
        if not self.busy:
            return "its turn"
        return "its process to start" if child is not None and child.starting else None

    def revive(self) -> bool:
        """Ends the process; `collect` finds it dead and starts another one."""
        child = self._child
        if child is None:
            return False
        log.error("killing the evaluation, which made no step; its stack:\n%s", child.stack())
        child.kill()
        return True

    def open(self) -> None:
        """Starts the process."""
        self._child = self._start()

    def _start(self) -> ChildProcess:
        context = start_context(StartMethod.auto, [__name__])
        return ChildProcess(context, self.name, run, self._recipe, self._shared, nice=NICE)

    def submit(self, snapshot: Snapshot) -> None:
        assert not self.busy, "one snapshot at a time"
        self._snapshot, self._lives = snapshot, 0
        self._send()

    def _send(self) -> None:
        self._child = self._child or self._start()
        try:
            self._child.connection.send(self._snapshot)
        except OSError:
            return  # it is dead: `collect` finds out

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
        self._lives += 1
        if raised or self._lives >= MOST_LIVES:
            what = why.strip().rpartition("\n")[2]  # the last line of a traceback
            raise RunFailed(f"the evaluation failed: {what}", f"\n{why}" if raised else "")
        log.warning("restarting the evaluation: %s", why)
        self._send()

    def wait(self) -> Evaluation:
        while True:
            self._stop.check()
            evaluation = self.collect()
            if evaluation is not None:
                return evaluation
            assert self._child is not None, "nothing was submitted"
            wait(self._child.waitables, LOOK_UP_S)

    def close(self) -> None:
        """Ends the process: at once where it judges, else it closes its environments first."""
        child, self._child = self._child, None
        if child is not None:
            if self.busy:
                child.kill()
            child.connection.close()
            wait(child.waitables[-1:], ENDS_S)
            child.reap()
        self._shared.close()


class _ToldHeartbeat(Heartbeat):
    """Beats where another process sees it."""

    def __init__(self, shared: SharedArrays) -> None:
        super().__init__("evaluation")
        self._told = integers(shared.arrays[0])

    def beat(self) -> None:
        super().beat()
        self._told[0] += 1


def run(recipe: bytes, shared: SharedArrays, pipe: Pipe) -> None:
    """The process: judges snapshot after snapshot until the learner hangs up."""
    make_evaluator, make_policy, confirmation = unpack(recipe)
    pipe.send(READY)
    evaluator: Evaluator = make_evaluator(stop=StopFlag(), heartbeat=_ToldHeartbeat(shared))
    try:
        while True:
            snapshot = pipe.receive()
            policy: Policy = make_policy()  # a verdict does not depend on those before it
            policy.bind_thread()
            policy.load_snapshot(snapshot)
            pipe.send(DONE, confirmation.evaluated(evaluator, policy))
    except EOFError:
        return
    finally:
        evaluator.close()
