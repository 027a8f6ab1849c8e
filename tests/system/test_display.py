"""Rendering without a display, and hints for errors that come from a missing one."""

from __future__ import annotations

from ctypes.util import find_library

import pytest

from border_cli.system.display import choose_renderer, display_hint


def test_mujoco_draws_without_a_window_where_there_is_no_display() -> None:
    environment: dict[str, str] = {}
    assert choose_renderer("linux", environment) == environment.get("MUJOCO_GL")
    assert environment["SDL_VIDEODRIVER"] == "dummy"
    library = {"egl": "EGL", "osmesa": "OSMesa", None: "nothing"}[environment.get("MUJOCO_GL")]
    assert library == "nothing" or find_library(library)
    for platform, expected in (
        ("darwin", {}),
        ("linux", {"DISPLAY": ":0"}),
        ("linux", {"MUJOCO_GL": "osmesa", "SDL_VIDEODRIVER": "x11"}),
    ):
        environment = dict(expected)
        assert choose_renderer(platform, environment) is None
        assert environment == expected


@pytest.mark.parametrize(
    "message",
    [
        "error: No available video device",
        'NoSuchDisplayException: Cannot connect to "None"',
        "GLFWError: (65544) b'X11: The DISPLAY environment variable is missing'",
        "FatalError: an OpenGL platform library has not been loaded into this process",
    ],
)
def test_errors_that_a_missing_display_causes_get_a_hint(
    message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert "xvfb-run -a border-train" in display_hint(message)
    assert display_hint("KeyError: 'joint_7'") == ""
    monkeypatch.setenv("DISPLAY", ":0")
    assert display_hint(message) == ""
