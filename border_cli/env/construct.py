"""The construction of a Gymnasium environment and its wrappers from the settings, including the
look-up of ids and errors for missing packages."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import math
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

PACKAGES = {  # module -> packages for pip
    "ale_py": "border-cli[atari]",
    "minatar": "border-cli[minatar]",
    "cv2": "opencv-python",
    "envpool": "border-cli[envpool]",
    "gymnasium_robotics": "border-cli[robotics]",
    "shimmy": "shimmy[dm-control] mujoco<4",
}
# Patterns of ids -> module that registers them on import
REGISTERED_BY = {
    r"ALE/|\w+NoFrameskip-v": "ale_py",
    r"MiniGrid-|BabyAI-": "minigrid",
    r"Fetch(Reach|Push|Slide|PickAndPlace)|HandReach|HandManipulate|FrankaKitchen": (
        "gymnasium_robotics"
    ),
    r"dm_control/": "shimmy",
}
GIVEN = "python/"  # prefix of the ids of environments passed from Python, see env/python_env.py
SHOWN_IDS = 8  # in a message
MINATAR = "MinAtar"
MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")

# Wrappers replaced by settings of the agent, which saves one set of statistics with the model.
SETTING_INSTEAD = {
    "NormalizeObservation": "agent.normalize_obs",
    "NormalizeReward": "agent.normalize_reward",
}

# Physics engines load shared libraries and set global state, so constructors run one at a time.
# Reentrant, because an environment may construct another, for example to play against a policy.
_constructing = threading.RLock()


@contextmanager
def construction(config: GymConfig) -> Iterator[None]:
    """Holds the lock under which every environment is constructed, one at a time."""
    if tuple(map(int, gym.__version__.split(".")[:2])) < (1, 1):
        raise ConfigError(
            f"border_cli needs gymnasium>=1.1, but version {gym.__version__} is installed, perhaps "
            "by a package that allows no newer one: pip install 'gymnasium>=1.1', and pip check"
        )
    with _constructing, _without_noise(), missing_packages(f"env.id={config.id}"):
        yield


def construct(config: GymConfig, render: str | None = None) -> gym.Env[Any, Any]:
    """Constructs an environment and its wrappers, without a reset. One thread at a time."""
    with construction(config):
        env = apply_wrappers(_construct_unwrapped(config, render), config.wrappers)
        env = _adapt(env, config)
        if config.changes_images or config.frame_skip > 1:
            from border_cli.env.frames import Frames

            env = Frames(env, config)
        if config.own_generators:
            from border_cli.env.own_generators import OwnGenerators

            env = OwnGenerators(env)
        if config.action_mask is False:
            return env
        if not config.action_mask and not may_have_masks(env.observation_space):
            return env
        from border_cli.env.masks import with_masks

        return with_masks(env, config)


def _adapt(env: gym.Env[Any, Any], config: GymConfig) -> gym.Env[Any, Any]:
    is_dict = isinstance(env.observation_space, gym.spaces.Dict)
    is_tuple = isinstance(env.action_space, gym.spaces.Tuple)
    is_changed = config.ignore or config.reward_weights is not None or is_dict or is_tuple
    if not is_changed and not hasattr(env.unwrapped, "reward_space"):
        return env
    from border_cli.env.adapt import adapt  # imported late: few environments need it

    return adapt(env, config)


def left_out(env: gym.Env[Any, Any]) -> tuple[str, ...]:
    """Returns the keys of the observation that `adapt` left out."""
    return next((layer.left_out for layer in layers(env) if hasattr(layer, "left_out")), ())


def time_limit(config: GymConfig, env: gym.Env[Any, Any]) -> int | None:
    """Returns the number of env steps after which an episode is truncated; None if unlimited."""
    if config.max_episode_steps is not None:
        return config.max_episode_steps
    limits = (layer for layer in layers(env) if isinstance(layer, gym_wrappers.TimeLimit))
    frames = min((limit._max_episode_steps for limit in limits), default=None)
    return frames and math.ceil(frames / config.frame_skip)


def layers(env: gym.Env[Any, Any]) -> Iterator[Wrapper]:
    """Yields the wrappers of an environment, outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def stacks_images(env: gym.Env[Any, Any]) -> bool:
    """Returns whether observations, if they are images, are stacks of successive ones, due to a
    wrapper or an environment with `stacks_frames = True`."""
    shape = env.observation_space.shape or (0,)
    if getattr(env.unwrapped, "stacks_frames", False) is True:
        return True
    stacks = (
        layer for layer in layers(env) if isinstance(layer, gym_wrappers.FrameStackObservation)
    )
    return any(stack.stack_size == shape[0] > 1 for stack in stacks)


