"""Whole runs with small images, such as those of MinAtar."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest

from border_cli import load_policy
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, eval_status, record_status, train_status
from tests.support.datasets import datasets_in

Capture = pytest.CaptureFixture[str]

CATCH = ("agent=dqn", "env.id=catch:Catch-v0", *QUICK, "recorder=none", "run_dir=run")
FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "truths": ({}, "10 x 10, 2 channels last, network minatar_cnn"),
    "bytes, channels first": (
        {"dtype": "uint8", "first": True, "side": 6},
        "6 x 6, 2 channels first, network minatar_cnn",
    ),
    "bytes of a large image": (
        {"dtype": "uint8", "high": 255, "side": 36},
        "36 x 36, 2 channels last, network nature_cnn",
    ),
}


def kwargs_override(kwargs: dict[str, Any]) -> str:
    return f"env.kwargs={json.dumps(kwargs).replace(chr(34), '')}"


@pytest.mark.parametrize("form", sampled([*FORMS], every=3))
@pytest.mark.parametrize("actor_manager", sampled(["serial", "thread", "process"], every=3))
def test_a_run_shows_the_form_of_small_images_and_stores_them_as_bytes(
    form: str, actor_manager: str, folder: Path, capsys: Capture
) -> None:
    kwargs, said = FORMS[form]
    assert train_status(*CATCH, kwargs_override(kwargs), f"actor_manager={actor_manager}") == 0
    assert f"images         {said}\n" in capsys.readouterr().out
    (rows,) = (folder / "run" / "checkpoints" / "replay").iterdir()
    stored = np.load(rows)  # large images follow as a separate array
    assert form == "bytes of a large image" or stored["obs"].dtype == kwargs.get("dtype", "bool")
    assert eval_status("run", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 1
    assert load_policy("run").act(gym.make("catch:Catch-v0", **kwargs).reset()[0]) in (0, 1, 2)


def test_another_network_is_refused_with_what_is_allowed(refusal: Callable[..., str]) -> None:
    said = refusal(*CATCH, "agent.network=nature_cnn")
    assert "agent.network=nature_cnn needs an image" in said
    assert "allowed here: auto, mlp, minatar_cnn, impala_resnet" in said


@pytest.mark.slow
def test_small_images_are_recorded_and_trained_on_offline(folder: Path, capsys: Capture) -> None:
    with datasets_in(folder / "datasets"):
        assert train_status(*CATCH) == 0
        assert record_status("run", "dataset=my/catch-v0", "episodes=3") == 0
        (episode, *_) = minari.load_dataset("my/catch-v0").iterate_episodes()
        assert episode.observations.dtype == np.bool_
        capsys.readouterr()
        offline = ("trainer=offline", "replay_buffer.dataset=my/catch-v0", "agent.hidden=[4]")
        status = train_status(
            *("agent=discrete_cql", "env.id=catch:Catch-v0", *offline, "agent.batch_size=4"),
            *("trainer.max_opt_steps=2", "evaluator.num_episodes=1", "run_dir=offline"),
        )
    assert status == 0
    assert "10 x 10, 2 channels last, network minatar_cnn" in capsys.readouterr().out
