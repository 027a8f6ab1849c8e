"""`border-env`: what it shows of good and broken environments, and its exit status."""

from __future__ import annotations

import json
import re
import shlex
import sys
import weakref
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import untried
from unruly import Answer, Calm

from border_cli.agent.value_config import IqnConfig
from border_cli.checks import env_report
from border_cli.cli.env import main
from border_cli.registry import AGENTS
from tests.support.case_sampling import sampled
from tests.support.commands import train_status

Capture = pytest.CaptureFixture[str]

FEW = ("random", "dqn", "iqn", "ppo", "sac")

pytestmark = pytest.mark.usefixtures("folder")
few_agents_fit = pytest.mark.usefixtures("few_agents")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def few_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves some agents, because trying all takes seconds."""
    entries = {entry.name: entry for entry in AGENTS if entry.name in FEW}
    monkeypatch.setattr(AGENTS, "_entries", entries)


def shown(capsys: Capture, *argv: str) -> str:
    """Returns the output of the command, with runs of spaces collapsed."""
    main(list(argv))
    return re.sub(" +", " ", capsys.readouterr().out)


def refused(capsys: Capture, *argv: str) -> str:
    """Returns the message with which the command ends with status 2."""
    with pytest.raises(SystemExit, match=r"^2$"):
        main(list(argv))
    return capsys.readouterr().err


def test_a_good_environment_with_the_command_that_trains_it(capsys: Capture, folder: Path) -> None:
    said = shown(capsys, "CartPole-v1")
    for line in (
        "observation Box(-inf, inf, (4,), float32), 4 numbers\n",
        "action Discrete(2)\n",
        "time limit 500\n",
        "same seed, same reset yes\n",
        "bytes per transition 48\n",
        "render modes human, rgb_array\n",
        "agents a2c, awac, bc, der, discrete_cql, discrete_sac, dqn, iql, iqn, ppo, qrdqn, rainb",
        "train with border-train agent=dqn env.id=CartPole-v1\n",
        "frame 600 x 400\n",
    ):
        assert line in said
    assert list(folder.iterdir()) == []


@few_agents_fit
def test_the_memory_of_an_agent_is_freed_before_the_next_is_built(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, built = AGENTS.build, list[weakref.ref[object]]()

    def build_alone(*settings: Any, **runtime: Any) -> object:
        assert not any(agent() for agent in built)
        agent = build(*settings, **runtime)
        built.append(weakref.ref(agent))
        return agent

    monkeypatch.setattr(AGENTS, "build", build_alone)
    shown(capsys, "CartPole-v1")
    assert len(built) == 3  # dqn, iqn and ppo


@few_agents_fit
def test_the_suggested_command_trains(capsys: Capture) -> None:
    said = shown(capsys, "border/Reach-v0", "imports=[reaching]")
    [words] = re.findall("train with border-train (.*)", said)
    typed = shlex.split(words)  # brackets are quoted, as zsh needs it
    assert typed[0] == "agent=sac"
    steps = ("trainer.max_opt_steps=2", "trainer.warmup_period=20", "evaluator.num_episodes=1")
    assert train_status(*typed, *steps, "agent.hidden=[4]", "recorder=none") == 0


@few_agents_fit
@pytest.mark.parametrize(
    ("env", "renderer", "suggested"),
    [
        (f"{__name__}:Camera", "egl", "MUJOCO_GL=egl border-train agent=dqn"),
        (f"{__name__}:Camera", None, "border-train agent=dqn"),  # there is a display
        ("CartPole-v1", "egl", "border-train agent=dqn"),
    ],
)
def test_the_suggested_command_has_the_renderer_that_cameras_of_mujoco_need(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, env: str, renderer: str | None, suggested: str
) -> None:
    monkeypatch.setattr("border_cli.cli.env.choose_renderer", lambda: renderer)
    monkeypatch.setitem(sys.modules, "mujoco", sys)
    assert f"train with {suggested}" in shown(capsys, env)


@few_agents_fit
def test_what_a_simulator_prints_is_no_part_of_the_document(
    capfd: pytest.CaptureFixture[str],
) -> None:
    main(["unruly:Prints", "env.kwargs.at=40", "--json"])
    printed = capfd.readouterr()
    assert json.loads(printed.out)["action"] == "Discrete(2)"
    assert printed.err.count("the simulator prints\n") == 2


@few_agents_fit
def test_the_document_of_a_preset(capsys: Capture) -> None:
    main(["mountaincar", "env.max_episode_steps=50", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["env"] == "MountainCar-v0"
    assert document["time limit"] == 50
    assert document["limit from"] == "env.max_episode_steps"
    assert document["train with"] == (
        "border-train agent=dqn env=mountaincar env.max_episode_steps=50"
    )
    assert document["env steps/s"] > 0


class Metered(Calm):
    """An environment with numbers and text in `info`, and no time limit."""

    def step(self, action: Any) -> Answer:
        return *super().step(action)[:4], {"speed": 1.5, "place": "home"}


class Silent(Calm):
    """An environment whose step returns no `info`."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], None


