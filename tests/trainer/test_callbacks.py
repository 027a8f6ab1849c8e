"""Hooks of callbacks: their order and arguments, stop requests, errors and saved states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli.core.callback import Callback
from border_cli.core.interfaces import Evaluation
from border_cli.core.output import RecordStep, RunInfo
from border_cli.errors import ConfigError, RunFailed
from border_cli.trainer.callbacks import Callbacks, name_callbacks
from tests.support.remembering_callbacks import Remembers, StopsAt
from tests.support.trainers import BuiltTrainer

KINDS = [("sync", "serial"), ("async", "serial"), ("async", "thread"), ("async", "process")]
INFO = RunInfo(
    name="x", run_dir=Path(), max_opt_steps=None, max_env_steps=None, max_time_s=None
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_every_trainer_tells_the_same_in_the_same_order(kind: tuple[str, str]) -> None:
    callback = Remembers()
    BuiltTrainer(
        *kind, callbacks=[callback], max_opt_steps=5, eval_interval=2, save_interval=4
    ).train()
    assert [(hook, opt_steps) for hook, opt_steps, *_ in callback.told if hook != "episode"] == [
        *(("update", 1), ("update", 2), ("evaluation", 2), ("update", 3)),
        *(("update", 4), ("evaluation", 4), ("checkpoint", 4)),
        *(("update", 5), ("checkpoint", 5), ("evaluation", 5)),
    ]
    assert {score for hook, *_, score in callback.told if hook == "episode"} == {10.0}


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_the_update_after_which_one_stops_is_the_last(kind: tuple[str, str]) -> None:
    built = BuiltTrainer(*kind, callbacks=[StopsAt(9), StopsAt(7)])
    built.train()
    assert built.trainer.counters.opt_steps == built.checkpoints.saved[-1] == 7
    assert built.trainer.ended_by == "callback StopsAt_: it is enough"
    assert not built.stop.requested


class Breaks(Callback):
    def on_evaluation(self, moment: RecordStep, evaluation: Evaluation) -> None:
        del moment, evaluation
        raise KeyError("no such thing")


def test_what_a_hook_raises_ends_the_run_with_its_line() -> None:
    built = BuiltTrainer("sync", callbacks=[Breaks()], eval_interval=3)
    line = Breaks.on_evaluation.__code__.co_firstlineno + 2
    location = rf"test_callbacks\.py:{line}: KeyError: 'no such thing'"
    with pytest.raises(RunFailed, match=f"^callback Breaks failed in on_evaluation: .*{location}"):
        built.train()
    assert built.checkpoints.saved == [3]


class Keeps(Callback):
    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state = state


def test_a_state_is_copied_and_given_to_its_callback_alone() -> None:
    first, second = Keeps({"seen": [1, None, "a"], "sums": np.arange(3)}), Keeps({"of": 2.5})
    saved = Callbacks(name_callbacks([first, second])).state_dict()
    first.state["seen"].append(9)
    first.state["sums"] += 9
    fresh = [Keeps({}), Keeps({})]
    Callbacks({"Keeps_": fresh[0], "new": fresh[1]}).load_state_dict(saved)
    assert (fresh[0].state, fresh[1].state) == ({"of": 2.5}, {})
    assert saved["Keeps"]["state"]["seen"] == [1, None, "a"]
    assert saved["Keeps"]["state"]["sums"].tolist() == [0, 1, 2]


def test_a_state_that_no_checkpoint_can_hold_is_refused_as_the_run_begins() -> None:
    with pytest.raises(RunFailed, match=r"callback Keeps failed in state_dict: .*got \{1\}"):
        Callbacks(name_callbacks([Keeps({"seen": {1}})])).begin(INFO)


class Misspelt(Callback):
    def on_step(self) -> None:
        pass


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (Misspelt(), "callback Misspelt: unknown hook 'on_step'.*on_update"),
        (print, "callback builtin_function_or_method must be an instance of border_cli.Callback"),
    ],
)
def test_unknown_hooks_and_other_objects_are_refused(wrong: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Callbacks(name_callbacks([wrong]))