def _construct_unwrapped(config: GymConfig, render: str | None) -> gym.Env[Any, Any]:
    spec = entry_of(config)
    kwargs = config.arguments()
    if render is not None:
        kwargs["render_mode"] = render
    # Our limit counts actions outside all wrappers and replaces the environment's own limit.
    own_limit = config.max_episode_steps
    no_limit = None if own_limit is None else -1
    try:
        env = gym.make(spec, max_episode_steps=no_limit, disable_env_checker=True, **kwargs)
    except TypeError as error:
        reason = str(error.__cause__ or error)
        if render is not None and "render_mode" in reason:
            raise ConfigError(
                f"env.id={config.id} cannot be shown or filmed: {reason}. Add the argument "
                "render_mode, and a method render"
            ) from error
        if config.kwargs:
            raise ConfigError(
                f"env.kwargs {config.kwargs} is not accepted by {spec.id}: {reason}"
            ) from error
        if "required positional argument" not in reason and "required keyword" not in reason:
            raise
        raise ConfigError(
            f"the constructor of env.id={config.id} needs arguments ({reason}): set them in "
            "env.kwargs, or name a function that returns the environment: env.id=my_module:make"
        ) from error
    if own_limit is not None and env.unwrapped.spec is not None:
        # Read by TimeAwareObservation, which counts each repetition of `frame_skip`.
        env.unwrapped.spec.max_episode_steps = own_limit * config.frame_skip
    return env if own_limit is None else _without_limits(env)


def _without_limits(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Removes the time limits of an environment that a function has constructed by `gym.make`."""
    while isinstance(env, gym_wrappers.TimeLimit):
        env = env.env
    if isinstance(env, gym.Wrapper):
        env.env = _without_limits(env.env)
    return env


@contextmanager
def _without_noise() -> Iterator[None]:
    """Silences warnings that users of an environment cannot act on.

    The SWIG bindings of Box2D crash the interpreter if their DeprecationWarnings become errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        # Vector environments without an autoreset mode are not used.
        warnings.filterwarnings("ignore", message=".*(AutoresetMode|autoreset_mode)")
        yield


def normalizing(entries: list[Any]) -> dict[str, str]:
    """Returns the wrappers with running statistics, with the setting to use instead of each."""
    names = [_name_and_arguments("env.wrappers", entry)[0] for entry in entries]
    return {name: SETTING_INSTEAD[name] for name in names if name in SETTING_INSTEAD}


def apply_wrappers(env: gym.Env[Any, Any], entries: list[Any]) -> gym.Env[Any, Any]:
    """Wraps an environment, starting with the innermost wrapper."""
    for index, entry in enumerate(entries):
        where = f"env.wrappers[{index}]"
        name, arguments = _name_and_arguments(where, entry)
        with missing_packages(f"{where} {name}"):
            wrapper = _find_wrapper(where, name)
            try:
                env = wrapper(env, **_convert_lists(wrapper, copy.deepcopy(arguments)))
            except (AssertionError, AttributeError, TypeError, ValueError) as error:
                raise ConfigError(f"{where} {name} cannot be created: {place_of(error)}") from error
    return env


def _convert_lists(wrapper: type[Wrapper], arguments: dict[str, Any]) -> dict[str, Any]:
    """Converts lists to arrays or tuples if the parameters are annotated as such."""
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


def _find_wrapper(where: str, name: str) -> type[Wrapper]:
    """Returns the wrapper class for a name in gymnasium.wrappers or the user's `module:Class`."""
    module, colon, class_name = name.rpartition(":")
    home: Any = import_named(module, f"{where}={name}") if colon else gym_wrappers
    wrapper = getattr(home, class_name, None)  # Gymnasium imports some wrappers on first access
    if isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper):
        return wrapper
    names = [
        key
        for key, value in vars(home).items()
        if isinstance(value, type) and issubclass(value, gym.Wrapper)
    ]
    raise ConfigError(
        f"{where}: {unknown(f'wrapper of {home.__name__}', class_name, sorted(names))}"
    )


def entry_of(config: GymConfig) -> registration.EnvSpec:
    """Returns Gymnasium's spec to construct the environment of these settings."""
    if config.entry_point is None:
        return find_spec(config.id)
    if config.id is None:
        raise ConfigError("env.game must be set: a game of ALE such as qbert")
    return registration.EnvSpec(
        config.id, config.entry_point, vector_entry_point=config.vector_entry_point
    )


def _register_minatar() -> None:
    """Registers MinAtar's ten ids: v0 with all six actions, v1 with those that have an effect."""
    for game in MINATAR_GAMES:
        for version, minimal in (("v0", False), ("v1", True)):
            env_id = f"{MINATAR}/{game.title().replace('_', '')}-{version}"
            if env_id not in registration.registry:
                kwargs = {"game": game, "use_minimal_action_set": minimal}
                registration.register(
                    id=env_id, entry_point="border_cli.env.minatar:Minatar", kwargs=kwargs
                )


