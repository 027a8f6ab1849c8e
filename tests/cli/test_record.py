"""`border-record`: Minari data sets recorded with the models of a run."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
import unruly

from border_cli.api import load_agent
from border_cli.launch.build import evaluation_policy
from tests.support import commands
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, facts_of, record_status, train_status
from tests.support.datasets import datasets_in

Capture = pytest.CaptureFixture[str]

INTERRUPTED = "border-record: interrupted\n"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with several checkpoints, whose best model is better than random actions."""
    folder = tmp_path_factory.mktemp("record")
    with commands.isolated(folder):
        status = train_status(
            "env=cartpole",
            "env.max_episode_steps=60",
            "actor_manager=serial",
            "trainer.max_opt_steps=800",
            "trainer.stop_at_score=null",
            "trainer.warmup_period=50",
            "trainer.eval_interval=40",
            "trainer.save_interval=80",
            "checkpoint.keep=10",
            "agent.hidden=[64]",
            "agent.epsilon.steps=300",
            "evaluator.num_episodes=5",
            "recorder=none",
            "quiet=true",
            "run_dir=run",
            "seed=1",  # its best model lasts all 60 steps
        )
    assert status == 0
    return folder / "run"


@pytest.fixture
def datasets(tmp_path: Path, folder: Path) -> Iterator[Path]:
    assert folder
    with datasets_in(tmp_path / "datasets"):
        yield tmp_path / "datasets"


def recorded(capsys: Capture, *argv: object) -> dict[str, Any]:
    """Runs `border-record --json` and returns the printed object."""
    assert record_status(*map(str, argv), "--json") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return document


@pytest.mark.slow
def test_plain_minari_reads_a_data_set_and_reproduces_every_episode(
    run_dir: Path, datasets: Path, capsys: Capture
) -> None:
    assert datasets
    said = recorded(capsys, run_dir, "dataset=my/pole-v0", "episodes=20", "explore=true")
    (policy,) = said["policies"]
    dataset = minari.load_dataset("my/pole-v0")
    assert dataset.total_steps == said["steps"]
    env = dataset.recover_environment()
    seeds = [metadata["seed"] for metadata in dataset.storage.get_episode_metadata(range(20))]
    assert len(set(seeds)) == 20
    for episode, seed, score in zip(dataset, seeds, policy["returns"], strict=True):
        first, _ = env.reset(seed=seed)
        steps = [env.step(action) for action in episode.actions]
        obs, rewards, terminated, truncated, _ = zip(*steps, strict=True)
        np.testing.assert_array_equal(episode.observations, [first, *obs])
        np.testing.assert_array_equal(episode.rewards, rewards)
        np.testing.assert_array_equal(episode.terminations, terminated)
        np.testing.assert_array_equal(episode.truncations, truncated)
        assert terminated[-1] or truncated[-1]
        assert sum(rewards) == score
    env.close()


@pytest.mark.slow
def test_what_is_said_of_a_data_set_is_in_its_metadata(
    run_dir: Path, datasets: Path, capsys: Capture
) -> None:
    said = recorded(capsys, run_dir, "dataset=my/pole-v0", "episodes=4")
    metadata = json.loads((datasets / "my/pole-v0/data/metadata.json").read_text())
    assert metadata["ref_max_score"] == said["ref_max_score"] == facts_of(run_dir)["best_score"]
    assert 15 < metadata["ref_min_score"] == said["ref_min_score"] < 30  # 22 on average
    assert metadata["algorithm_name"] == "dqn"
    assert metadata["description"].endswith("from the run dqn_cartpole: 4 by best")
    other = recorded(capsys, run_dir, "dataset=my/pole-v1", "episodes=2", "seed=9")
    assert other["ref_min_score"] == said["ref_min_score"]
    assert minari.list_local_datasets().keys() == {"my/pole-v0", "my/pole-v1"}


@pytest.mark.slow
def test_a_mixture_is_shared_evenly_or_by_weight(
    run_dir: Path, datasets: Path, capsys: Capture
) -> None:
    assert datasets
    recorded(capsys, run_dir, "dataset=a-v0", "episodes=8", "policy=[best, 80,random]")
    stored = minari.load_dataset("a-v0").storage
    played = [metadata["policy"] for metadata in stored.get_episode_metadata(range(8))]
    assert played == ["best"] * 3 + ["80"] * 3 + ["random"] * 2
    said = recorded(capsys, run_dir, "dataset=b-v0", "episodes=10", "policy=[latest:3,random:1.0]")
    assert [len(policy["returns"]) for policy in said["policies"]] == [8, 2]


