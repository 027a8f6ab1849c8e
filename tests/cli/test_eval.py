"""`border-eval`: evaluating the saved models of a run."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import unruly

from border_cli.env.gym_env import GymEnv
from tests.support import commands
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, eval_status, facts_of, train_status

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best model is not its latest one."""
    folder = tmp_path_factory.mktemp("eval")
    with commands.isolated(folder):
        status = train_status(
            "env=cartpole",
            "actor_manager=serial",
            "trainer.max_opt_steps=160",
            "trainer.stop_at_score=null",
            "trainer.warmup_period=50",
            "trainer.eval_interval=20",
            "trainer.save_interval=80",
            "agent.hidden=[8]",
            "evaluator.num_episodes=3",
            "recorder=none",
            "quiet=true",
            "run_dir=run",
        )
    assert status == 0
    return folder / "run"


@pytest.fixture
def copied(run_dir: Path, folder: Path) -> Path:
    """A copy of the run that a test may damage."""
    shutil.copytree(run_dir, folder / "copy", symlinks=True)
    return folder / "copy"


@pytest.fixture
def judged(folder: Path, capsys: Capture) -> Any:
    """Runs `border-eval --json` in the current directory; returns the printed object."""
    assert folder

    def _judged(*argv: object) -> dict[str, Any]:
        assert eval_status(*map(str, argv), "--json") == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return document

    return _judged


def test_without_a_seed_the_recorded_best_score_is_reproduced(run_dir: Path, judged: Any) -> None:
    facts = facts_of(run_dir)
    result = judged(run_dir)
    assert result["mean"] == facts["best_score"]
    assert (result["checkpoint"], result["seed"], result["episodes"]) == ("best", None, 3)
    recorded = json.loads((run_dir / "best" / "score.json").read_text())
    assert (result["returns"], result["lengths"]) == (recorded["returns"], recorded["lengths"])


def test_a_score_that_ended_a_run_includes_the_confirming_episodes_and_is_reproduced(
    folder: Path, judged: Any, capsys: Capture
) -> None:
    status = train_status(
        *("env=cartpole", "actor_manager=serial", "agent.hidden=[8]", "evaluator.num_episodes=3"),
        *("trainer.warmup_period=50", "trainer.eval_interval=20", "trainer.max_opt_steps=160"),
        *("trainer.stop_at_score=1", "trainer.stop_evals=1", "trainer.stop_confirmations=3"),
        *("recorder=jsonl", "quiet=true", "run_dir=run"),
    )
    facts = facts_of(folder / "run")
    assert (status, facts["exit_reason"]) == (0, "stop_at_score reached")
    recorded = json.loads((folder / "run" / "best" / "score.json").read_text())
    assert len(recorded["returns"]) == 12
    result = judged(folder / "run")
    assert (result["returns"], result["mean"]) == (recorded["returns"], facts["best_score"])
    assert result["confirming"] == 9
    assert judged(folder / "run", "episodes=5")["returns"] == recorded["returns"][:5]
    assert eval_status(str(folder / "run")) == 0
    assert (
        "3 episodes and 9 more that confirmed the score (trainer.stop_" in capsys.readouterr().out
    )


def test_a_seed_means_fresh_episodes_that_repeat(run_dir: Path, judged: Any) -> None:
    fresh = judged(run_dir, "seed=7", "episodes=5")
    assert len(fresh["returns"]) == 5
    assert judged("episodes=5", run_dir, "seed=7") == fresh
    assert judged(run_dir, "seed=8", "episodes=5")["returns"] != fresh["returns"]
    assert judged(run_dir, "seed=7", "episodes=2")["returns"] == fresh["returns"][:2]


def test_other_checkpoints_can_be_chosen(run_dir: Path, judged: Any, capsys: Capture) -> None:
    latest = judged(run_dir, "checkpoint=latest")
    assert latest["mean"] == facts_of(run_dir)["final_score"]
    assert judged(run_dir, "checkpoint=160")["returns"] == latest["returns"]
    assert eval_status(str(run_dir), "checkpoint=80") == 0
    assert "   80 at 80 updates   the run's evaluation seeds\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "checkpoint"),
    sampled(
        [
            ("best", "best"),
            ("checkpoints/latest", "latest"),
            ("checkpoints/80", "80"),
            ("checkpoints/0000000080", "80"),
        ],
        every=4,
    ),
)
def test_a_checkpoint_can_be_named_by_its_path(
    run_dir: Path, judged: Any, monkeypatch: pytest.MonkeyPatch, place: str, checkpoint: str
) -> None:
    expected = judged(run_dir, f"checkpoint={checkpoint}")
    assert judged(run_dir / place) == expected
    monkeypatch.chdir(run_dir)
    assert judged(place) == expected
    if (run_dir / place).exists():  # also from inside the checkpoint
        monkeypatch.chdir(run_dir / place)
        assert judged(".")["returns"] == expected["returns"]


