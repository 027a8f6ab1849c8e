"""Action masks of environments: detection, checks, and their place in the observation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from masked import ACTIONS, PLACES, mask_at

from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.core.spaces import has_masks
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from border_cli.env.masks import MaskReader
from border_cli.errors import BadStep, ConfigError

GO_ON = [(place + 1) % ACTIONS for place in range(PLACES - 1)]


def config(**settings: Any) -> GymConfig:
    return GymConfig(**{"id": "masked/Strict-v0", "action_mask": True, **settings})


def walk(env: GymEnv, steps: int = PLACES - 1) -> list[Any]:
    return [env.step(np.array([action])) for action in GO_ON[:steps]]


@pytest.mark.parametrize("by_key", [False, True])
def test_masks_are_a_part_of_what_is_observed(by_key: bool) -> None:
    env = GymEnv(
        config(kwargs={"by_key": by_key}, action_mask=None if by_key else True), training=True
    )
    first: Any = env.reset(0)
    steps = walk(env)
    assert [step.next_obs["action_mask"][0].tolist() for step in steps] == [
        *(mask_at(place).tolist() for place in range(1, PLACES - 1)),
        [1] * ACTIONS,  # no action is valid at the end
    ]
    assert first["action_mask"].dtype == np.uint8
    assert steps[-1].act_obs["action_mask"].tolist() == [mask_at(0).tolist()]
    assert steps[-1].next_obs["observation"].argmax() == PLACES - 1


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (None, "the action_mask in info is missing or leaves no action"),
        ([1, 0, 1], "must have 0 or 1 for each of 4 actions, got [1, 0, 1]"),
        ([1, 0, 2, 0], "must have 0 or 1 for each of 4 actions, got [1, 0, 2, 0]"),
        ([1, 0, -1, 0], "must have 0 or 1"),
        (["1", "0", "1", "0"], "must have 0 or 1"),
        ("all", "must have 0 or 1"),
    ],
)
def test_an_invalid_mask_is_reported_with_its_environment_and_step(mask: Any, said: str) -> None:
    env = GymEnv(config(kwargs={"lost_at": 2, "mask": mask}), training=True)
    env.reset(0)
    walk(env, steps=1)
    with pytest.raises(BadStep, match="Strict-v0: step 2 of an episode: ") as error:
        env.step(np.array([GO_ON[1]]))
    assert said in str(error.value)


def test_no_valid_action_is_needed_if_the_time_limit_ends_the_episode() -> None:
    env = GymEnv(config(kwargs={"lost_at": 2}, max_episode_steps=2), training=False)
    env.reset(0)
    last = walk(env, steps=2)[-1]
    assert last.truncated.all()
    assert last.next_obs["action_mask"].all()


THREE, TWO_THREE = spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize(
    ("space", "mask", "expected"),
    [
        (THREE, np.array([True, False, True]), [1, 0, 1]),
        (THREE, np.array([1.0, 0.0, 1.0]), [1, 0, 1]),
        (TWO_THREE, (np.array([1, 0]), np.array([0, 1, 1])), [1, 0, 0, 1, 1]),
        (spaces.MultiBinary(3), [1, 0, 1], [1, 1, 1, 0, 1, 1]),  # every flag may be 0, two may be 1
    ],
)
def test_masks_of_every_kind_of_choice_are_read(space: Any, mask: Any, expected: Any) -> None:
    assert MaskReader(space)(mask).tolist() == expected


def test_of_several_integers_each_needs_a_valid_value() -> None:
    read = MaskReader(TWO_THREE)
    assert not read.leaves_a_choice(read([1, 1, 0, 0, 0]))
    assert read.leaves_a_choice(read([0, 1, 0, 1, 0]))


class Other(gym.Env[Any, Any]):
    """Observes a part named `action_mask`."""

    def __init__(self, actions: Any, part: Any) -> None:
        self.action_space = actions
        self.observation_space = spaces.Dict({"observation": TWO_THREE, "action_mask": part})


gym.register("masked/Other-v0", Other)
ANY_FOUR = spaces.Box(-1, 1, (4,), np.float32)


FOUR_FLAGS = spaces.Box(0, 1, (4,), np.int8)


@pytest.mark.parametrize(
    ("actions", "part"),
    [(spaces.Discrete(4), ANY_FOUR), (spaces.Discrete(3), FOUR_FLAGS), (ANY_FOUR, FOUR_FLAGS)],
)
def test_a_part_that_cannot_be_a_mask_is_ordinary_unless_masks_are_required(
    actions: Any, part: Any
) -> None:
    kwargs = {"actions": actions, "part": part}
    settings = GymConfig(id="masked/Other-v0", kwargs=kwargs)
    assert not has_masks(GymEnvFactory(settings).spec.observation)
    with pytest.raises(ConfigError, match="action_mask must not be true: env"):
        GymEnvFactory(replace(settings, action_mask=True)).spec  # noqa: B018


@pytest.mark.parametrize(
    ("space", "mask", "expected"),
    [
        (spaces.Discrete(3), np.array([0.0, 1.0, 0.0]), [0, 1, 0]),
        (
            spaces.MultiDiscrete([2, 3]),
            (np.array([0, 1]), np.array([0, 0, 1])),
            [0, 1, 0, 0, 1],
        ),
        (spaces.MultiBinary(3), np.array([0, 0, 0]), [1, 0, 1, 0, 1, 0]),
    ],
)
def test_a_loaded_policy_takes_the_masks_that_environments_return(
    space: Any, mask: Any, expected: list[int]
) -> None:
    class Masked(gym.Env[Any, Any]):
        observation_space = spaces.Box(0, 1, (1,), np.float32)
        action_space = space

        def reset(self, **_: Any) -> Any:
            return np.zeros(1, np.float32), {"action_mask": mask}

    gym.register("border/Masks-v0", Masked)
    try:
        spec = GymEnvFactory(GymConfig(id="border/Masks-v0", action_mask=True)).spec
    finally:
        del gym.registry["border/Masks-v0"]
    seen: list[Any] = []

    def act(rows: Any, *, explore: bool) -> Any:
        assert not explore
        seen.append(rows["action_mask"].tolist())
        return np.zeros((1, *np.shape(space.sample())), np.int64)

    LoadedPolicy(act, spec).act(np.zeros(1, np.float32), mask)
    assert seen == [[expected]]
