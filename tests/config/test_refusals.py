"""What is refused, and what is said then: file, key, value, and what is allowed."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampling import sampled

from border_cli.config.check import checked
from border_cli.config.compose import compose
from border_cli.core.config import Device, RunConfig
from border_cli.core.errors import ConfigError

Write = Callable[[str, str], Path]

TYPED = [
    ("agent=dqm", "unknown agent 'dqm', did you mean dqn? (choose from awac, bc, "),
    (
        "recorder=[tensorbord]",
        "unknown recorder 'tensorbord', did you mean tensorboard?",
    ),
    ("agnet=dqn", "unknown setting 'agnet', did you mean agent? (a run has seed, name, "),
    (
        "agent.gama=1",
        "unknown setting 'agent.gama', did you mean agent.gamma? (agent has gamma, ",
    ),
    (
        "+agent.gama=1",
        "unknown setting 'agent.gama', did you mean agent.gamma? (agent has gamma, ",
    ),
    ("++agent.gama=1", "unknown setting 'agent.gama', did you mean agent.gamma?"),
    ("+sede=1", "unknown setting 'sede', did you mean seed?"),
    ("+recorder.jsonl.x=1", "unknown setting 'recorder.jsonl.x' (recorder.jsonl has "),
    ("env.kwrgs.x=1", "unknown setting 'env.kwrgs', did you mean env.kwargs?"),
    (
        "evaluator.env.max_episode_steps=abc",
        "evaluator.env.max_episode_steps must be an integer or null (at least 1), got 'abc'",
    ),
    (
        "evaluator.env.kwrgs=1",
        "evaluator.env: unknown setting 'kwrgs', did you mean kwargs? (choose from id, ma",
    ),
    ("agent.gamma=abc", "agent.gamma=abc must be a number (at least 0 and at most 1): discount"),
    ("agent.gamma=2", "agent.gamma must be at least 0 and at most 1, got 2.0"),
    ("seed=1.5", "seed=1.5 must be an integer (at least 0): seed of the run"),
    ("trainer.max_opt_steps=1e6", "must be an integer or null (at least 1); write "),
    ("agent.loss=hubr", "agent.loss=hubr must be one of huber, mse"),
    ("agent.hidden=3", "agent.hidden=3 must be a list of integers (at least 1)"),
    ("agent.hidden=[1,a]", "agent.hidden=[1,a] must be a list of integers (at least 1): units of"),
    ("~agent.gamma", "~agent.gamma: a setting can be changed but not removed; give it a"),
    ("agent.double=maybe", "agent.double=maybe must be true or false"),
    ("quiet=0.5", "quiet=0.5 must be true or false"),
    ("device=gpu", "device=gpu must be one of auto, cpu, cuda"),
    ("trainer.warmup_period=200000", "must be at most replay_buffer.capacity (100000), got 200000"),
    ("recorder=null", "recorder=null: use recorder=none for none of them"),
    ("~recorder", "~recorder: use recorder=none for none, ~recorder.NAME for all but one"),
    ("~recorder.consol", "~recorder.consol: there is nothing to remove"),
    ("tuned=null", "tuned=null: use ~tuned for no tuned"),
    ("tuned=dqn_cartpol", "unknown tuned 'dqn_cartpol', did you mean dqn_cartpole?"),
    ("~agent", "~agent: a run needs one: agent=NAME, one of awac, bc, "),
    ("agent=1", "unknown agent 1; agents learn off-policy, from a replay buffer:"),
    ("agent=[dqn,random]", "a run has one agent, one of awac, bc, "),
    ("+agent=random", "agent is chosen twice"),
    ("+agent.gamma=0.5", "agent.gamma exists: write agent.gamma=… without a plus"),
    ("=3", "'=3' has no key: settings are written key=value"),
    ("dqn", "'dqn' has no value: settings are written key=value"),
    ("a b=1", "'a b=1' cannot be read: write key=value"),
    (f"seed={'9' * 5_000}", "…' cannot be read: Exceeds the limit (4300 digits)"),
    ("schema=3", "schema=3: schema is not a setting"),
    ("seed=1,2", "seed=1,2 has several values: add -m to run a job for each; write a list as "),
    ("seed=range(1,3)", "seed=range(1,3) has several values: add -m"),
    ("seed=???", "seed=??? has no value"),
    ("seed=${nope}", "Interpolation key 'nope' not found"),
    ("resume=", "resume must be null, auto or a run directory, got ''"),
    ("imports=[no_such_module]", "imports: there is no module 'no_such_module' in"),
    ("hydra/launcher=nope", "unknown hydra/launcher 'nope' (choose from basic, "),
]


@pytest.mark.parametrize(
    ("override", "said"), sampled([*TYPED], every=6), ids=[each for each, _ in TYPED]
)
def test_what_is_typed_wrongly_is_refused(override: str, said: str, folder: Path) -> None:
    assert folder
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        compose(override)
    assert "To append" not in str(caught.value)
    assert "full_key" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "most"),
    [
        ("env.num_envs=2147483648", "100000"),
        ("actor_manager.num_actors=2147483648", "10000"),
        ("step_processor.n_steps=100000", "1000"),
        ("agent.num_threads=100000", "1024"),
        ("trainer.stall_timeout_s=1e300", "1e+06"),
        ("actor_manager.join_timeout_s=1e300", "1e+06"),
        (f"trainer.max_opt_steps={'9' * 4_000}", "a 64-bit number"),
    ],
)
def test_a_size_that_cannot_be_is_refused_before_anything_is_built(
    override: str, most: str, folder: Path
) -> None:
    assert folder
    path = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{path} must be .*{re.escape(most)}") as caught:
        compose("env=cartpole", override)
    assert len(str(caught.value)) < 200


GLOBAL = "# @package _global_\n"
DQN = "defaults: [/schema/agent/dqn@_here_, _self_]\n"
FILES = [
    ("agent", DQN + "gama: 1\n", "agent/x.yaml: unknown setting 'agent.gama', did you mean agent."),
    ("agent", DQN + "gamma: 2\n", "agent/x.yaml: agent.gamma must be at least 0 and at most 1, g"),
    ("agent", "gamma: 0.9\n", "agent/x.yaml: the file must begin with `defaults: [/schema/agent/K"),
    ("agent", "hidden: [3]\n", "agent/x.yaml: the file must begin with `defaults: [/schema/agent/"),
    ("agent", DQN.replace("dqn", "mine"), "agent/x.yaml: unknown schema of agent 'mine' (choose "),
    ("recorder", DQN, "recorder/x.yaml: the file must begin with the line `# @package recorder.N"),
    ("recorder", "step: 3\n", "recorder/x.yaml: the file must begin with the line `# @package rec"),
    ("experiment", "seed: 3\n", "experiment/x.yaml must begin with the line `# @package _global_`"),
    ("experiment", GLOBAL + "sed: 1\n", "experiment/x.yaml: unknown setting 'sed', did you mean "),
    (
        "experiment",
        GLOBAL + "agent: {gamma: abc}\n",
        "experiment/x.yaml: agent.gamma must be a number (at least 0 and at most 1), got 'abc'",
    ),
    (
        "experiment",
        GLOBAL + "defaults: [override agent: random]\n",
        "experiment/x.yaml: write `override /agent: …`, with the slash",
    ),
    (
        "experiment",
        GLOBAL + "defaults: [override hydra/sweeper: basic]\n",
        "experiment/x.yaml: write `override /hydra/sweeper: …`, with the slash",
    ),
    (
        "experiment",
        GLOBAL + "defaults: [/agent: random]\n",
        "agent is chosen twice. In a file write `override /agent: …`",
    ),
    (
        "experiment",
        GLOBAL + "defaults: [override /agent: dqm]\n",
        "experiment/x.yaml: unknown agent 'dqm', did you mean dqn? (choose from ",
    ),
    (
        "experiment",
        GLOBAL + "defaults: [optional /tunned: a]\n",
        "experiment/x.yaml: unknown group 'tunned', did you mean tuned?",
    ),
    ("experiment", GLOBAL + "agent: {gamma: 1\n", "not valid YAML: "),
    ("experiment", GLOBAL + "name: ${nope}\n", "x.yaml: name: Interpolation key 'nope' not found"),
    ("experiment", GLOBAL + "imports: no_such\n", "imports: there is no module 'no_such' in"),
]


@pytest.mark.parametrize(("group", "text", "said"), sampled([*FILES], every=3))
def test_a_wrong_file_is_named(
    group: str, text: str, said: str, folder: Path, write: Write
) -> None:
    write(f"{group}/x.yaml", text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        compose(f"{group}=x", config_dir=str(folder))


@pytest.mark.parametrize("order", ["wb,jsonl", "jsonl,wb"])
@pytest.mark.parametrize(
    "text",
    sampled(
        [
            "interval: 3\n",
            "# @package recorder.wb\ninterval: 3\n",
            "defaults: [/schema/recorder/jsonl@_here_, _self_]\n",
        ],
        every=3,
    ),
)
def test_a_recorder_without_its_first_lines_is_blamed_and_not_ours(
    text: str, order: str, folder: Path, write: Write
) -> None:
    write("recorder/wb.yaml", text)
    with pytest.raises(ConfigError, match=r"^recorder/wb.yaml: the file must begin with the line"):
        compose(f"recorder=[{order}]", config_dir=str(folder))


def test_an_unknown_agent_lists_what_there_is_by_action_space() -> None:
    with pytest.raises(ConfigError, match=r"unknown agent 'ppo'; agents learn off-policy") as said:
        compose("agent=ppo")
    assert "\n  Discrete actions: der, discrete_cql, dqn, iqn, qrdqn, rainbow" in str(said.value)
    assert "\n  Box actions: cql, ddpg, droq, redq, sac, " in str(said.value)
    assert "\n  Discrete or Box actions: awac, bc, iql, random\n" in str(said.value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gamma=0.9", "agent.gamma"),
        ("agent.max_opt_steps=9", "trainer.max_opt_steps"),
        ("trainer.seed=1", "seed"),
        ("keep=2", "checkpoint.keep"),
    ],
)
def test_a_setting_at_the_wrong_place_is_suggested_where_it_is(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown setting .*, did you mean {meant}\?"):
        compose(typed)


def test_settings_of_a_recorder_that_is_not_chosen_name_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown recorder 'jsnl', did you mean jsonl\? \(choo"):
        compose("recorder=[jsonl,console]", "recorder.jsnl.x=1")
    with pytest.raises(ConfigError, match=r"the run has no recorders \(recorder=none\)"):
        compose("recorder=none", "recorder.jsonl=null")


WRITTEN = [
    ("trainer.max_opt_steps=1e6", "; write trainer.max_opt_steps=1000000:"),
    ("agent.hidden=256", "; write 'agent.hidden=[256]':"),
    ("agent.lr=1", "did you mean agent.learning_rate?"),
    ("agent=DQN", "unknown agent 'DQN', did you mean dqn?"),
    ("env=CartPole-v1", "did you mean cartpole? (choose from acrobot, "),
    ("env=CartPole-v1", "; a Gymnasium id is written env.id=CartPole-v1"),
    ("seed", "settings are written key=value, without spaces around ="),
]


@pytest.mark.parametrize(("typed", "said"), WRITTEN)
def test_a_refusal_says_what_to_write_instead(typed: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        compose(typed)


def test_several_values_of_a_group_are_not_called_a_list() -> None:
    with pytest.raises(ConfigError, match=r"to run a job for each$"):
        compose("env=cartpole,acrobot")


def test_a_file_of_a_group_is_not_a_first_file() -> None:
    with pytest.raises(
        ConfigError, match=r"choose a file of a group with experiment=cartpole_per$"
    ):
        compose(config_name="experiment/cartpole_per")


def test_a_file_that_builds_on_a_missing_one_is_named(folder: Path, write: Write) -> None:
    write("env/x.yaml", "defaults: [gymm, _self_]\n")
    with pytest.raises(ConfigError, match=r"^env/x.yaml: unknown env 'gymm', did you mean gym\?"):
        compose("env=x", config_dir=str(folder))


def test_so_is_one_that_is_chosen_by_another_file(folder: Path, write: Write) -> None:
    write("experiment/x.yaml", "# @package _global_\ndefaults: [override /recorder: [y]]\n")
    write("recorder/y.yaml", "defaults: [/schema/recorder/jsnl@_here_, _self_]\n")
    with pytest.raises(ConfigError, match=r"^recorder/y.yaml: unknown schema of recorder 'jsnl'"):
        compose("experiment=x", "env=cartpole", config_dir=str(folder))


PRIMARIES = [
    ("defaults: [config, _self_]\nsede: 5\n", "x.yaml: unknown setting 'sede', did you mean seed"),
    ("sede: 5\n", "x.yaml: unknown setting 'sede', did you mean seed?"),
    ("seed: abc\n", "x.yaml: seed must be an integer (at least 0)"),
    ("seed: 5\n", "no agent is chosen: agent=NAME"),
]


@pytest.mark.parametrize(("text", "said"), PRIMARIES)
def test_a_users_own_first_file_is_checked(
    text: str, said: str, folder: Path, write: Write
) -> None:
    write("x.yaml", text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        compose(config_dir=str(folder), config_name="x")


def test_a_missing_first_file_names_the_folders_searched(folder: Path, write: Write) -> None:
    write("my_run.yaml", "defaults: [config, _self_]\n")
    with pytest.raises(ConfigError, match=r"unknown configuration 'my_rin', did you mean my_run\?"):
        compose(config_dir=str(folder), config_name="my_rin")


def test_a_value_of_the_command_line_hides_the_file_of_a_range(folder: Path, write: Write) -> None:
    write("agent/x.yaml", DQN + "gamma: 0.5\n")
    with pytest.raises(ConfigError, match=r"^agent.gamma must be at least 0 and at most 1, got 3"):
        compose("agent=x", "agent.gamma=3", config_dir=str(folder))


def changed(path: str, value: object) -> RunConfig:
    """Settings of a Python caller who assigned a value to one of them."""
    config = compose("agent=dqn", "env=cartpole", "env.kwargs={a: 1}")
    owner: Any = config
    *above, name = path.split(".")
    for each in above:
        owner = owner[each] if isinstance(owner, dict) else getattr(owner, each)
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)
    return config


ASSIGNED: list[tuple[str, object, str]] = [
    ("agent.gamma", "abc", "agent.gamma must be a number (at least 0 and at most 1), got 'abc'"),
    ("agent.gamma", 5, "agent.gamma must be at least 0 and at most 1, got 5.0"),
    ("agent.gamma", None, "agent.gamma must be a number (at least 0 and at most 1), got None"),
    ("agent.batch_size", 5.5, "agent.batch_size must be an integer (at least 1), got 5.5"),
    ("agent.hidden", 3, "agent.hidden must be a list of integers (at least 1), got 3"),
    ("agent.hidden", [3, 0], "agent.hidden must be at least 1 in each entry, got [3, 0]"),
    ("agent.hidden", np.array([3]), "agent.hidden must be a list of integers (at least 1), "),
    ("agent.loss", "mes", "agent.loss must be one of huber, mse, got 'mes'"),
    ("agent", "dqn", "agent must be settings of type AgentConfig, got 'dqn'"),
    ("env", None, "env must be settings of type EnvConfig, got None"),
    ("recorder", ["jsonl"], "recorder must be a mapping of names to RecorderConfig, got ['jsonl']"),
    ("recorder.mine", 5, "recorder must be a mapping of names to RecorderConfig, got {"),
    ("recorder.console.line_interval_s", 0, "recorder.console.line_interval_s must be above 0"),
    ("checkpoint.keep", 0, "checkpoint.keep must be at least 1, got 0"),
    ("env.kwargs.goal", np.zeros(2), "env.kwargs.goal must be a number, text, true or false, null"),
    ("seed", "x", "seed must be an integer (at least 0), got 'x'"),
    ("seed", "???", "missing mandatory value: seed"),
    ("trainer.warmup_period", 10**9, "trainer.warmup_period must be at most replay_buffer.capac"),
    (
        "evaluator.env.idd",
        "x",
        "evaluator.env: unknown setting 'idd', did you mean id? (choose from id, ",
    ),
    ("evaluator.env.probe", "x", "evaluator.env.probe must be true or false, got 'x'"),
]


@pytest.mark.parametrize(("path", "value", "said"), sampled([*ASSIGNED], every=8))
def test_a_value_assigned_in_python_is_checked_before_a_run(
    path: str, value: object, said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        checked(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value", "meant"),
    sampled(
        [
            ("agent.gamma", 1, 1.0),
            ("agent.gamma", np.float32(0.5), 0.5),
            ("agent.learning_rate", "1e-3", 0.001),
            ("agent.batch_size", np.int64(5), 5),
            ("agent.hidden", (3, np.int64(4)), [3, 4]),
            ("agent.double", np.bool_(True), True),
            ("device", "cpu", Device.cpu),
            ("run_dir", Path("runs") / "1", "runs/1"),
            ("name", "a${b}", "a${b}"),
            ("env.kwargs.text", "${seed}", "${seed}"),
            ("env.kwargs.scale", np.float64(2.5), 2.5),
        ],
        every=4,
    ),
)
def test_a_value_assigned_in_python_is_converted_as_from_yaml(
    path: str, value: object, meant: object
) -> None:
    found: Any = checked(changed(path, value))
    for each in path.split("."):
        found = found[each] if isinstance(found, dict) else getattr(found, each)
    assert (found, type(found)) == (meant, type(meant))


def test_checking_settings_again_changes_nothing() -> None:
    for overrides in (("agent=sac", "env=pendulum"), ("trainer=sync", "recorder=none")):
        config = compose(*overrides)
        before = copy.deepcopy(config)
        assert checked(config) == before == config


@pytest.mark.parametrize("overrides", [["agent=dqn"], {"agent": "dqn"}, None])
def test_overrides_that_are_no_strings_are_refused(overrides: Any) -> None:
    with pytest.raises(TypeError, match=r"compose\(\) expects each override as a string of"):
        compose(overrides)