BAD = """
from gymnasium.envs.classic_control import CartPoleEnv
class Bad(CartPoleEnv):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, float({score!r}) if terminated else reward, terminated, truncated, info
"""


@pytest.mark.parametrize("score", ["nan", "inf"])
def test_a_score_that_is_not_finite_is_printed_and_ends_with_status_1(
    copied: Path, folder: Path, score: str, capsys: Capture
) -> None:
    (folder / "bad.py").write_text(BAD.format(score=score))
    assert eval_status(str(copied), "env.id=bad:Bad", "episodes=2") == 1
    out, err = capsys.readouterr()
    assert f"mean {score}" in out
    assert re.search(rf"the score is not finite: episode 0 ended after \d+ steps with {score}", err)
    sys.modules.pop("bad")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a window always opens")
def test_a_window_without_a_display_is_refused_before_the_run_is_opened(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert eval_status("nowhere", "render=human") == 2
    said = capsys.readouterr().err
    assert said.startswith("border-eval: render=human needs a display, and neither DISPLAY nor WAY")
    assert "xvfb-run" in said


def test_the_last_line_says_the_same_as_json(run_dir: Path, judged: Any, capsys: Capture) -> None:
    result = judged(run_dir, "seed=3", "episodes=4")
    assert eval_status(str(run_dir), "seed=3", "episodes=4") == 0
    lines = capsys.readouterr().out.splitlines()
    returns = result["returns"]
    figures = f"mean {result['mean']:.2f} std {result['std']:.2f} min {min(returns):g} max "
    assert lines[-1] == f"{figures}{max(returns):g} episodes 4"
    rows = [line.split() for line in lines if re.match(r" *\d+ ", line)]
    assert [float(row[1]) for row in rows] == returns


def test_without_a_best_model_the_latest_is_taken_and_said(copied: Path, capsys: Capture) -> None:
    (copied / "best").unlink()
    assert eval_status(str(copied)) == 0
    out, err = capsys.readouterr()
    assert err == f"border-eval: {copied} has no best model; using the latest\n"
    assert "latest at 160 updates" in out


def test_a_run_can_be_judged_while_it_goes_on(copied: Path, judged: Any) -> None:
    facts = facts_of(copied) | {"status": "running", "ended": None}
    (copied / "run.json").write_text(json.dumps(facts))
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    assert judged(copied)["mean"] == facts["best_score"]
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before


def test_a_damaged_model_is_refused_by_name(copied: Path, capsys: Capture) -> None:
    model = (copied / "best").resolve() / "agent.npz"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    assert eval_status(str(copied)) == 2
    assert f"border-eval: {model} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nowhere"], "no such directory: nowhere\n"),
        (
            ["."],
            "it has no .hydra/resolved.yaml; border-runs . lists the runs below it\n",
        ),
        (
            ["RUN/run.json"],
            "run.json is not a run directory: it has no .hydra/resolved.yaml; the run is",
        ),
        (["RUN/checkpoints/70"], "RUN has no checkpoint 70 (choose from best, 80, 160, latest)"),
        (["RUN/best", "checkpoint=80"], "best is a checkpoint: remove checkpoint=80, or use"),
        (
            ["RUN", "checkpoint=first"],
            "has no checkpoint first (choose from best, 80, 160, latest)",
        ),
        (["RUN", "episods=3"], "unknown option 'episods', did you mean episodes?"),
        (["RUN", "episodes=0"], "episodes must be an integer of at least 1, got '0'"),
        (["RUN", "RUN"], "give one run directory, got 2"),
    ],
)
def test_what_is_not_understood_is_refused(
    run_dir: Path, folder: Path, capsys: Capture, argv: list[str], said: str
) -> None:
    assert folder
    assert eval_status(*(word.replace("RUN", str(run_dir)) for word in argv)) == 2
    out, err = capsys.readouterr()
    assert err.startswith("border-eval: ")
    assert said.replace("RUN", str(run_dir)) in err
    assert out == ""