def test_in_a_changed_environment_the_references_and_the_next_command_are_of_that_one(
    run_dir: Path, datasets: Path, capsys: Capture
) -> None:
    assert datasets
    argv = (run_dir, "dataset=x-v0", "steps=5e2", "env.kwargs.sutton_barto_reward=true")
    said = recorded(capsys, *argv)
    assert said["env_changes"] == ["env.kwargs.sutton_barto_reward: absent -> true"]
    assert -1 <= said["ref_min_score"] < said["ref_max_score"] <= 0  # a fall pays -1
    assert record_status(*map(str, argv), "overwrite=true") == 0
    assert argv[-1] in capsys.readouterr().out.split("border-train")[1]


def test_whole_episodes_are_recorded_until_each_policy_has_its_steps(
    run_dir: Path, datasets: Path, capsys: Capture
) -> None:
    assert datasets
    argv = ("dataset=x-v0", "steps=900", "policy=[best:1,random:2]")
    said = recorded(capsys, run_dir, *argv)
    for policy, least in zip(said["policies"], (300, 600), strict=True):
        *before, last = policy["lengths"]
        assert sum(before) < least <= sum(before) + last
    dataset = minari.load_dataset("x-v0")
    assert (dataset.total_steps, dataset.total_episodes) == (said["steps"], said["episodes"])
    assert all(episode.terminations[-1] or episode.truncations[-1] for episode in dataset)


@pytest.mark.slow
def test_a_seed_repeats_and_another_one_does_not(
    run_dir: Path, datasets: Path, capsys: Capture
) -> None:
    assert datasets
    policies = [
        recorded(
            capsys, run_dir, f"dataset=x-v{i}", "episodes=18", "policy=random", f"seed={seed}"
        )["policies"]
        for i, seed in enumerate((3, 3, 4))
    ]
    assert policies[0] == policies[1] != policies[2]


@pytest.mark.slow
def test_exploring_episodes_are_those_of_every_actor(
    folder: Path, datasets: Path, capsys: Capture
) -> None:
    """One actor is greedy; the other acts randomly."""
    assert datasets
    two = ("actor_manager.num_actors=2", "actor_manager.exploration=[0.0,1.0]", "recorder=none")
    assert train_status("env=cartpole", "~tuned", *two, *QUICK, "run_dir=own", "quiet=true") == 0
    recorded(capsys, "own", "dataset=x-v0", "episodes=10", "explore=true")
    greedy = [
        _fraction_of_greedy_actions(folder / "own", episode)
        for episode in minari.load_dataset("x-v0")
    ]
    assert greedy[:5] == [1.0] * 5
    assert np.mean(greedy[5:]) < 0.8


def _fraction_of_greedy_actions(run_dir: Path, episode: Any) -> float:
    effective, agent, _ = load_agent(run_dir, "best")
    policy = evaluation_policy(effective, agent)
    actions = policy.act(episode.observations[:-1], explore=False)
    return float((actions == episode.actions).mean())


def test_a_recording_and_its_references_are_of_the_environment_of_evaluations(
    datasets: Path, capsys: Capture
) -> None:
    """The evaluation environment pays half of what the training environment pays."""
    assert datasets
    halved = "+evaluator.env.wrappers=[{ClipReward: {min_reward: 0, max_reward: 0.5}}]"
    settings = ("env=cartpole", "~tuned", halved, "recorder=none", "run_dir=own", "quiet=true")
    assert train_status(*settings, *QUICK) == 0
    assert record_status("own", "dataset=x-v0", "episodes=2") == 0
    assert "CartPole-v1 for evaluation, evaluator.env={wrappers: " in capsys.readouterr().out
    dataset = minari.load_dataset("x-v0")
    assert {reward for episode in dataset for reward in episode.rewards.tolist()} == {0.5}
    env = dataset.recover_environment()
    env.reset(seed=0)
    assert env.step(0)[1] == 0.5
    env.close()