def find_spec(env_id: str | None) -> registration.EnvSpec:
    """Returns Gymnasium's spec of an id, or of a class or function `module:name`. Unlike
    `gym.make`, it does not warn about older versions."""
    if env_id is None:
        raise ConfigError("env.id must be set: a Gymnasium id such as CartPole-v1, or module:Id-v0")
    module, _, name = env_id.rpartition(":")
    home = import_named(module, f"env.id={env_id}") if module else None
    constructor = getattr(home, name, None)
    if callable(constructor) and name not in registration.registry:
        return registration.EnvSpec(name, constructor)
    if name.startswith(f"{MINATAR}/"):
        _register_minatar()
    try:
        return gym.spec(_with_version(name))
    except gym.error.Error as error:  # its message suggests similar ids
        refuse_of_other_package(name)
        if name.startswith(GIVEN):
            raise ConfigError(
                f"env.id={env_id} was passed to train(env=…) in Python: open the run with "
                "resume(…, env=…) or load_policy(…, env=…). A class or function at the top level "
                "of an imported module does not need this: it is found by its name"
            ) from error
        raise ConfigError(
            f"env.id={env_id} is not registered with Gymnasium: {error} {_suggest_id(home, name)}"
        ) from error


def _suggest_id(home: ModuleType | None, name: str) -> str:
    """Suggests how to register an id, given the module that was imported for it, if any."""
    if home is not None:
        package = home.__name__.partition(".")[0]
        ids = [
            spec.id
            for spec in registration.registry.values()
            if re.match(rf"{re.escape(package)}[.:]", str(spec.entry_point))
        ]
        if ids:
            return f"{home.__name__} registers {', '.join(sorted(ids)[:SHOWN_IDS])}"
        functions = [key for key, value in vars(home).items() if _registers(key, value, package)]
        if functions:
            return (
                f"{home.__name__} registers no id when it is imported, but may do so by "
                f"{', '.join(functions)}(): call that in a module of your own"
            )
    namespace = name.partition("/")[0]
    if home is None and namespace != name and not _is_absent(namespace):
        return f"{namespace} is installed and may register it: env.id={namespace}:{name}"
    return (
        f"If another package registers it: imports=[its_module], or env.id=its_module:{name}. If a "
        "function registers it, call that in a module of your own"
    )


def _registers(key: str, value: object, package: str) -> bool:
    """Returns whether a name in a module looks like a function of its package that registers."""
    is_own = inspect.isfunction(value) and f"{value.__module__}.".startswith(f"{package}.")
    return is_own and key.startswith("register")


def _with_version(name: str) -> str:
    """Adds the newest version to an id without one."""
    namespace, plain, version = registration.parse_env_id(name)
    if version is None:
        version = registration.find_highest_version(namespace, plain)
    return registration.get_env_id(namespace, plain, version)


def portable(env_id: str | None) -> tuple[str, bytes] | None:
    """Returns the id and its pickled spec, for a process in which it may not be registered.

    Returns None if the id names its own module, or if the spec cannot be pickled because its
    constructor is not a class or function of a module.
    """
    if env_id is None or ":" in env_id:
        return None
    try:
        entry = find_spec(env_id)
        return entry.id, pickle.dumps(entry)
    except (ConfigError, pickle.PicklingError, AttributeError, TypeError):
        return None


def register_portable(sent: tuple[str, bytes] | None) -> None:
    """Registers the result of `portable` from another process, unless the id is already known."""
    if sent is not None and sent[0] not in registration.registry:
        registration.registry[sent[0]] = pickle.loads(sent[1])


def import_named(module: str, setting: str) -> ModuleType:
    """Imports the module named before the colon in a setting."""
    refuse_standard(module, setting)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        is_module = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        if not is_module or error.name in PACKAGES:
            raise  # the module needs a missing package, or is one of PACKAGES itself
        raise ConfigError(
            f"{setting}: no module named {error.name!r}; the part before the colon must "
            "be on the Python path"
        ) from error


@contextmanager
def missing_packages(what: str) -> Iterator[None]:
    """Turns a failed import inside the block into an error with the command to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or not _is_absent(package):
            raise  # an error inside an installed package
        raise MissingPackage(what, PACKAGES.get(package, package)) from error
    except gym.error.DependencyNotInstalled as error:  # its message has the install command
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        raise ConfigError(f"{what}: {error}{cause}") from error


def refuse_of_other_package(env_id: str) -> None:
    """Raises ConfigError if the id belongs to a known package that is not imported."""
    for pattern, module in REGISTERED_BY.items():
        if re.match(pattern, env_id) is None:
            continue
        what, remedy = f"env.id={env_id}", f"add imports=[{module}]"
        if _is_absent(module):
            raise MissingPackage(what, PACKAGES.get(module, module), f", then {remedy}")
        if module not in sys.modules:
            raise ConfigError(f"{what} is registered by {module}, which is installed: {remedy}")


def _is_absent(package: str) -> bool:
    return sys.modules.get(package) is None and importlib.util.find_spec(package) is None
