"""Resuming unfinished episodes by replaying their actions from their seeds."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from border_cli.core.seeding import derived_seed
from border_cli.core.types import Step
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from tests.support.saved_states import reread, same
from tests.support.walk_env import ACTIONS, Walk


@pytest.fixture(autouse=True)
def _sound_walks() -> Any:
    yield
    Walk.spoil = None
    Walk.seeds.clear()


def make(num_envs: int = 3, action: str = "number", named: bool = False, **settings: Any) -> GymEnv:
    config = GymConfig(
        id="border/Walk-v0",
        num_envs=num_envs,
        kwargs={"action": action, "named": named},
        vectorization="sync",
        **settings,
    )
    env = GymEnvFactory(config).make(training=True, first=2)
    assert isinstance(env, GymEnv)
    return env


def draw_actions(action: str, num_envs: int, rng: np.random.Generator) -> Any:
    """Draws random actions as a policy outputs them. Discrete actions start at 0."""
    if action == "number":
        return rng.integers(3, size=num_envs)
    if action == "numbers":
        return rng.integers([3, 4], size=(num_envs, 2))
    return rng.uniform(-1, 1, (num_envs, 2)).astype(np.float32)


def play(env: GymEnv, action: str, steps: int, rng: np.random.Generator) -> list[Step]:
    return [env.step(draw_actions(action, env.num_envs, rng)) for _ in range(steps)]


def describe(steps: list[Step]) -> list[Any]:
    return [
        [*step[:-2], [[episode.score, episode.length] for episode in step.episodes], step.env_steps]
        for step in steps
    ]


@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize("named", [False, True], ids=["array", "dict"])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_resumed_environment_goes_on_to_the_bit(action, num_envs, named, limit):
    settings = {"action": action, "named": named, "max_episode_steps": limit}
    for steps in (0, 4, 61):  # before the first step, in the first episodes, in later episodes
        env, resumed = make(num_envs, **settings), make(num_envs, **settings)
        obs = env.reset(5)
        rng = np.random.default_rng(steps)
        before = play(env, action, steps, rng)
        resumed_obs, restarted = resumed.resume(5, reread(env.state_dict()))
        assert restarted == []
        assert same(resumed_obs, before[-1].act_obs if before else obs)

        Walk.seeds.clear()
        ahead = copy.deepcopy(rng)
        expected = describe(play(env, action, 80, rng))
        seeds = Walk.seeds.copy()
        assert seeds  # later episodes have started
        Walk.seeds.clear()
        assert same(describe(play(resumed, action, 80, ahead)), expected)
        assert Walk.seeds == seeds


def test_actions_of_episodes_that_are_over_are_dropped(monkeypatch):
    monkeypatch.setattr("border_cli.env.gym_env.TIDY_EVERY", 8)
    for action in ACTIONS:
        env = make(action=action)
        env.reset(1)
        rng = np.random.default_rng(3)
        for _ in range(12):
            play(env, action, 7, rng)
            resumed = make(action=action)
            obs, restarted = resumed.resume(1, reread(env.state_dict()))
            assert restarted == []
            assert same(obs, env.state_dict()["obs"])
            assert same(resumed.state_dict(), env.state_dict())
            env = resumed  # the next round starts from here
    env = make(num_envs=2, max_episode_steps=5)
    env.reset(0)
    play(env, "number", 63, np.random.default_rng(0))
    assert len(env._recent) < 8 + 5


def test_nothing_in_a_state_is_written_afterwards():
    for action in ACTIONS:
        env = make(action=action, named=True, wrappers=[])
        env.reset(2)
        rng = np.random.default_rng(0)
        play(env, action, 30, rng)
        state = env.state_dict()
        before = copy.deepcopy(state)
        play(env, action, 60, rng)
        assert same(state, before)


def resume_spoiled(spoil: Any) -> tuple[GymEnv, Any, Any, list[int]]:
    env = make()
    env.reset(5)
    play(env, "number", 4, np.random.default_rng(0))
    state = reread(env.state_dict())
    assert state["lengths"] == [4, 4, 4]
    Walk.spoil = spoil
    Walk.seeds.clear()
    resumed = make()
    obs, restarted = resumed.resume(5, state)
    Walk.spoil = None
    return resumed, state, obs, restarted


SECOND = derived_seed(5, 3, 0)  # first episode of environment 1, whose number is 2 + 1


def only_second(change: Any) -> Any:
    def spoil(walk: Walk) -> None:
        if walk.np_random_seed == SECOND and walk.t == 3:
            change(walk)

    return spoil


def unhinge(walk: Walk) -> None:
    walk.place = walk.place + 1e-12


def throw_out(walk: Walk) -> None:
    walk.place = walk.place + 100


def fall_over(walk: Walk) -> None:
    del walk
    raise OSError("the simulator fell over")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (unhinge, "return is|differs from"),
        (throw_out, "the episode ended after 4 of 4 steps"),
        (fall_over, "the simulator fell over"),
    ],
)
def test_an_episode_that_cannot_be_continued_gives_way_to_the_next_one(change, reason, caplog):
    caplog.set_level("INFO")
    resumed, state, obs, restarted = resume_spoiled(only_second(change))
    assert restarted == [1]
    assert Walk.seeds == [
        derived_seed(5, 2, 0),
        SECOND,
        derived_seed(5, 3, 1),
        derived_seed(5, 4, 0),
    ]
    assert same(obs[[0, 2]], state["obs"][[0, 2]])
    first, _ = Walk().reset(seed=derived_seed(5, 3, 1))
    assert same(obs[1], first.astype(np.float32))
    after = resumed.state_dict()
    assert after["episodes"] == [0, 1, 0]
    assert after["lengths"] == [4, 0, 4]
    assert after["scores"][1] == 0
    assert len(caplog.messages) == 1
    assert "starting a new episode" in caplog.text
    assert any(text in caplog.text for text in reason.split("|"))


def test_an_observation_that_differs_in_one_bit_is_noticed():
    env = make(num_envs=2, named=True)
    env.reset(5)
    state = reread(env.state_dict())
    place = state["obs"]["place"]
    place[1, 0] = np.nextafter(place[1, 0], np.float32(9))
    assert make(num_envs=2, named=True).resume(5, state)[1] == [1]


def test_an_episode_that_began_anew_is_itself_continued_the_next_time():
    resumed, _, _, restarted = resume_spoiled(only_second(throw_out))
    assert restarted == [1]
    rng = np.random.default_rng(8)
    play(resumed, "number", 3, rng)
    second = make()
    _, restarted = second.resume(5, reread(resumed.state_dict()))
    assert restarted == []
    assert same(
        describe(play(second, "number", 40, copy.deepcopy(rng))),
        describe(play(resumed, "number", 40, rng)),
    )


def test_all_episodes_restart_from_a_state_of_a_vector_implementation():
    obs, restarted = make(num_envs=2).resume(0, {"resumes": 0})
    assert restarted == [0, 1]
    assert same(obs, make(num_envs=2).reset(0))


def test_an_episode_whose_wrapper_learned_from_those_before_begins_anew():
    settings = {"wrappers": ["NormalizeObservation"], "max_episode_steps": 9}
    env = make(num_envs=2, **settings)
    env.reset(5)
    play(env, "number", 40, np.random.default_rng(0))
    assert make(num_envs=2, **settings).resume(5, reread(env.state_dict()))[1] == [0, 1]