@pytest.mark.usefixtures("folder")
def test_shown_episodes_are_those_of_the_evaluation_one_after_another(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # renders without opening a window
    settings = ("imports=[unruly]", "env.id=Shows-v0", "run_dir=run", "recorder=none")
    assert train_status(*settings, *QUICK, "quiet=true") == 0
    monkeypatch.setattr(unruly.Shows, "drawn", 0)
    monkeypatch.setattr(unruly.Shows, "opened", [])
    assert eval_status("run", "render=human", "episodes=3", "--json") == 0
    assert unruly.Shows.drawn == 3 * unruly.EPISODE_STEPS
    assert len(set(unruly.Shows.opened)) == 3
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert eval_status("run", "episodes=3", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == shown


def test_a_signal_ends_an_evaluation_between_two_steps(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def step(env: GymEnv, action: Any) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGTERM)
        return env.step(action)

    monkeypatch.setattr(GymEnv, "step", step)
    assert eval_status(str(run_dir)) == 143
    assert tuple(capsys.readouterr()) == ("", "border-eval: interrupted\n")


def test_trust_finds_the_modules_of_a_run_from_another_directory(
    folder: Path, write: Any, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    write(
        "there/found_there.py",
        "from gymnasium.envs.classic_control import CartPoleEnv\n\n\n"
        "class Cart(CartPoleEnv):\n    pass\n",
    )
    monkeypatch.chdir(folder / "there")
    monkeypatch.syspath_prepend(folder / "there")
    settings = ("env.id=found_there:Cart", "env.max_episode_steps=5", "recorder=none")
    assert train_status(*QUICK, *settings, "run_dir=run") == 0
    assert facts_of(folder / "there/run")["import_paths"] == [str(folder / "there")]
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    del sys.modules["found_there"]
    assert eval_status("there/run") == 2
    assert f"had found its modules in: {folder / 'there'}" in capsys.readouterr().err
    assert eval_status("there/run", "trust=true") == 0
    del sys.modules["found_there"]


class Paying(gym.Env[Any, Any]):
    """An environment with the same reward in every step."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, pay: float = 1.0, steps: int = 5) -> None:
        self._pay, self._steps = pay, steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._step = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        self._step += 1
        return np.zeros(1, np.float32), self._pay, False, self._step >= self._steps, {}


def test_what_is_typed_of_env_wins_over_both_environments_and_the_output_says_what_differs(
    judged: Any, capsys: Capture
) -> None:
    env = (f"env.id={__name__}:Paying", "env.kwargs.pay=2", "evaluator.env.kwargs.pay=4")
    assert train_status(*QUICK, *env, "recorder=none", "run_dir=run") == 0
    assert judged("run")["mean"] == 20
    assert judged("run")["env_changes"] == []
    result = judged("run", "env.kwargs.pay=5", "env.kwargs.steps=3")
    changes = ["env.kwargs.pay: 4 -> 5", "env.kwargs.steps: absent -> 3"]
    assert (result["mean"], result["env_changes"]) == (15, changes)
    assert judged("run", "env.kwargs={pay: 7}")["mean"] == 35
    assert eval_status("run", "env.kwargs.pay=5") == 0
    assert "(env.kwargs.pay: 4 -> 5): not the recorded score" in capsys.readouterr().out
    assert eval_status("run", "env.pay=5") == 2
    assert "unknown setting 'env.pay'" in capsys.readouterr().err


def test_what_is_not_typed_of_env_stays_as_evaluations_had_it(judged: Any) -> None:
    evaluation = "evaluator.env={max_episode_steps: 2, kwargs: {pay: default}}"
    typed = (f"env.id={__name__}:Paying", "env.kwargs.pay=3", evaluation)
    assert train_status(*QUICK, *typed, "recorder=none", "run_dir=run") == 0
    result = judged("run", "env={kwargs: {steps: 9}}")
    assert result["lengths"] == [2]
    assert result["env_changes"] == ["env.kwargs.steps: absent -> 9"]


def test_a_score_that_is_not_finite_is_null_in_json(
    copied: Path, folder: Path, capsys: Capture
) -> None:
    (folder / "bad.py").write_text(BAD.format(score="nan"))
    assert eval_status(str(copied), "env.id=bad:Bad", "episodes=2", "--json") == 1
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document["mean"] is None
    sys.modules.pop("bad")