def test_a_name_that_is_taken_is_refused_unless_it_may_be_replaced(
    run_dir: Path, datasets: Path, capsys: Capture
) -> None:
    recorded(capsys, run_dir, "dataset=my/pole-v0", "episodes=2")
    assert record_status(str(run_dir), "dataset=my/pole-v0", "episodes=3") == 2
    assert "dataset=my/pole-v0 already exists" in capsys.readouterr().err
    assert minari.load_dataset("my/pole-v0").total_episodes == 2
    recorded(capsys, run_dir, "dataset=my/pole-v0", "episodes=3", "overwrite=true")
    assert minari.load_dataset("my/pole-v0").total_episodes == 3
    assert [path.name for path in (datasets / "my").iterdir() if path.is_dir()] == ["pole-v0"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["RUN/best", "dataset=a-v0", "policy=80"], "best is a checkpoint: leave out policy, or"),
        (["RUN"], "dataset=ID is required, such as my/cartpole-medium-v0"),
        (["RUN", "dataset=cartpole"], "dataset must be [namespace/]name-v<number>, such as"),
        (["RUN", "dataset=a-v0", "policy=beast"], "has no checkpoint beast (choose from best,"),
        (["RUN", "dataset=a-v0", "policy=70"], "has no checkpoint 70 (choose from best, 80,"),
        (["RUN", "dataset=a-v0", "policy=[best:0]"], "must have weights above 0, got '0'"),
        (["RUN", "dataset=a-v0", "policy=[best:]"], "must have weights above 0, got ''"),
        (["RUN", "dataset=a-v0", "policy=[80:999,best:1]"], "episodes=100 leaves none for best"),
        (["RUN", "dataset=a-v0", "episodes=1", "policy=best,80"], "episodes=1 leaves none for 80"),
        (["RUN", "dataset=a-v0", "steps=1", "policy=best,80"], "steps=1 leaves none for 80"),
        (["RUN", "dataset=a-v0", "steps=9", "episodes=1"], "episodes and steps cannot be combined"),
        (["RUN", "dataset=a-v0", "explore=yes"], "explore must be true or false, got 'yes'"),
        (["RUN", "dataset=a-v0", "--jsn"], "unknown flag '--jsn', did you mean --json?"),
        (["dataset=a-v0"], "give one run directory, got 0"),
    ],
)
def test_what_is_not_understood_is_refused_and_nothing_is_written(
    run_dir: Path, datasets: Path, capsys: Capture, argv: list[str], said: str
) -> None:
    assert record_status(*(word.replace("RUN", str(run_dir)) for word in argv)) == 2
    out, err = capsys.readouterr()
    assert err.startswith("border-record: ")
    assert said in err
    assert out == ""
    assert not [*datasets.rglob("*.hdf5")]


def test_an_environment_that_fails_leaves_no_half_data_set(
    datasets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment raises in the second round of episodes."""
    settings = ("imports=[unruly]", "env.id=Calm-v0", "run_dir=own", "recorder=none")
    assert train_status(*settings, *QUICK, "quiet=true") == 0
    resets = iter(range(16 + 8))  # 16 environments are stepped in parallel

    def reset(env: unruly.Calm, **options: Any) -> Any:
        if next(resets, None) is None:
            raise RuntimeError("broken")
        return genuine(env, **options)

    genuine = unruly.Calm.reset
    monkeypatch.setattr(unruly.Calm, "reset", reset)
    with pytest.raises(RuntimeError, match="broken"):
        record_status("own", "dataset=my/own-v0", "episodes=64")
    assert not [*datasets.rglob("*.hdf5")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "status"), sampled([(signal.SIGINT, 130), (signal.SIGTERM, 143)], every=2)
)
def test_a_signal_leaves_no_half_data_set(
    run_dir: Path, datasets: Path, tmp_path: Path, signum: int, status: int
) -> None:
    endless = (str(run_dir), "dataset=my/pole-v0", "episodes=1000000")
    with commands.Command(tmp_path, *endless, module="border_cli.cli.record") as command:
        command.until(lambda: any(datasets.rglob("main_data.hdf5")))
        command.send(signum)
        assert command.ended() == (status, INTERRUPTED)
    assert not [*datasets.rglob("*.hdf5")]
