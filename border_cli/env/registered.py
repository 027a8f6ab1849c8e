"""Environments registered with Gymnasium by id, and the packages that are missing."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import gymnasium as gym
from gymnasium.envs import registration

from border_cli.env.config import GymConfig
from border_cli.errors import ConfigError, MissingPackage
from border_cli.system.foreign import refuse_standard

PACKAGES = {  # module -> what pip calls it
    "ale_py": "border-cli[atari]",
    "minatar": "border-cli[minatar]",
    "cv2": "opencv-python",
    "gymnasium_robotics": "border-cli[robotics]",
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
MINATAR = "MinAtar"
MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


def entry_of(config: GymConfig) -> registration.EnvSpec:
    """How the environment of these settings is constructed."""
    if config.entry_point is None:
        return registered(config.id)
    if config.id is None:
        raise ConfigError("env.game must be set: a game of ALE such as qbert")
    return registration.EnvSpec(
        config.id, config.entry_point, vector_entry_point=config.vector_entry_point
    )


def _register_minatar() -> None:
    """Registers MinAtar's ten ids: v0 has six actions, v1 those that do something in the game."""
    for game in MINATAR_GAMES:
        for version, minimal in (("v0", False), ("v1", True)):
            env_id = f"{MINATAR}/{game.title().replace('_', '')}-{version}"
            if env_id not in registration.registry:
                kwargs = {"game": game, "use_minimal_action_set": minimal}
                registration.register(
                    id=env_id, entry_point="border_cli.env.minatar:Minatar", kwargs=kwargs
                )


def registered(env_id: str | None) -> registration.EnvSpec:
    """Gymnasium's entry for the id; `gym.make` would warn of older versions."""
    if env_id is None:
        raise ConfigError("env.id must be set: a Gymnasium id such as CartPole-v1, or module:Id-v0")
    module, _, name = env_id.rpartition(":")
    if module:
        import_named(module, f"env.id={env_id}")
    if name.startswith(f"{MINATAR}/"):
        if _is_absent("minatar"):
            raise _missing(f"env.id={env_id}", "minatar")
        _register_minatar()
    try:
        return gym.spec(_with_version(name))
    except gym.error.Error as error:  # did you mean …?
        refuse_of_other_package(name)
        raise ConfigError(
            f"env.id={env_id} is not registered with Gymnasium: {error} If another package "
            f"registers it: imports=[its_module], or env.id=its_module:{name}"
        ) from error


def _with_version(name: str) -> str:
    """The newest one of an id without version."""
    namespace, plain, version = registration.parse_env_id(name)
    if version is None:
        version = registration.find_highest_version(namespace, plain)
    return registration.get_env_id(namespace, plain, version)


def portable(env_id: str | None) -> tuple[str, bytes] | None:
    """The id and what is registered under it, for a process that may not know it.

    None where the id names its own module, or where what it stands for is no class or function of
    a module, so that it cannot be sent.
    """
    if env_id is None or ":" in env_id:
        return None
    try:
        entry = registered(env_id)
        return entry.id, pickle.dumps(entry)
    except (ConfigError, pickle.PicklingError, AttributeError, TypeError):
        return None


def register_portable(sent: tuple[str, bytes] | None) -> None:
    """Registers what `portable` returned elsewhere, unless the id is known here."""
    if sent is not None and sent[0] not in registration.registry:
        registration.registry[sent[0]] = pickle.loads(sent[1])


def import_named(module: str, setting: str) -> ModuleType:
    """The module that stands before the colon in this setting."""
    refuse_standard(module, setting)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        itself = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        if not itself or error.name in PACKAGES:
            raise  # it exists and lacks a package, or is one of PACKAGES
        raise ConfigError(
            f"{setting}: no module named {error.name!r}; the part before the colon must "
            "be on the Python path"
        ) from error


@contextmanager
def missing_packages(what: str) -> Iterator[None]:
    """Turns the failure to import a package into the line that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not _is_absent(error.name):
            raise  # a mistake inside a package that is installed
        raise _missing(what, str(error.name)) from error
    except gym.error.DependencyNotInstalled as error:  # it names the line that installs it
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        raise ConfigError(f"{what}: {error}{cause}") from error


def refuse_of_other_package(env_id: str) -> None:
    """Raises ConfigError if the id is known to be of another package, which is not imported."""
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
