"""One Gymnasium environment inside its wrappers, from its settings: the id is looked up, and
packages that are missing are named."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import pickle
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import wrappers as gym_wrappers
from gymnasium.envs import registration

from border_cli.env.config import GymConfig
from border_cli.env.gym_spaces import may_have_masks
from border_cli.errors import ConfigError, MissingPackage, place_of
from border_cli.system.foreign import refuse_standard
from border_cli.words import unknown

Wrapper: TypeAlias = gym.Wrapper[Any, Any, Any, Any]

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
GIVEN = "python/"  # ids of what a caller in Python gives begin with it, see env/given.py
MINATAR = "MinAtar"
MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")

# Wrappers for what agents do themselves, with one set of statistics that is saved with the model.
SETTING_INSTEAD = {
    "NormalizeObservation": "agent.normalize_obs",
    "NormalizeReward": "agent.normalize_reward",
}

# Physics engines load shared libraries and set global state: one constructor at a time. Reentrant:
# an environment may construct another, as one that plays against a saved policy does.
_constructing = threading.RLock()


@contextmanager
def construction(config: GymConfig) -> Iterator[None]:
    """The only block in which environments are constructed, one at a time."""
    with _constructing, _without_noise(), missing_packages(f"env.id={config.id}"):
        yield


def construct(config: GymConfig, render: str | None = None) -> gym.Env[Any, Any]:
    """A new environment inside its wrappers, not reset. Waits while another one is constructed."""
    with construction(config):
        env = apply_wrappers(_construct_unwrapped(config, render), config.wrappers)
        if config.own_generators:
            from border_cli.env.own_generators import OwnGenerators

            env = OwnGenerators(env)
        if config.action_mask is False:
            return env
        if not config.action_mask and not may_have_masks(env.observation_space):
            return env
        from border_cli.env.masks import with_masks

        return with_masks(env, config)


def time_limit(config: GymConfig, env: gym.Env[Any, Any]) -> int | None:
    """The env steps after which an episode is truncated; None where it need not end."""
    if config.max_episode_steps is not None:
        return config.max_episode_steps
    inside = (each for each in layers(env) if isinstance(each, gym_wrappers.TimeLimit))
    return min((each._max_episode_steps for each in inside), default=None)


def layers(env: gym.Env[Any, Any]) -> Iterator[Wrapper]:
    """The wrappers around an environment, the outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def stacks_images(env: gym.Env[Any, Any]) -> bool:
    """Whether observations are made of successive images, uint8 [frames, H, W] or with channels
    behind the frames or at the end: by a wrapper, or by an environment that says so with
    `stacks_frames = True`."""
    space = env.observation_space
    if not isinstance(space, gym.spaces.Box) or space.dtype != "uint8":
        return False
    if len(space.shape) not in (3, 4):
        return False
    if getattr(env.unwrapped, "stacks_frames", False) is True:
        return True
    stacks = (each for each in layers(env) if isinstance(each, gym_wrappers.FrameStackObservation))
    return any(each.stack_size == space.shape[0] > 1 for each in stacks)


def _construct_unwrapped(config: GymConfig, render: str | None) -> gym.Env[Any, Any]:
    spec = entry_of(config)
    kwargs = config.arguments()
    if render is not None:
        kwargs["render_mode"] = render
    # Our own limit counts actions outside all wrappers, so the environment's own is left away.
    own_limit = config.max_episode_steps
    no_limit = None if own_limit is None else -1
    try:
        env = gym.make(spec, max_episode_steps=no_limit, disable_env_checker=True, **kwargs)
    except TypeError as error:
        if not config.kwargs:
            raise
        raise ConfigError(
            f"env.kwargs {config.kwargs} is not accepted by {spec.id}: {error.__cause__ or error}"
        ) from error
    if own_limit is not None and env.unwrapped.spec is not None:
        env.unwrapped.spec.max_episode_steps = own_limit  # TimeAwareObservation reads it there
    return env


