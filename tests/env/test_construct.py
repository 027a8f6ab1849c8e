"""Construction of environments from settings, and the errors for invalid settings."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs import registration
from gymnasium.envs.classic_control import CartPoleEnv

from border_cli.env.config import GymConfig
from border_cli.env.construct import construct, find_spec
from border_cli.env.gym import GymEnvFactory
from border_cli.errors import ConfigError, MissingPackage

COUNTING = "border/Counting-v1"


def expect_error(match: str, **settings: Any) -> ConfigError:
    with pytest.raises(ConfigError, match=match) as caught:
        construct(GymConfig(**({"id": COUNTING} | settings)))
    return caught.value


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (
            "CartPol-v1",
            r"^env\.id=CartPol-v1 is not registered .*Did you mean: `CartPole`\?",
        ),
        ("CartPole-v9", r"It provides versioned environments: .* `v1`"),
        ("not an id!", r"^env\.id=not an id! is not registered"),
        (None, r"^env\.id must be set"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest_known_one(env_id, message):
    expect_error(message, id=env_id)


def test_an_id_without_version_means_the_newest():
    env = construct(GymConfig(id="border/Counting"))
    assert env.unwrapped.spec is not None
    assert env.unwrapped.spec.id == COUNTING


def test_a_module_before_the_id_is_imported_first(tmp_path, monkeypatch):
    lines = [
        "import gymnasium",
        "from gymnasium.envs.classic_control import CartPoleEnv",
        "gymnasium.register('OfModule-v3', entry_point=CartPoleEnv)",
    ]
    (tmp_path / "envs_of_a_user.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    spec = GymEnvFactory(GymConfig(id="envs_of_a_user:OfModule-v3")).spec
    assert (spec.id, spec.max_episode_steps) == ("envs_of_a_user:OfModule-v3", None)
    gymnasium.registry.pop("OfModule-v3")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", r" If a function registers it, call"),
        (
            "from gymnasium import register\ndef register_envs(): ...",
            r"silent_envs registers no id .*, but may do so by register_envs\(\): ",
        ),
        (
            "def register(): ...",
            r"silent_envs registers no id .*, but may do so by register\(\): ",
        ),
        (
            "import gymnasium\ngymnasium.register('OfSilent-v0', entry_point='silent_envs:Walk')",
            r"silent_envs registers OfSilent-v0$",
        ),
    ],
)
def test_a_module_without_the_environment_is_refused(tmp_path, monkeypatch, source, expected):
    (tmp_path / "silent_envs.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    try:
        expect_error(
            rf"^env\.id=silent_envs:Walk-v0 is not registered .*{expected}",
            id="silent_envs:Walk-v0",
        )
    finally:
        sys.modules.pop("silent_envs")
        gymnasium.registry.pop("OfSilent-v0", None)


def test_a_namespace_that_is_an_installed_module_is_suggested(tmp_path, monkeypatch):
    (tmp_path / "silent_namespace.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    expect_error(
        r"env\.id=silent_namespace:silent_namespace/Walk-v0$", id="silent_namespace/Walk-v0"
    )
    assert "silent_namespace" not in sys.modules


def test_a_class_of_a_module_precedes_a_registered_environment_of_the_same_name():
    assert find_spec(f"{__name__}:Pendulum").entry_point is Pendulum
    assert find_spec(f"{__name__}:Pendulum-v1").id == "Pendulum-v1"


class Pendulum(gymnasium.Env):
    pass


def test_a_constructor_that_needs_arguments_is_refused(monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "Needy-v0", registration.EnvSpec("Needy-v0", Needy))
    expect_error(
        r"^the constructor of env\.id=Needy-v0 needs arguments \(.*'size'\): set them in",
        id="Needy-v0",
    )


class Needy(gymnasium.Env):
    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize("version", ["0.29.1", "1.0.0"])
def test_a_gymnasium_that_is_too_old_is_refused(monkeypatch, version):
    monkeypatch.setattr(gymnasium, "__version__", version)
    expect_error(rf"^border_cli needs gymnasium>=1\.1, but version {version} is installed")


def test_a_module_that_is_not_there_is_refused():
    module = "gymnasium.envs_of_nobody"
    error = expect_error(
        rf"^env\.id={module}:X-v0: no module named '{module}'; the part", id=f"{module}:X-v0"
    )
    assert not isinstance(error, MissingPackage)


def test_all_packages_that_an_environment_needs_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "shimmy", None)
    expect_error(r'pip install "shimmy\[dm-control\]" "mujoco<4"$', id="shimmy:dm_control/x-v0")


def test_a_module_that_lacks_a_package_names_the_package(tmp_path, monkeypatch):
    (tmp_path / "envs_that_lack.py").write_text("import no_such_package_of_ours.part")
    monkeypatch.syspath_prepend(tmp_path)
    error = expect_error(
        r"needs a package that is not installed: pip install no_such_package_of_ours$",
        id="envs_that_lack:X-v0",
    )
    assert isinstance(error, MissingPackage)


def test_an_id_of_another_package_names_it_and_how_it_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid", None)  # as if it were not installed
    line = r"pip install minigrid, then add imports=\[minigrid\]$"
    assert isinstance(expect_error(line, id="MiniGrid-Empty-5x5-v0"), MissingPackage)


def test_an_id_of_a_package_that_is_there_says_how_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "minigrid.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    expect_error(
        r"registered by minigrid, which is installed: add imports=\[minigrid\]$",
        id="MiniGrid-Empty-5x5-v0",
    )


def dependency(message: str, cause: Exception | None) -> Exception:
    error = gymnasium.error.DependencyNotInstalled(message)
    error.__cause__ = cause
    return error


def test_a_dependency_that_fails_is_refused_in_gymnasiums_words_and_with_the_cause(raising):
    raising.error = dependency('pip install "gymnasium[other]"', ImportError("libGL.so.1"))
    error = expect_error(r"Raising-v1: pip .*\(libGL\.so\.1\)$", id="border/Raising-v1")
    assert not isinstance(error, MissingPackage)


def test_an_argument_that_the_constructor_does_not_take_is_refused():
    error = expect_error(
        r"^env\.kwargs \{'lenght': 5\} is not accepted by border/Counting-v1: .*"
        r"unexpected keyword argument 'lenght'(\. Did you mean 'length'\?)?$",
        kwargs={"lenght": 5},
    )
    assert isinstance(error.__cause__, TypeError)


def test_a_type_error_without_kwargs_is_no_error_of_the_settings(raising):
    raising.error = TypeError("a mistake of the author")
    with pytest.raises(TypeError, match="a mistake of the author"):
        construct(GymConfig(id="border/Raising-v1"))


def test_the_constructor_cannot_change_the_settings():
    config = GymConfig(id=COUNTING, kwargs={"forget": [1, 2]})
    construct(config)
    assert config.kwargs == {"forget": [1, 2]}


def test_wrappers_are_applied_innermost_first():
    scale = {"RescaleObservation": {"min_obs": 0.0, "max_obs": 1.0}}
    env = construct(GymConfig(id=COUNTING, wrappers=["FlattenObservation", scale]))
    assert type(env).__name__ == "RescaleObservation"
    assert type(env.env).__name__ == "FlattenObservation"
    obs, _ = env.reset(seed=0)
    np.testing.assert_allclose(obs, [0.001, 0.0])


def test_a_list_becomes_a_tuple_where_a_wrapper_takes_one():
    env = construct(GymConfig(id=COUNTING, wrappers=[{"ReshapeObservation": {"shape": [2, 1]}}]))
    assert env.observation_space.shape == (2, 1)


def test_a_list_becomes_an_array_where_a_wrapper_takes_one():
    scale = {"RescaleObservation": {"min_obs": [0.0, 0.0], "max_obs": [1.0, 10.0]}}
    env = construct(GymConfig(id=COUNTING, wrappers=[scale]))
    np.testing.assert_allclose(env.reset(seed=0)[0], [0.001, 0.0])
    assert env.observation_space.high.tolist() == [1.0, 10.0]


OWN_WRAPPERS = """
import gymnasium

