"""Runs that somebody else has prepared: saved settings, packages and modules as an attacker, or a
colleague, writes them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from border_cli.system.files import SETTINGS

# A module that leaves a mark where it is imported, with ways to make an environment.
MODULE = """\
from __future__ import annotations
import functools, subprocess
from subprocess import run
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
with open({mark!r}, "a"):
    pass
def make(**kwargs):
    return CartPoleEnv()
def annotated(**kwargs) -> gymnasium.Env:
    return CartPoleEnv()
def wrong(**kwargs) -> int:
    return CartPoleEnv()
@functools.wraps(subprocess.run)
def pretended(*args, **kwargs):
    return subprocess.run(*args, **kwargs)
cached = functools.cache(make)
partial = functools.partial(make)
class Own(CartPoleEnv):
    def __init__(self, **kwargs):
        super().__init__()
class NoEnv:
    def __init__(self, **kwargs):
        pass
class Twice(gymnasium.Wrapper):
    pass
"""


def write_module(folder: Path, name: str, mark: Path) -> Path:
    """Writes MODULE as a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(MODULE.format(mark=str(mark)))
    return folder


def install_module(folder: Path, name: str, mark: Path, *requires: str) -> Path:
    """Writes MODULE as pip installs one, in a distribution of the same name; returns the folder
    for sys.path."""
    site = write_module(folder / "lib" / "site-packages", name, mark)
    about = site / f"{name}-1.0.dist-info"
    about.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    (about / "METADATA").write_text("\n".join(lines) + "\n")
    (about / "RECORD").write_text(f"{name}.py,,\n")
    return site


def tampered(run_dir: Path, new: Path, values: dict[str, Any]) -> Path:
    """A copy of a run with other saved settings, by their dotted names."""
    shutil.copytree(run_dir, new, symlinks=True)
    saved = yaml.safe_load((new / SETTINGS).read_text())
    for name, value in values.items():
        *places, last = name.split(".")
        settings = saved
        for place in places:
            settings = settings[place]
        settings[last] = value
    (new / SETTINGS).write_text(yaml.safe_dump(saved, sort_keys=False))
    return new