@contextmanager
def _without_noise() -> Iterator[None]:
    """Silences warnings that the user of an environment cannot act on.

    Box2D's SWIG half even crashes the interpreter where its DeprecationWarnings are errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        # Vector environments without a mode are not used.
        warnings.filterwarnings("ignore", message=".*(AutoresetMode|autoreset_mode)")
        yield


def normalizing(entries: list[Any]) -> dict[str, str]:
    """The wrappers with running statistics of their own, each with the setting to use instead."""
    names = [_name_and_arguments("env.wrappers", each)[0] for each in entries]
    return {name: SETTING_INSTEAD[name] for name in names if name in SETTING_INSTEAD}


def apply_wrappers(env: gym.Env[Any, Any], entries: list[Any]) -> gym.Env[Any, Any]:
    """`env` inside the wrappers, the first one innermost."""
    for place, entry in enumerate(entries):
        where = f"env.wrappers[{place}]"
        name, arguments = _name_and_arguments(where, entry)
        with missing_packages(f"{where} {name}"):
            wrapper = _wrapper(where, name)
            try:
                env = wrapper(env, **_as_annotated(wrapper, copy.deepcopy(arguments)))
            except (AssertionError, AttributeError, TypeError, ValueError) as error:
                raise ConfigError(f"{where} {name} cannot be created: {place_of(error)}") from error
    return env


def _as_annotated(wrapper: type[Wrapper], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, their lists as arrays or tuples where the parameters are annotated so."""
    for key, parameter in inspect.signature(wrapper).parameters.items():
        annotation, value = str(parameter.annotation).lower(), arguments.get(key)
        if isinstance(value, list) and "ndarray" in annotation:
            arguments[key] = np.asarray(value)
        elif isinstance(value, list) and "tuple" in annotation:
            arguments[key] = tuple(value)
    return arguments


def _name_and_arguments(where: str, entry: object) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        [(name, arguments)] = entry.items()
        if isinstance(name, str) and (arguments is None or isinstance(arguments, dict)):
            return name, arguments or {}
    raise ConfigError(f"{where} must be a name or {{Name: {{argument: value}}}}, got {entry!r}")


def _wrapper(where: str, name: str) -> type[Wrapper]:
    """The class that a name in gymnasium.wrappers means, or `module:Class` of the user's own."""
    module, colon, own = name.rpartition(":")
    home: Any = import_named(module, f"{where}={name}") if colon else gym_wrappers
    found = getattr(home, own, None)  # Gymnasium imports some of its own only now
    if isinstance(found, type) and issubclass(found, gym.Wrapper):
        return found
    known = [
        key
        for key, each in vars(home).items()
        if isinstance(each, type) and issubclass(each, gym.Wrapper)
    ]
    raise ConfigError(f"{where}: {unknown(f'wrapper of {home.__name__}', own, sorted(known))}")


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
    """Gymnasium's entry for the id, or for a class or function `module:name`; `gym.make` would warn
    of older versions."""
    if env_id is None:
        raise ConfigError("env.id must be set: a Gymnasium id such as CartPole-v1, or module:Id-v0")
    module, _, name = env_id.rpartition(":")
    home = import_named(module, f"env.id={env_id}") if module else None
    if name.startswith(f"{MINATAR}/"):
        _register_minatar()
    try:
        return gym.spec(_with_version(name))
    except gym.error.Error as error:  # did you mean …?
        own = getattr(home, name, None)
        if callable(own):
            return registration.EnvSpec(name, own)
        refuse_of_other_package(name)
        if name.startswith(GIVEN):
            raise ConfigError(
                f"env.id={env_id} was given to train(env=…) in Python: open the run with "
                "resume(…, env=…) or load_policy(…, env=…). An environment that is a class or "
                "function at the top of a module is found by its name"
            ) from error
        if home is not None:
            registering = [f"{each}()" for each in vars(home) if each.startswith("register")]
            raise ConfigError(
                f"env.id={env_id}: the module {module} was imported and has no {name}: {error} If "
                f"a function of it registers it ({', '.join(registering) or 'none here'}), "
                f"call that in a module of your own: imports=[your_module] env.id={name}"
            ) from error
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
        package = (error.name or "").partition(".")[0]
        if not package or not _is_absent(package):
            raise  # a mistake inside a package that is installed
        raise MissingPackage(what, PACKAGES.get(package, package)) from error
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


def _is_absent(package: str) -> bool:
    return sys.modules.get(package) is None and importlib.util.find_spec(package) is None