class Twice(gymnasium.RewardWrapper):
    def __init__(self, env, factor=2):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward):
        return self.factor * reward

class Unannotated(gymnasium.Wrapper):
    def __init__(self, env, low):
        super().__init__(env)
        self.size = low.size

NUMBER = 3
"""


@pytest.fixture
def own_wrappers(tmp_path, monkeypatch):
    (tmp_path / "own_wrappers.py").write_text(OWN_WRAPPERS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_wrappers", None)


@pytest.mark.usefixtures("own_wrappers")
@pytest.mark.parametrize(
    ("entry", "factor"),
    [("own_wrappers:Twice", 2), ({"own_wrappers:Twice": {"factor": 5}}, 5)],
)
def test_a_wrapper_of_a_module_of_the_users_own(entry, factor):
    env = construct(GymConfig(id="CartPole-v1", wrappers=["FlattenObservation", entry]))
    assert type(env).__name__ == "Twice"
    assert type(env.env).__name__ == "FlattenObservation"
    env.reset(seed=0)
    assert env.step(0)[1] == factor
    env.close()


@pytest.mark.usefixtures("own_wrappers")
@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("own_wrappers:Twic", r"^env\.wrappers\[0\]: unknown wrapper of own_wrappers 'Twic', did "
         r"you mean Twice\? \(choose from Twice, Unannotated\)"),
        ("own_wrappers:NUMBER", r"unknown wrapper of own_wrappers 'NUMBER'"),
        ({"own_wrappers:Unannotated": {"low": [0]}},
         r"Unannotated cannot be created: .*own_wrappers\.py:\d+: AttributeError: 'list' object"),
        ("no_module:Twice", r"^env\.wrappers\[0\]=no_module:Twice: no module named 'no_module'"),
    ],
)  # fmt: skip
def test_an_invalid_wrapper_of_a_users_module_is_refused(wrapper, message):
    expect_error(message, id="CartPole-v1", wrappers=[wrapper])


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("FlatenObservation", r"^env\.wrappers\[0\]: unknown wrapper of .* 'FlatenObservation', "
         r"did you mean FlattenObservation\? \(choose from AddRenderObservation, "),
        (3, r"^env\.wrappers\[0\] must be a name or \{Name: \{argument: value\}\}, got 3$"),
        ({"RescaleObservation": {"min_obs": [0.0], "max_obs": 1.0}},
         r"^env\.wrappers\[0\] RescaleObservation cannot be created: .*\(2,\), got \(1,\)"),
        ({"TimeLimit": {"steps": 3}}, r"^env\.wrappers\[0\] TimeLimit cannot be created: .*steps"),
    ],
)  # fmt: skip
def test_an_invalid_wrapper_is_refused(wrapper, message):
    expect_error(message, wrappers=[wrapper])


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_a_time_aware_wrapper_uses_the_limit_of_the_settings(frame_skip):
    time = {"TimeAwareObservation": {"normalize_time": True}}
    limits = {"max_episode_steps": 4, "frame_skip": frame_skip}
    config = GymConfig(id=COUNTING, wrappers=[time], kwargs={"length": 99}, **limits)
    env = GymEnvFactory(config).make(training=True)
    env.reset(0)
    np.testing.assert_allclose(env.step(np.array([0])).next_obs, [[1.0, frame_skip, 0.25]])


def test_an_environment_may_construct_another():
    class Nested(CartPoleEnv):
        def __init__(self, **_: Any) -> None:
            super().__init__()
            construct(GymConfig(id="CartPole-v1")).close()

    gymnasium.register("border/Nested-v1", Nested)
    try:
        construct(GymConfig(id="border/Nested-v1")).close()
    finally:
        gymnasium.registry.pop("border/Nested-v1")


def limited() -> Any:
    return gymnasium.make("Pendulum-v1", max_episode_steps=2)


def test_a_time_limit_of_the_settings_replaces_that_of_an_environment_from_a_function():
    config = GymConfig(id=f"{__name__}:limited", max_episode_steps=3)
    env = GymEnvFactory(config).make(training=True)
    env.reset(0)
    ends = [env.step(np.zeros((1, 1), np.float32)).truncated[0] for _ in range(3)]
    assert ends == [False, False, True]


def plain(size: int = 1) -> Any:
    del size
    return CartPoleEnv()


@pytest.mark.parametrize("kwargs", [{}, {"size": 2}])
def test_an_environment_without_a_render_mode_cannot_be_filmed(kwargs: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"cannot be shown or filmed: .*'render_mode'"):
        construct(GymConfig(id=f"{__name__}:plain", kwargs=kwargs), render="rgb_array")
