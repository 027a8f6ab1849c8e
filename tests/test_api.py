"""The Python API: composing settings, training, resuming and loading policies."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import unruly
import untried

from border_cli import RunConfig, compose, load_policy, resume, train
from border_cli.actor_manager.config import SerialConfig
from border_cli.agent.config import DqnConfig
from border_cli.config.check import check_settings
from border_cli.core.interfaces import Evaluation, Evaluator, Policy
from border_cli.env.config import GymConfig
from border_cli.errors import ActorCrashed, BadStep, CheckpointError, ConfigError
from border_cli.evaluator.config import EpisodesConfig
from border_cli.recorder.config import JsonlConfig
from border_cli.replay_buffer.config import UniformConfig
from border_cli.run.lock import RunInUse, RunLock
from border_cli.settings.run import CheckpointConfig
from border_cli.step_processor.config import NStepConfig
from border_cli.trainer.config import AsyncConfig
from tests.support import commands
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, facts_of, repeatable_rows
from tests.support.fakes import ListRecorder

SERIAL = (*QUICK, "env=cartpole", "actor_manager=serial", "recorder=[jsonl]")

pytestmark = pytest.mark.usefixtures("folder")


def by_hand(run_dir: Path) -> RunConfig:
    """Settings built from dataclasses, without composing."""
    return RunConfig(
        run_dir=str(run_dir),
        agent=DqnConfig(batch_size=4, hidden=[4]),
        env=GymConfig(id="CartPole-v1"),
        step_processor=NStepConfig(),
        replay_buffer=UniformConfig(capacity=100),
        actor_manager=SerialConfig(n_buffer=4),
        trainer=AsyncConfig(max_opt_steps=2, warmup_period=8),
        evaluator=EpisodesConfig(num_episodes=1),
        recorder={"jsonl": JsonlConfig()},
        checkpoint=CheckpointConfig(keep=1),
    )


def test_the_example_trains_and_acts(folder: Path) -> None:
    result = train(compose("agent=dqn", "env=cartpole", *QUICK))
    policy = load_policy(result.run_dir)
    assert policy.act(gym.make("CartPole-v1").reset(seed=0)[0]) in (0, 1)
    assert result.run_dir.parent == folder / "outputs" / "dqn_cartpole"
    assert result.agent.opt_steps == result.trainer_stats.opt_steps == 2
    assert [stats.actor_id for stats in result.actor_stats] == [0, 1]
    facts = facts_of(result.run_dir)
    assert (facts["status"], facts["command"]) == ("done", ["border_cli.train"])
    assert facts["best_score"] == result.best_score
    assert repr(result).endswith(f"run directory {result.run_dir}>")


def test_recorders_are_closed_when_the_rest_cannot_be_built() -> None:
    mine = ListRecorder()
    untried.Counted.made = 0  # the trial before the run may build its environments
    with pytest.raises(RuntimeError, match="no licence left"):
        train(compose(*QUICK, "env.id=Counted-v0", "env.kwargs.most=3"), recorders=[mine])
    assert mine.closed


class CountingEvaluator(Evaluator):
    """A user-defined evaluator: its score is 100 plus the number of evaluations."""

    def __init__(self) -> None:
        self.evaluations = 0
        self.closed = False

    def evaluate(self, policy: Policy) -> Evaluation:
        action = policy.act(np.zeros((3, 4), np.float32), explore=False)
        assert action.shape == (3,)
        self.evaluations += 1
        score = 100.0 + self.evaluations
        return Evaluation(score=score, returns=(score,), lengths=(1,), metrics={"eval/mine": score})

    def close(self) -> None:
        self.closed = True


def test_an_evaluator_of_the_caller_decides_what_is_best() -> None:
    evaluator, recorder = CountingEvaluator(), ListRecorder()
    config = compose(*SERIAL, "trainer.eval_interval=1")
    result = train(config, evaluator=evaluator, recorders=[recorder])
    assert recorder.of("eval/mine") == [(1, 101.0), (2, 102.0)]
    assert result.best_score == 102.0
    assert evaluator.closed


def test_settings_built_by_hand_train_and_can_be_read_again(folder: Path) -> None:
    result = train(by_hand(folder / "run"))
    assert result.run_dir == folder / "run"
    assert (result.run_dir / "metrics.jsonl").is_file()
    reread = compose(config_dir=str(result.run_dir / ".hydra"), config_name="resolved")
    original = by_hand(folder / "run")
    assert reread.agent == original.agent
    assert reread.trainer == original.trainer
    assert load_policy(result.run_dir).act(np.zeros(4)) in (0, 1)


def test_two_equal_runs_in_one_process_have_equal_metrics(folder: Path) -> None:
    before = commands.process_state() | commands.lasting_state()
    for name in ("one", "two"):
        train(compose(*SERIAL, f"run_dir={name}", "trainer.max_opt_steps=30"))
    assert repeatable_rows(folder / "one") == repeatable_rows(folder / "two")
    assert commands.process_state() | commands.lasting_state() == before


def test_training_works_in_a_thread_that_is_not_the_main_one(folder: Path) -> None:
    results: list[Any] = []
    config = compose(*SERIAL, "run_dir=one", "actor_manager=thread")
    thread = threading.Thread(target=lambda: results.append(train(config)))
    thread.start()
    thread.join(commands.DEADLINE_S)
    assert results[0].agent.opt_steps == 2
    assert facts_of(folder / "one")["status"] == "done"


def test_a_used_run_directory_is_refused(folder: Path) -> None:
    train(by_hand(folder / "run"))
    before = (folder / "run" / "run.json").read_bytes()
    with pytest.raises(ConfigError, match="already contains a run: choose another"):
        train(by_hand(folder / "run"))
    assert (folder / "run" / "run.json").read_bytes() == before


def test_a_failure_reaches_the_caller_and_run_json(folder: Path) -> None:
    mine = ListRecorder()
    broken = ("env.id=Raises-v0", "env.kwargs.at=5", "actor_manager.max_restarts=0")
    with pytest.raises(ActorCrashed, match="the simulator exploded after 5 steps"):
        train(compose(*SERIAL, *broken, "run_dir=run"), recorders=[mine])
    assert mine.closed
    assert facts_of(folder / "run")["status"] == "failed"


def test_ctrl_c_in_a_script_is_a_keyboard_interrupt_after_saving(folder: Path) -> None:
    own = ("env.id=Signals-v0", f"env.kwargs={{signum: {int(signal.SIGINT)}, at: 30}}")
    more = ("actor_manager.num_actors=1", "trainer.max_opt_steps=1000", "run_dir=run")
    with pytest.raises(KeyboardInterrupt):
        train(compose(*SERIAL, *own, *more))
    facts = facts_of(folder / "run")
    assert (facts["status"], facts["exit_reason"]) == ("interrupted", "KeyboardInterrupt")
    assert (folder / "run" / "checkpoints" / "latest").exists()


@pytest.mark.parametrize("env_id", ["FromOne-v0", "Named-v0"])
def test_actions_and_observations_are_those_of_the_env_itself(env_id: str) -> None:
    result = train(compose(*SERIAL, f"env.id={env_id}", "imports=[unruly]"))
    policy = load_policy(result.run_dir)
    env = gym.make(env_id)
    observation, _ = env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        observation, reward, ended, _, _ = env.step(policy.act(observation))
        total += float(reward)
    env.close()
    assert total == unruly.EPISODE_STEPS


def test_any_checkpoint_can_act_and_a_missing_one_is_named() -> None:
    train(compose(*SERIAL, "run_dir=run", "trainer.save_interval=1"))
    for which in ("latest", "1", 1):
        assert load_policy("run", which).act(np.zeros(4, np.float32)) in (0, 1)
    for path in ("run/best", "run/checkpoints/1", "run/checkpoints/0000000001"):
        assert load_policy(path).act(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(ConfigError, match="run/best is a checkpoint: remove checkpoint=latest"):
        load_policy("run/best", "latest")
    with pytest.raises(CheckpointError, match=r"has no checkpoint 7 \(choose from best, 1, 2"):
        load_policy("run", 7)


@pytest.mark.usefixtures("own_modules")
def test_a_module_of_the_caller_is_found_by_a_later_process(
    folder: Path, write: Callable[[str, str], Path]
) -> None:
    write("here/mine.py", "import unruly\n")
    sys.path.append(str(folder / "here"))
    result = train(compose(*SERIAL, "imports=[mine]", "env.id=Calm-v0"))
    sys.path.remove(str(folder / "here"))
    del sys.modules["mine"]
    with pytest.raises(ConfigError, match=r"imports names the module 'mine'.*/here\. .*trust=True"):
        load_policy(result.run_dir)
    load_policy(result.run_dir, trust=True)


def test_a_run_goes_on_from_python(folder: Path) -> None:
    whole = train(compose(*SERIAL, "run_dir=whole", "trainer.max_opt_steps=60"))
    train(compose(*SERIAL, "run_dir=cut", "trainer.max_opt_steps=35"))
    result = resume("cut", "trainer.max_opt_steps=60")
    assert result.trainer_stats.opt_steps == 60
    weights = [run.agent.state_dict()["online"] for run in (whole, result)]
    np.testing.assert_equal(*weights)
    assert [entry["from_opt_steps"] for entry in facts_of(folder / "cut")["attempts"]] == [0, 35]


def test_resuming_a_missing_directory_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"resume: .*nowhere is not a run directory"):
        resume("nowhere")
    with pytest.raises(ConfigError, match=r"dry_run=true is for the command line"):
        train(compose(*SERIAL, "dry_run=true"))
    assert list(folder.iterdir()) == []


def test_the_public_names_are_listed_before_any_of_them_is_used() -> None:
    script = (
        "import sys, border_cli; print(*dir(border_cli)); "
        "print([name for name in ('torch', 'gymnasium', 'hydra') if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines() == [
        "Callback Result RunConfig __version__ compose load_policy load_runs resume train",
        "[]",
    ]


def test_settings_changed_after_composing_are_checked_before_anything_is_written(
    folder: Path,
) -> None:
    config = compose(*SERIAL)
    with pytest.raises(AttributeError, match=r"'agent\.gama', did you mean agent\.gamma\?"):
        config.agent.gama = 0.5  # type: ignore[attr-defined]
    config.agent.gamma = 5
    with pytest.raises(ConfigError, match=r"^agent\.gamma must be at least 0 and at most 1, got 5"):
        train(config)
    assert list(folder.iterdir()) == []
    config.agent.gamma = np.float32(0.5)  # type: ignore[assignment]
    result = train(config)
    assert "gamma: 0.5\n" in (result.run_dir / ".hydra" / "resolved.yaml").read_text()


MODULE = """
from dataclasses import dataclass
from border_cli.settings.base import setting
from border_cli.env.config import GymConfig
from border_cli.registry import ENVS

