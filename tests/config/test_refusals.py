"""Invalid settings: the error names the file, the key, the value, and what is allowed."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli.config.check import check_settings
from border_cli.config.compose import compose
from border_cli.env.config import GymConfig
from border_cli.errors import ConfigError
from border_cli.registry import GROUPS
from border_cli.settings.base import flat
from border_cli.settings.other_libraries import SETTINGS
from border_cli.settings.run import RunConfig
from tests.support.case_sampling import sampled

Write = Callable[[str, str], Path]

TYPED = [
    ("agent=dqm", "unknown agent 'dqm', did you mean dqn? (choose from a2c, awac, bc, "),
    ("agnet=dqn", "unknown setting 'agnet', did you mean agent? (a run has seed, name, "),
    ("agent.gama=1", "unknown setting 'agent.gama', did you mean agent.gamma? (agent has gamma, "),
    ("evaluator.env.max_episode_step=5", "unknown setting 'evaluator.env.max_episode_step', did "),
    ("evaluator.env.max_episode_steps=abc", "evaluator.env.max_episode_steps must be an integer"),
    ("agent.gamma=abc", "agent.gamma must be a number (at least 0 and at most 1): Value 'abc'"),
    ("agent.gamma=2", "agent.gamma must be at least 0 and at most 1, got 2.0"),
    ("trainer.max_opt_steps=1.5", "trainer.max_opt_steps must be an integer or null (at least 1)"),
    ("agent.loss=hubr", "agent.loss must be one of huber, mse: Invalid value 'hubr'"),
    ("agent.hidden=[1,a]", "agent.hidden[1]: Value 'a'"),
    ("trainer.warmup_period=200000", "must be at most replay_buffer.capacity (100000), got 200000"),
    ("agent=[dqn,random]", "unknown agent ['dqn', 'random'] (choose from a2c, "),
    ("+agent.gamma=0.5", "An item is already at 'agent.gamma'"),
    ("dqn", "'dqn' cannot be read: write key=value"),
    ("~agent", "~agent: a run needs one agent"),
    ("seed=1,2", "seed=1,2 has several values: add -m to run a job for each; write a list as "),
    ("seed=${nope}", "Interpolation key 'nope' not found"),
    ("imports=[no_such_module]", "imports: 'no_such_module' cannot be imported from"),
    ("hydra/sweeper=optuna", "pip install hydra-optuna-sweeper; it excludes Optuna 5"),
    ("hydra/launcher=nope", "unknown hydra/launcher 'nope' (choose from basic, "),
    ("gamma=0.9", "unknown setting 'gamma', did you mean agent.gamma?"),
    ("agent.lr=1e-3", "unknown setting 'agent.lr': here it is agent.learning_rate (agent has "),
    ("total_timesteps=1000", "unknown setting 'total_timesteps': here it is trainer.max_env_steps"),
    ("agent.learning_starts=9", "here it is trainer.warmup_period (agent has "),
    (
        "agent.hidden=64",
        "agent.hidden must be a list of integers (at least 1): write a list, as in",
    ),
    ("env.wrappers=FlattenObservation", "write a list, as in env.wrappers=[FlattenObservation]"),
    ("hydra.verbose=true", "Hydra's logging is off (hydra.verbose=true): a run writes its own log"),
    ("hydra/job_logging=none", "Hydra's logging is off (hydra/job_logging=none): a run writes"),
    ("env=CartPole-v1", "; a Gymnasium id is written env.id=CartPole-v1"),
]


@pytest.mark.parametrize(
    ("override", "said"), sampled([*TYPED], every=6, ids=[typed for typed, _ in TYPED], keep=True)
)
def test_what_is_typed_wrongly_is_refused(override: str, said: str, folder: Path) -> None:
    assert folder
    with pytest.raises(ConfigError, match=re.escape(said)):
        compose(override)


def test_a_replay_ratio_is_no_setting_of_offline_training(folder: Path) -> None:
    assert folder
    for name in ("warmup_period", "warmup", "samples_per_opt_step"):
        with pytest.raises(ConfigError, match=f"unknown setting 'trainer.{name}'"):
            compose("trainer=offline", f"trainer.{name}=1")


def test_a_whole_float_is_an_integer_where_a_setting_takes_integers() -> None:
    config = compose("trainer.max_env_steps=1e5", "env.kwargs.x=1e5", "agent.gamma=1e0", "seed=1e3")
    assert config.trainer.max_env_steps == 100_000
    assert config.seed == 1_000
    assert compose("checkpoint.milestone_interval=1e5").checkpoint.milestone_interval == 100_000
    assert config.agent.gamma == 1.0
    assert config.env == GymConfig(option="gym", kwargs={"x": 1e5})
    assert type(config.env.kwargs["x"]) is float


def test_words_of_other_libraries_lead_to_settings_that_exist() -> None:
    valid_names = {*flat(compose("agent=sac")), *flat(compose("agent=dqn")), *GROUPS}
    for ours in SETTINGS.values():
        named = re.findall(r"[a-z_]+(?:\.[a-z_]+)+|^\w+", ours)
        assert named
        assert valid_names.issuperset(named)


GLOBAL = "# @package _global_\n"
DQN = "defaults: [/schema/agent/dqn@_here_, _self_]\n"
FILES = [
    ("agent", DQN + "gama: 1\n", "agent/x.yaml: unknown setting 'agent.gama', did you mean agent."),
    ("agent", "gamma: 0.9\n", "agent/x.yaml: the file must begin with `defaults: [/schema/agent/K"),
    ("agent", DQN.replace("dqn", "mine"), "agent/x.yaml: unknown schema/agent 'mine' (choose "),
    ("recorder", "step: 3\n", "recorder/x.yaml: the file must begin with the line `# @package rec"),
    ("experiment", "seed: 3\n", "must begin with the line `# @package _global_`"),
    (
        "experiment",
        GLOBAL + "defaults: [override agent: random]\n",
        "experiment/x.yaml: Could not override 'experiment/agent@agent'",
    ),
    (
        "experiment",
        GLOBAL + "defaults: [override /agent: dqm]\n",
        "unknown agent 'dqm', did you mean dqn? (choose from ",
    ),
    (
        "experiment",
        GLOBAL + "defaults: [optional /tunned: a]\n",
        "experiment/x.yaml: unknown group 'tunned', did you mean tuned?",
    ),
    ("experiment", GLOBAL + "agent: {gamma: 1\n", "not valid YAML: "),
    ("experiment", GLOBAL + "name: ${nope}\n", "x.yaml: name must be text: Interpolation key 'nop"),
]


@pytest.mark.parametrize(("group", "text", "said"), sampled([*FILES], every=3))
def test_a_wrong_file_is_named(
    group: str, text: str, said: str, folder: Path, write: Write
) -> None:
    write(f"{group}/x.yaml", text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        compose(f"{group}=x", config_dir=str(folder))


PRIMARIES = [
    ("defaults: [config, _self_]\nsede: 5\n", "x.yaml: unknown setting 'sede', did you mean seed"),
    ("seed: 5\n", "x.yaml: the file must begin with `defaults: [config, _self_]`"),
]


@pytest.mark.parametrize(("text", "said"), PRIMARIES)
def test_a_users_own_first_file_is_checked(
    text: str, said: str, folder: Path, write: Write
) -> None:
    write("x.yaml", text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        compose(config_dir=str(folder), config_name="x")


def changed(path: str, value: object) -> RunConfig:
    """Composes settings and assigns a value to one of them, as a Python caller may."""
    config = compose("agent=dqn", "env=cartpole", "env.kwargs={a: 1}")
    owner: Any = config
    *above, name = path.split(".")
    for key in above:
        owner = owner[key] if isinstance(owner, dict) else getattr(owner, key)
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)
    return config


ASSIGNED: list[tuple[str, object, str]] = [
    ("agent.gamma", "abc", "agent.gamma must be a number (at least 0 and at most 1): Value 'abc'"),
    ("agent", "dqn", "agent must be settings of type AgentConfig: "),
    ("recorder.console.line_interval_s", 0, "recorder.console.line_interval_s must be above 0"),
    ("env.kwargs.goal", np.zeros(2), "env.kwargs.goal: Value 'ndarray' is not a supported"),
    ("seed", "x", "seed must be an integer (at least 0): "),
    ("evaluator.env.probe", "x", "evaluator.env.probe must be true or false: "),
]


@pytest.mark.parametrize(("path", "value", "said"), sampled([*ASSIGNED], every=8))
def test_a_value_assigned_in_python_is_checked_before_a_run(
    path: str, value: object, said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_settings(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value", "meant"),
    sampled(
        [
            ("agent.gamma", 1, 1.0),
            ("agent.learning_rate", "1e-3", 0.001),
            ("agent.hidden", (3, np.int64(4)), [3, 4]),
            ("agent.double", np.bool_(True), True),
            ("device", "cpu", "cpu"),
            ("run_dir", Path("runs") / "1", "runs/1"),
            ("name", "a${b}", "a${b}"),
            ("env.kwargs.scale", np.float64(2.5), 2.5),
        ],
        every=4,
    ),
)
def test_a_value_assigned_in_python_is_converted_as_from_yaml(
    path: str, value: object, meant: object
) -> None:
    result: Any = check_settings(changed(path, value))
    for key in path.split("."):
        result = result[key] if isinstance(result, dict) else getattr(result, key)
    assert (result, type(result)) == (meant, type(meant))


def test_checking_settings_again_changes_nothing() -> None:
    for overrides in (("agent=sac", "env=pendulum"), ("trainer=sync", "recorder=none")):
        config = compose(*overrides)
        before = copy.deepcopy(config)
        assert check_settings(config) == before == config
