"""Frames of environments, and refusal of invalid ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reaching

from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.pictures import drawn_frame
from border_cli.errors import ConfigError


class Draws(reaching.Reach):
    """Renders `picture`."""

    def __init__(self, picture: Any) -> None:
        super().__init__(render_mode="rgb_array")
        self.picture = picture

    def render(self) -> Any:
        return self.picture


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (None, r"got None; its render_modes: \['rgb_array'\]"),
        (np.zeros((5, 5)), r"must return pixels \[height, width, 3\], got array"),
    ],
)
def test_what_is_no_picture_is_refused(picture: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        drawn_frame(Draws(picture), "Draws-v0")


def test_a_failure_to_draw_says_what_draws_without_a_display() -> None:
    env = reaching.Reach(render_mode="rgb_array", drawable=0)
    with pytest.raises(ConfigError, match=r"the display is gone.*MUJOCO_GL=egl or osmesa"):
        drawn_frame(env, "border/Reach-v0")


def test_a_channel_of_transparency_is_left_out() -> None:
    picture = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.testing.assert_array_equal(drawn_frame(Draws(picture), "Draws-v0"), picture[:, :, :3])


def test_an_environment_made_for_films_draws_itself_at_its_own_rate() -> None:
    env = GymEnvFactory(GymConfig(id="border/Reach-v0")).make(training=False, render="rgb_array")
    env.reset(0)
    first = env.frame()
    for _ in range(3):
        env.step(np.ones((1, 1), np.float32))
    assert (first.shape, env.frames_per_s) == ((60, 80, 3), 20)
    assert not np.array_equal(first, env.frame())
    env.close()
