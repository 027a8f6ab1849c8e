"""Environments that need a package which is not there, told in the user's words."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium as gym

from border_cli.core.errors import ConfigError, MissingPackage

PACKAGES = {  # module -> what pip calls it
    "Box2D": "gymnasium[box2d]",
    "mujoco": "gymnasium[mujoco]",
    "pygame": "gymnasium[classic-control]",
    "ale_py": "ale-py",
    "cv2": "opencv-python",
    "gymnasium_robotics": "gymnasium-robotics",
    "shimmy": "shimmy[dm-control]",
}
# Beginnings of ids -> the module that registers them when it is imported
REGISTERED_BY = {
    r"ALE/|\w+NoFrameskip-v": "ale_py",
    r"MiniGrid-|BabyAI-": "minigrid",
    r"Fetch(Reach|Push|Slide|PickAndPlace)|HandReach|HandManipulate|FrankaKitchen": (
        "gymnasium_robotics"
    ),
    r"dm_control/": "shimmy",
}


@contextmanager
def missing_packages(what: str) -> Iterator[None]:
    """Turns the failure to import somebody else's package into the line that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not _is_absent(error.name):
            raise  # a mistake inside a package that is there
        raise _missing(what, str(error.name)) from error
    except gym.error.DependencyNotInstalled as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and _is_absent(cause.name):
            raise _missing(what, str(cause.name)) from error
        named = re.search(r"gymnasium\[[\w-]+\]", str(error))
        if named and cause is None:
            raise MissingPackage(what, named[0]) from error
        raise ConfigError(f"{what}: {error}" + (f" ({cause})" if cause else "")) from error


def refuse_of_other_package(env_id: str) -> None:
    """Raises ConfigError if the id is known to be another package's, which nothing imported."""
    for beginning, module in REGISTERED_BY.items():
        if re.match(beginning, env_id) is None:
            continue
        what, remedy = f"env.id={env_id}", f"add imports=[{module}]"
        if _is_absent(module):
            raise MissingPackage(what, PACKAGES.get(module, module), f", then {remedy}")
        if module not in sys.modules:
            raise ConfigError(f"{what} is registered by {module}, which is installed: {remedy}")


def _is_absent(module: str | None) -> bool:
    if module is None:
        return False
    top = module.partition(".")[0]
    return sys.modules.get(top) is None and importlib.util.find_spec(top) is None


def _missing(what: str, module: str) -> MissingPackage:
    top = module.partition(".")[0]
    return MissingPackage(what, PACKAGES.get(top, top))
