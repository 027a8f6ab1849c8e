"""Rendered frames of Gymnasium environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from border_cli.core.raw_values import format_value
from border_cli.errors import ConfigError
from border_cli.system.display import display_hint

RENDER = '. Classic control needs pip install "border-cli[render]"'


def drawn_frame(env: gym.Env[Any, Any], env_id: str) -> NDArray[np.uint8]:
    """Returns a copy of the frame that the environment renders. [H, W, 3]"""
    try:
        rendered: Any = env.render()
    except Exception as error:  # environments of users and drivers may raise anything
        raise ConfigError(
            f"env.id={env_id} cannot be filmed: render raised {error!r}"
            f"{display_hint(repr(error))}{RENDER if 'pygame' in repr(error) else ''}"
        ) from error
    frame = rendered[-1] if isinstance(rendered, list) and rendered else rendered  # last of a list
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] not in (3, 4):
        raise ConfigError(
            f"env.id={env_id} cannot be filmed: with render_mode=rgb_array, render must return "
            f"pixels [height, width, 3], got {format_value(rendered)}; its render_modes: "
            f"{env.metadata.get('render_modes')}"
        )
    return np.array(frame[..., :3], np.uint8)  # without the alpha channel