@dataclass(kw_only=True)
class MineConfig(GymConfig):
    floors: int = setting(2, "floors", low=1)

    def __post_init__(self):
        super().__post_init__()
        self._rooms = 4 * self.floors

    @property
    def rooms(self):
        return self._rooms

ENVS.register("mine", MineConfig, "border_cli.env.gym:GymEnvFactory")
"""


@pytest.mark.usefixtures("own_modules")
def test_settings_of_a_users_component_are_as_strict_and_keep_what_they_derive(
    write: Callable[[str, str], Path],
) -> None:
    write("floors.py", MODULE)
    preset = "defaults: [/schema/env/mine@_here_, _self_]\nid: CartPole-v1\n"
    write("conf/env/house.yaml", preset)
    quick = [override for override in SERIAL if not override.startswith("env=")]
    config: Any = compose(*quick, "imports=[floors]", "env=house", config_dir="conf")
    with pytest.raises(AttributeError, match=r"'env\.flors', did you mean env\.floors\?"):
        config.env.flors = 3
    config.env.floors = 3
    assert config.env.rooms == 8
    assert check_settings(config).env.rooms == 12
    assert train(config).agent.opt_steps == 2
    config.env.floors = 0
    with pytest.raises(ConfigError, match=r"^env\.floors must be at least 1, got 0$"):
        train(config)


@pytest.mark.parametrize(
    ("env_id", "overrides"),
    sampled(
        [
            ("CartPole-v1", ()),
            ("Pendulum-v1", ("agent=sac",)),
            ("Named-v0", ("imports=[unruly]",)),
        ],
        every=2,
    ),
)
def test_a_policy_acts_on_a_batch_as_on_each_of_its_observations(
    env_id: str, overrides: tuple[str, ...]
) -> None:
    result = train(compose(*SERIAL, f"env.id={env_id}", *overrides))
    policy = load_policy(result.run_dir)
    env = gym.make(env_id)
    space = env.observation_space
    space.seed(0)
    observations = [space.sample() for _ in range(5)]
    for size in (5, 1):
        empty = gym.vector.utils.create_empty_array(space, size)
        actions = policy.act(gym.vector.utils.concatenate(space, observations[:size], empty))
        assert isinstance(actions, np.ndarray)
        for observation, action in zip(observations[:size], actions, strict=True):
            assert env.action_space.contains(action)
            np.testing.assert_allclose(policy.act(observation), action, rtol=1e-4)


def test_a_policy_drives_a_vector_environment() -> None:
    policy = load_policy(train(compose(*SERIAL)).run_dir)
    envs = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    observations, _ = envs.reset(seed=0)
    _, reward, *_ = envs.step(policy.act(observations))
    assert reward.tolist() == [1.0, 1.0, 1.0]
    envs.close()
    with pytest.raises(
        BadStep, match=r"env\.id=CartPole-v1: the observation .* its shape is \(3,\), not \(4,\)"
    ):
        policy.act(np.zeros(3))


def test_a_directory_in_use_is_refused_before_an_environment_is_made(folder: Path) -> None:
    settings = compose(*SERIAL, "imports=[untried]", "env.id=Counted-v0", "run_dir=used")
    untried.Counted.made = 0
    with RunLock(folder / "used"), pytest.raises(RunInUse, match="used is in use by process"):
        train(settings)
    assert untried.Counted.made == 0
