"""Environments of EnvPool, whose transitions are compared with Gymnasium's own."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.envpool import _skip_reason, check
from border_cli.api import resume, train
from border_cli.config.compose import compose
from border_cli.core.interfaces import Env
from border_cli.core.types import Step
from border_cli.env.config import AtariConfig, GymConfig, Vectorization
from border_cli.env.envpool import _pool_id, refuse_unsupported
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from border_cli.env.vector import GymVectorEnv
from border_cli.errors import ConfigError, MissingPackage
from border_cli.launch.effective import effective_settings
from tests.support.case_sampling import sampled

CART_POLE = {"id": "CartPole-v1", "vectorization": Vectorization.envpool}


def needs_envpool() -> None:
    pytest.importorskip("envpool", reason="needs the extra envpool")


def needs_package_of(env_id: str) -> None:
    package = env_id.rpartition(":")[0]
    if package:
        pytest.importorskip("dm_control" if package == "shimmy" else package, exc_type=ImportError)
        pytest.importorskip(package)


def make(*, first: int = 0, training: bool = True, **settings: Any) -> Env:
    needs_envpool()
    config = GymConfig(**(CART_POLE | {"num_envs": 4} | settings))
    return GymEnvFactory(config).make(training=training, first=first)


def push_right(env: Env, count: int) -> list[Step]:
    return [env.step(np.ones(env.num_envs, np.int64)) for _ in range(count)]


def stream(steps: int = 60, seed: int = 3, **settings: Any) -> list[list[Any]]:
    env = make(**settings)
    env.reset(seed)
    rows = [[step.next_obs.tolist(), step.reward.tolist()] for step in push_right(env, steps)]  # type: ignore[union-attr]
    env.close()
    return rows


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"kwargs": {"sutton_barto_reward": True}}, "kwargs"),
        ({"wrappers": ["FlattenObservation"]}, "wrappers"),
        ({"reward_weights": [1.0]}, "reward_weights"),
        ({"action_mask": True}, "action_mask"),
        ({"own_generators": True}, "own_generators"),
    ],
)
def test_settings_that_change_single_environments_are_refused(
    settings: dict[str, Any], what: str
) -> None:
    config = GymConfig(**(CART_POLE | settings))
    with pytest.raises(ConfigError, match=rf"env\.{what} cannot be set together with env\.vecto"):
        refuse_unsupported(config)


def test_the_games_of_ale_are_refused() -> None:
    config = AtariConfig(game="pong", vectorization=Vectorization.envpool)
    with pytest.raises(ConfigError, match=r"env\.vectorization must be auto or sync with env\.id="):
        refuse_unsupported(config)


def test_threads_are_refused_where_nothing_has_threads() -> None:
    with pytest.raises(ConfigError, match=r"env\.num_threads needs env\.vectorization=envpool"):
        GymConfig(id="CartPole-v1", num_threads=2)
    assert GymConfig(**CART_POLE, num_threads=2).with_threads(7).num_threads == 2
    assert GymConfig(**CART_POLE).with_threads(7).num_threads == 7
    assert GymConfig(id="CartPole-v1").with_threads(7).num_threads is None


@pytest.mark.parametrize("trainer", ["trainer=sync", "actor_manager=serial"])
def test_runs_that_resume_exactly_refuse_it_unless_that_is_typed(trainer: str) -> None:
    typed = ("agent=dqn", "env=cartpole", trainer, "env.vectorization=envpool")
    with pytest.raises(ConfigError, match=r"vectorization needs env\.exact_resume=false with trai"):
        _ = effective_settings(compose(*typed)).env
    effective = effective_settings(compose(*typed, "env.exact_resume=false"))
    assert isinstance(effective.env, GymConfig)
    assert effective.env.vectorization == Vectorization.envpool


def test_with_exact_resume_off_auto_steps_the_own_vector_implementation_in_lockstep() -> None:
    typed = ("agent=dqn", "env=cartpole", "trainer=sync", "env.num_envs=2")
    for exact, kind in ((True, GymEnv), (False, GymVectorEnv)):
        config = effective_settings(compose(*typed, f"env.exact_resume={exact}")).env
        assert isinstance(config, GymConfig)
        assert type(GymEnvFactory(config).make(training=True)) is kind
    with pytest.raises(ConfigError, match=r"exact_resume has no effect with env\.vectorization=s"):
        GymConfig(vectorization=Vectorization.sync, exact_resume=False)


def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    said = r'^env\.vectorization=envpool needs .*: pip install "border-cli\[envpool\]"$'
    with pytest.raises(MissingPackage, match=said):
        refuse_unsupported(GymConfig(**CART_POLE))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"id": "HalfCheetah-v2"}, "EnvPool has no HalfCheetah-v2, only HalfCheetah-v3, Half"),
        ({"id": "border/Counting-v1"}, r"EnvPool has no border/Counting-v1$"),
        ({"id": "Pendulum-v1"}, "EnvPool's Pendulum-v1 moves the pendulum at speeds above 8"),
        ({"id": "phys2d/CartPole-v1"}, "phys2d/CartPole-v1 has not been compared step by step"),
        ({"id": "minigrid:BabyAI-PutNextS5N2Carrying-v0"}, "S5N2Carrying-v0 shows the carried obj"),
        ({"id": "shimmy:dm_control/ball_in_cup-catch-v0"}, "BallInCupCatch-v1 rewards the ball in"),
        ({"id": "shimmy:dm_control/cartpole-two_poles-v0"}, "a tenth of the angle between"),
        ({"id": "shimmy:dm_control/dog-run-v0"}, "EnvPool's DogRun-v1 has not been compared step"),
        ({"id": "shimmy:dm_control/lqr-lqr_2_1-v0"}, "LqrLqr21-v1 has not been compared step by"),
    ],
)
def test_an_environment_that_is_not_equal_is_refused_by_name(
    settings: dict[str, Any], said: str
) -> None:
    needs_envpool()
    needs_package_of(settings["id"])
    with pytest.raises(ConfigError, match=said):
        next(GymEnvFactory(GymConfig(**(CART_POLE | settings))).trials())


@pytest.mark.parametrize(
    ("env_id", "limit"),
    sampled(
        [
            ("CartPole-v1", None),
            ("CartPole-v1", 12),
            ("FrozenLake-v1", 5),
            ("Hopper-v5", None),
            ("minigrid:MiniGrid-Empty-8x8-v0", None),
            ("Acrobot-v1", None),
            ("MountainCarContinuous-v0", None),
            ("CliffWalkingSlippery-v1", None),
            ("LunarLander-v3", None),
            ("HalfCheetah-v4", None),
            ("Reacher-v5", None),
            ("shimmy:dm_control/cartpole-swingup-v0", 20),
            ("minigrid:BabyAI-OpenRedDoor-v0", None),
            ("shimmy:dm_control/point_mass-hard-v0", 20),
            ("shimmy:dm_control/acrobot-swingup-v0", 20),
            ("shimmy:dm_control/reacher-hard-v0", 20),
        ],
        every=5,
    ),
)
def test_transitions_are_those_of_gymnasium(env_id: str, limit: int | None) -> None:
    needs_envpool()
    reason = _skip_reason(env_id)
    if reason:
        pytest.skip(reason)
    counts = check(env_id, 600, limit)
    assert counts["transitions"] >= 600
    assert counts["terminated"] + counts["truncated"] >= counts["episodes"] > 1
    assert {
        name: count for name, count in counts.items() if name.startswith("wrong") and count
    } == {}


def test_a_termination_in_the_last_step_is_not_lost() -> None:
    """Pushed to the right from any start, the pole falls within 12 steps."""
    lengths = [e.length for s in push_right(started(), 12) for e in s.episodes]
    env = started(max_episode_steps=min(lengths))
    last = push_right(env, min(lengths))[-1]
    assert last.truncated.all()
    assert 0 < np.count_nonzero(last.terminated) == lengths.count(min(lengths))


def started(**settings: Any) -> Env:
    env = make(**settings)
    env.reset(0)
    return env


@pytest.mark.parametrize("limit", [1, 3])
def test_episodes_are_truncated_at_the_limit_and_followed_by_a_reset(limit: int) -> None:
    env = started(max_episode_steps=limit)
    steps = push_right(env, 3 * (limit + 1))
    for number, step in enumerate(steps, 1):
        resets = number % (limit + 1) == 0
        assert step.truncated.tolist() == [number % (limit + 1) == limit] * 4
        ended = 4 * bool(step.truncated[0])
        assert [episode.length for episode in step.episodes] == [limit] * ended
        assert (step.moved is not None and not step.moved.any()) == resets
        assert step.reward.tolist() == [0.0 if resets else 1.0] * 4
        assert (np.abs(step.next_obs).max() <= 0.05) == resets  # first states only


@pytest.mark.parametrize(("limit", "length"), [(None, 1_000), (3, 3), (2_000, 1_000)])
def test_an_episode_of_dm_control_ends_at_its_own_limit_or_an_earlier_one(
    limit: int | None, length: int
) -> None:
    env_id = "shimmy:dm_control/cartpole-swingup-v0"
    reason = _skip_reason(env_id)
    if reason:
        pytest.skip(reason)
    env = make(id=env_id, max_episode_steps=limit)
    env.reset(0)
    steps = [env.step(np.zeros((4, 1), np.float32)) for _ in range(length + 2)]
    env.close()
    ended = [step.truncated.tolist() for step in steps]
    assert ended == [[False] * 4] * (length - 1) + [[True] * 4] + [[False] * 4] * 2
    assert not any(step.terminated.any() for step in steps)
    assert [episode.length for episode in steps[length - 1].episodes] == [length] * 4


def test_every_task_of_dm_control_has_its_name_in_envpool() -> None:
    needs_envpool()
    needs_package_of("shimmy:")
    import envpool
    from shimmy.utils.envs_configs import DM_CONTROL_SUITE_ENVS

    ids = set(envpool.list_all_envs())
    assert "HumanoidCMURun-v1" in ids
    for domain, task in DM_CONTROL_SUITE_ENVS:
        assert _pool_id(f"dm_control/{domain}-{task}-v0") in ids


def test_a_seed_gives_one_stream_for_any_number_of_threads() -> None:
    expected = stream(num_threads=1)
    assert stream(num_threads=1) == expected
    assert stream(num_threads=2) == expected
    assert stream(seed=4) != expected
    assert stream(first=4) != expected


def test_each_resume_begins_episodes_with_unused_seeds() -> None:
    env = make()
    starts = [env.reset(5)]
    for _ in range(2):
        state = env.state_dict()
        env.close()
        env = make()
        obs, restarted = env.resume(5, state)
        assert restarted == [0, 1, 2, 3]
        starts.append(obs)
    assert len({start.tobytes() for start in starts}) == 3  # type: ignore[union-attr]
    env.close()


def test_only_training_uses_it_and_a_single_environment_does_too() -> None:
    assert type(make(num_envs=1)) is GymVectorEnv
    assert type(make(training=False)) is GymEnv


def test_no_array_of_a_step_is_written_again() -> None:
    env = started()
    steps = push_right(env, 200)
    copies = [np.copy(step.next_obs) for step in steps]  # type: ignore[arg-type]
    push_right(env, 200)
    env.close()
    for step, copy in zip(steps, copies, strict=True):
        np.testing.assert_array_equal(step.next_obs, copy)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_run_in_lockstep_repeats_and_resumes(tmp_path: Path) -> None:
    needs_envpool()
    typed = ("agent=dqn", "env=cartpole", "trainer=sync", "env.num_envs=4", "recorder=jsonl")
    short = ("trainer.max_opt_steps=60", "trainer.warmup_period=64", "evaluator.num_episodes=2")
    config = compose(*typed, *short, "env.vectorization=envpool", "env.exact_resume=false")
    scores = [train(replace(config, run_dir=tmp_path / name)).best_score for name in ("a", "b")]
    assert scores[0] == scores[1]
    resume(tmp_path / "a", "trainer.max_opt_steps=90")
