"""Evaluators and policies for a background process, scripted by a file."""

from __future__ import annotations

import logging
import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Evaluation, Evaluator, Policy
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.types import Array, Snapshot
from border_cli.evaluator.background_runner import SETTING, BackgroundEvaluationRunner, run
from border_cli.evaluator.runner import Confirmation
from border_cli.system.start import pack


class Weighed(Policy):
    """A policy with a single weight, which never acts."""

    weight = float("nan")

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        raise AssertionError(f"this policy must not act: {obs}, {explore}")

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self.weight = float(snapshot.arrays["w"][0])


class Scripted(Evaluator):
    """An evaluator that executes the next word of the script and scores the policy's weight.

    die: kills its process. raise: raises. hang: waits until it is killed. log: logs a warning.
    wait: waits until the file `go` exists next to the script. An extension of an evaluation adds an
    episode with half the return.
    """

    def __init__(self, script: Path, *, stop: StopFlag, heartbeat: Heartbeat) -> None:
        del stop
        self._script = script
        self._heartbeat = heartbeat

    def evaluate(self, policy: Policy) -> Evaluation:
        assert isinstance(policy, Weighed)
        self._heartbeat.beat()
        self._obey()
        score = policy.weight
        return Evaluation(
            score=score, returns=(score,), lengths=(1,), metrics={"eval/return": score}
        )

    def extend(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        assert isinstance(policy, Weighed)
        returns = (*evaluation.returns, policy.weight / 2)
        score = sum(returns) / len(returns)
        metrics = {"eval/return": score}
        lengths = (1,) * len(returns)
        return Evaluation(score=score, returns=returns, lengths=lengths, metrics=metrics)

    def _obey(self) -> None:
        word, _, rest = self._script.read_text().partition("\n")
        self._script.write_text(rest)
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "raise":
            raise ValueError("the evaluator is drunk")
        elif word == "hang":
            threading.Event().wait(60)
        elif word == "log":
            logging.getLogger("the.evaluator").warning("a word from the evaluator")
        elif word == "wait":
            pause = threading.Event()
            while not self._script.with_name("go").exists():
                pause.wait(0.01)

    def close(self) -> None:
        self._script.with_name("closed").touch()


def background_runner(
    script: Path,
    words: str = "",
    stop: StopFlag | None = None,
    confirmation: Confirmation = Confirmation(),  # noqa: B008 - immutable
) -> BackgroundEvaluationRunner:
    """Returns a runner whose process executes `words`, one line per evaluation."""
    script.write_text(words)
    parts = pack(SETTING, [], (partial(Scripted, script), Weighed, confirmation))
    return BackgroundEvaluationRunner(parts, stop=stop or StopFlag(), main=run)


def weighing(weight: float, opt_steps: int = 0) -> Snapshot:
    return Snapshot(
        opt_steps=opt_steps, env_steps=0, warm_up=False, arrays={"w": np.full(1, weight)}
    )
