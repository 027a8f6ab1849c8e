"""Rendered frames of Gymnasium environments, also on machines without a display."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from ctypes.util import find_library
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from border_cli.core.raw_values import format_value
from border_cli.errors import ConfigError

WITHOUT_DISPLAY = {"egl": "EGL", "osmesa": "OSMesa"}  # headless MuJoCo renderer -> its library


def choose_renderer(
    platform: str = sys.platform, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Configures MuJoCo and pygame to render without a window if there is no display. `MUJOCO_GL`
    and `SDL_VIDEODRIVER` are not overwritten."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    if not platform.startswith("linux") or any(environment.get(name) for name in displays):
        return
    environment.setdefault("SDL_VIDEODRIVER", "dummy")
    if "MUJOCO_GL" in environment:
        return
    for renderer, library in WITHOUT_DISPLAY.items():
        if find_library(library):
            environment["MUJOCO_GL"] = renderer
            return


def drawn_frame(env: gym.Env[Any, Any], env_id: str) -> NDArray[np.uint8]:
    """Returns a copy of the frame that the environment renders. [H, W, 3]"""
    try:
        rendered: Any = env.render()
    except Exception as error:  # environments of users and drivers may raise anything
        raise ConfigError(
            f"env.id={env_id} cannot be filmed: render raised {error!r}. Without a display MuJoCo "
            "needs EGL or OSMesa (apt-get install libegl1, or libosmesa6) and MUJOCO_GL=egl or "
            'osmesa; classic control needs pip install "border-cli[render]"'
        ) from error
    frame = rendered[-1] if isinstance(rendered, list) and rendered else rendered  # last of a list
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
        raise ConfigError(
            f"env.id={env_id} cannot be filmed: with render_mode=rgb_array, render must return "
            f"pixels [height, width, 3], got {format_value(rendered)}; its render_modes: "
            f"{env.metadata.get('render_modes')}"
        )
    return np.array(frame, np.uint8)
