"""Run directories and modules from another person, such as a colleague or an attacker."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from border_cli.system.files import SETTINGS

# A module that creates the file `mark` when it is imported, with candidate environment factories.
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
    """Writes MODULE to a file `name`.py; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(MODULE.format(mark=str(mark)))
    return folder


def install_module(folder: Path, name: str, mark: Path, *requires: str) -> Path:
    """Installs MODULE as a distribution `name`, as pip would; returns the folder for sys.path."""
    site = write_module(folder / "lib" / "site-packages", name, mark)
    about = site / f"{name}-1.0.dist-info"
    about.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    (about / "METADATA").write_text("\n".join(lines) + "\n")
    (about / "RECORD").write_text(f"{name}.py,,\n")
    return site


def tampered(run_dir: Path, new: Path, values: dict[str, Any]) -> Path:
    """Copies a run and changes its saved settings; `values` maps dotted names to values."""
    shutil.copytree(run_dir, new, symlinks=True)
    saved = yaml.safe_load((new / SETTINGS).read_text())
    for name, value in values.items():
        *groups, last = name.split(".")
        settings = saved
        for group in groups:
            settings = settings[group]
        settings[last] = value
    (new / SETTINGS).write_text(yaml.safe_dump(saved, sort_keys=False))
    return new