class Unseeded(Calm):
    """An environment that ignores its seed."""

    def observe(self) -> Any:
        return np.random.default_rng().uniform(-1, 1, 3).astype(np.float32)


class Undefined(Calm):
    """An environment that observes a NaN in each episode."""

    def observe(self) -> Any:
        is_late = self.steps_of_episode == 10
        return np.array([0, np.nan if is_late else 0, 0], np.float32)


class Unbounded(Calm):
    """An environment whose actions have no bounds."""

    action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)  # type: ignore[assignment]


class Camera(Calm):
    """An environment that observes an image."""

    observation_space = gym.spaces.Box(0, 255, (12, 12, 3), np.uint8)  # type: ignore[assignment]

    def observe(self) -> Any:
        return np.zeros((12, 12, 3), np.uint8)


class Distant(Calm):
    """An environment that observes more than its space allows, and never ends."""

    def observe(self) -> Any:
        return np.full(3, 7.0, np.float32)

    def step(self, action: Any) -> Answer:
        return *super().step(action)[:2], False, False, {}


@few_agents_fit
@pytest.mark.parametrize(
    ("env_id", "lines"),
    sampled(
        [
            (
                f"{__name__}:Metered",
                ["info speed", "longest episode 20, 20"],
            ),
            (
                f"{__name__}:Unseeded",
                ["same seed, same reset no"],
            ),
            (f"{__name__}:Silent", ["check_env AssertionError", "agents a2c"]),
            ("unruly:Vast-v0 env.kwargs.states=40000", ["agents a2c"]),
            (f"{__name__}:Unbounded", ["agents a2c, ppo", "train with border-train agent=ppo"]),
            (
                f"{__name__}:Distant",
                [
                    "check_env AssertionError: The first element returned by `env.reset()` is not",
                ],
            ),
            (
                "global_draws:Guess",
                ["random or np.random yes", "same reset yes"],
            ),
            ("masked:masked/Strict-v0", ["action mask yes"]),
        ],
        every=3,
    ),
)
def test_doubtful_environments_are_described(
    capsys: Capture, env_id: str, lines: list[str]
) -> None:
    said = shown(capsys, *env_id.split())
    assert [line for line in lines if line not in said] == []


@pytest.mark.parametrize(
    ("words", "said"),
    sampled(
        [
            (["untried:FourValues-v0"], "step must return observation, reward, terminated"),
            (["untried:Misshapen-v0"], "does not fit"),
            (["untried:Breaks-v0"], "step raised KeyError: 'joint_7'"),
            ([f"{__name__}:Undefined"], "step 10 returns a value that is not finite"),
            (["untried:Hangs-v0", "env.kwargs.where=reset"], "reset did not return within 1 s"),
            (["untried:Hangs-v0", "env.kwargs.where=its constructor"], "did not return within 1 s"),
            (["NoSuch-v3"], "env.id=NoSuch-v3 is not registered with Gymnasium"),
            (["agent=random"], "env.id must be set"),
        ],
        every=4,
    ),
)
def test_broken_environments_are_refused(capsys: Capture, words: list[str], said: str) -> None:
    message = refused(capsys, *words, "trainer.stall_timeout_s=1")
    assert message.startswith("border-env: ")
    assert said in message


@few_agents_fit
def test_a_rendering_that_hangs_does_not_prevent_the_report(capsys: Capture) -> None:
    said = shown(capsys, "untried:Hangs-v0", "env.kwargs.where=render", "trainer.stall_timeout_s=1")
    assert "agents a2c" in said
    assert "frame env.id=untried:Hangs-v0: render did not return within 1 s" in said


@few_agents_fit
def test_a_dry_run_shows_the_environment_too(capsys: Capture) -> None:
    untried.Counted.made = 0
    assert train_status("env.id=untried:Counted-v0", "dry_run=true") == 0
    said = re.sub(" +", " ", capsys.readouterr().out)
    assert "check_env " in said
    assert "same seed, same reset yes" in said


@few_agents_fit
@pytest.mark.parametrize("reason", ["can't allocate memory", "shapes do not match"])
def test_only_a_failed_allocation_leaves_an_agent_out(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """torch raises RuntimeError for both."""
    build = AGENTS.build

    def build_or_fail(config: object, **runtime: Any) -> object:
        if isinstance(config, IqnConfig):
            raise RuntimeError(f"DefaultCPUAllocator: {reason}")
        return build(config, **runtime)

    monkeypatch.setattr(AGENTS, "build", build_or_fail)
    if "allocate" in reason:
        assert "dqn, ppo, rainbow" in shown(capsys, "CartPole-v1")  # without iqn
    else:
        with pytest.raises(RuntimeError, match=reason):
            main(["CartPole-v1"])


@few_agents_fit
def test_if_no_agent_fits_each_says_why(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_report, "free_memory", lambda: 1000)
    reasons = [line.strip() for line in refused(capsys, "CartPole-v1").splitlines()[1:]]
    assert any(reason.startswith("dqn does not fit in memory: ") for reason in reasons)
    assert any(reason.startswith("agent=sac needs a Box action space") for reason in reasons)
    assert len(reasons) == len(list(AGENTS)) - 1  # all but the random agent
