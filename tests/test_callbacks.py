"""Callbacks of a run: chosen by settings or given in Python, across a resume."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

import pytest
from commands import QUICK, facts_of, train_status

from border_cli import Callback, compose, resume, train
from border_cli.core.interfaces import Evaluation
from border_cli.core.output import RecordStep, RunEnd, RunInfo
from border_cli.core.types import Episode, State
from border_cli.errors import RunFailed

pytestmark = pytest.mark.usefixtures("folder")

SMALL = (*QUICK, "env=cartpole", "run_dir=run", "recorder=none", "trainer.warmup_period=30")
PACE = ("trainer.max_opt_steps=90", "trainer.eval_interval=20", "trainer.save_interval=30")


class Remembers(Callback):
    """Keeps all that it is told, which a checkpoint holds, and the same without what it holds."""

    def __init__(self) -> None:
        self.told: list[list[Any]] = []
        self.around: list[str] = []

    def _tell(self, what: str, moment: RecordStep, value: float = 0.0) -> None:
        self.told.append([what, moment.opt_steps, moment.env_steps, value])

    def on_start(self, info: RunInfo) -> None:
        self.around.append(info.run_dir.name)

    def on_episode(self, moment: RecordStep, episode: Episode) -> None:
        self._tell("episode", moment, episode.score)

    def on_update(self, moment: RecordStep, metrics: Mapping[str, SupportsFloat]) -> None:
        self._tell("update", moment, float(metrics["loss"]))

    def on_evaluation(self, moment: RecordStep, evaluation: Evaluation) -> None:
        self._tell("evaluation", moment, evaluation.score)

    def on_checkpoint(self, moment: RecordStep, folder: Path) -> None:
        assert (folder / "manifest.json").is_file()
        self._tell("checkpoint", moment)

    def on_end(self, ended: RunEnd) -> None:
        self.around.append(ended.status)

    def state_dict(self) -> State:
        return {"told": self.told}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.told = state["told"]


class Stops(Callback):
    def on_update(self, moment: RecordStep, metrics: Mapping[str, SupportsFloat]) -> None:
        del metrics
        if moment.opt_steps == 45:
            self.stop("half of it")


@pytest.mark.parametrize("kind", ["trainer=sync", "actor_manager=serial"])
def test_a_resumed_run_tells_a_callback_what_a_whole_one_does(kind: str) -> None:
    whole, before, after = Remembers(), Remembers(), Remembers()
    train(compose(*SMALL, *PACE, kind, "run_dir=whole"), callbacks=[whole])
    result = train(compose(*SMALL, *PACE, kind), callbacks=[before, Stops()])
    assert (result.exit_reason, result.agent.opt_steps) == ("callback Stops: half of it", 45)
    assert resume("run", callbacks=[after]).exit_reason == "max_opt_steps reached"
    only_there = [each for each in after.told if each[:2] == ["checkpoint", 45]]
    assert [each for each in after.told if each not in only_there] == whole.told
    assert {each[0] for each in whole.told} == {"episode", "update", "evaluation", "checkpoint"}
    assert (whole.around, after.around) == (["whole", "done"], ["run", "done"])


class Breaks(Callback):
    def on_end(self, ended: RunEnd) -> None:
        raise ValueError(ended.status)


def test_a_hook_that_fails_at_the_end_fails_the_run() -> None:
    with pytest.raises(RunFailed, match=r"callback Breaks failed in on_end: .*ValueError: done"):
        train(compose(*SMALL, "trainer=sync"), callbacks=[Breaks()])
    assert facts_of(Path("run"))["status"] == "failed"


MODULE = """
from dataclasses import dataclass

from border_cli import Callback
from border_cli.registry import CALLBACKS
from border_cli.settings.base import setting
from border_cli.settings.run import CallbackConfig


@dataclass(kw_only=True)
class UntilConfig(CallbackConfig, path="callback.until"):
    \"\"\"Ends a run.\"\"\"

    updates: int = setting(3, "updates", low=1)


class Until(Callback):
    def __init__(self, config):
        self.updates = config.updates

    def on_update(self, moment, metrics):
        if moment.opt_steps >= self.updates:
            self.stop(f"{self.updates} updates")


CALLBACKS.register("until", UntilConfig, "until:Until")
"""
FILE = "# @package callback.until\ndefaults: [/schema/callback/until@_here_, _self_]\n"
TYPED = ("-cd", "conf", "imports=until", "callback=[until]")


def test_one_of_the_settings_ends_a_run_until_it_is_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "until.py").write_text(MODULE)
    (folder / "conf" / "callback").mkdir(parents=True)
    (folder / "conf" / "callback" / "until.yaml").write_text(FILE)
    run = Path("run")
    assert train_status(*TYPED, *SMALL, "trainer.max_opt_steps=50") == 0
    assert facts_of(run)["exit_reason"] == "callback until: 3 updates"
    assert "ended          callback until: 3 updates" in capsys.readouterr().out
    assert train_status("resume=run") == 0
    assert (facts_of(run)["opt_steps"], facts_of(run)["status"]) == (3, "done")
    assert train_status("resume=run", "callback.until.updates=5") == 0
    assert facts_of(run)["exit_reason"] == "callback until: 5 updates"
    assert train_status("resume=run", "~callback.until", "trainer.max_opt_steps=7") == 0
    assert facts_of(run)["exit_reason"] == "max_opt_steps reached"
    capsys.readouterr()
    assert train_status(*TYPED, "callback.until.updates=0", "env=cartpole") == 2
    assert "callback.until.updates must be at least 1, got 0" in capsys.readouterr().err
