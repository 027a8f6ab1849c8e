"""Callbacks, selected by settings or passed in Python, in whole and resumed runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli import compose, resume, train
from tests.support.commands import QUICK, facts_of, train_status
from tests.support.remembering_callbacks import Remembers, StopsAt

pytestmark = pytest.mark.usefixtures("own_modules")

SMALL = (*QUICK, "env=cartpole", "run_dir=run", "recorder=none", "trainer.warmup_period=30")
PACE = ("trainer.max_opt_steps=90", "trainer.eval_interval=20", "trainer.save_interval=30")


@pytest.mark.parametrize("kind", ["trainer=sync", "actor_manager=serial"])
def test_a_resumed_run_tells_a_callback_what_a_whole_one_does(kind: str) -> None:
    whole, before, after = Remembers(), Remembers(), Remembers()
    train(compose(*SMALL, *PACE, kind, "run_dir=whole"), callbacks=[whole])
    result = train(compose(*SMALL, *PACE, kind), callbacks=[before, StopsAt(45)])
    assert (result.exit_reason, result.agent.opt_steps) == ("callback StopsAt: it is enough", 45)
    assert resume("run", callbacks=[after]).exit_reason == "max_opt_steps reached"
    additional = [call for call in after.told if call[:2] == ["checkpoint", 45]]
    assert [call for call in after.told if call not in additional] == whole.told
    assert {call[0] for call in whole.told} == {"episode", "update", "evaluation", "checkpoint"}
    assert (whole.around, after.around) == (["whole", "done"], ["run", "done"])


def test_a_run_that_a_callback_ended_goes_on_with_another_one(folder: Path) -> None:
    train(compose(*SMALL, *PACE, "trainer=sync"), callbacks=[StopsAt(45)])
    resume("run", callbacks=[StopsAt(60)])
    assert facts_of(folder / "run")["opt_steps"] == 60


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


def test_a_callback_in_the_settings_ends_a_run_until_it_is_changed(
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
