"""Rendering on machines without a display."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import MutableMapping
from ctypes.util import find_library

# Parts of errors of pygame, pyglet, GLFW, GLUT and MuJoCo
NO_DISPLAY = re.compile(r"video device|NoSuchDisplay|\bdisplay|GLFW|GLX|\bEGL\b|X11|OpenGL", re.I)
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
WITHOUT_DISPLAY = {"egl": "EGL", "osmesa": "OSMesa"}  # headless MuJoCo renderer -> its library


def display_hint(message: str) -> str:
    """Returns a hint to add to an error of an environment that may need a display, else ""."""
    if NO_DISPLAY.search(message) is None or any(map(os.environ.get, DISPLAYS)):
        return ""
    return (
        ". Without a display, xvfb-run -a border-train … provides one (apt-get install xvfb), and "
        "MuJoCo renders with MUJOCO_GL=egl or osmesa (apt-get install libegl1, or libosmesa6)"
    )


def choose_renderer(
    platform: str = sys.platform, environment: MutableMapping[str, str] = os.environ
) -> str | None:
    """Configures MuJoCo and pygame to render without a window if there is no display. Must be
    called before they are imported. `MUJOCO_GL` and `SDL_VIDEODRIVER` are not overwritten. Returns
    the new value of `MUJOCO_GL`; None if it has not been set."""
    if not platform.startswith("linux") or any(map(environment.get, DISPLAYS)):
        return None
    environment.setdefault("SDL_VIDEODRIVER", "dummy")
    if "MUJOCO_GL" in environment:
        return None
    for renderer, library in WITHOUT_DISPLAY.items():
        if find_library(library):
            environment["MUJOCO_GL"] = renderer
            return renderer
    return None
