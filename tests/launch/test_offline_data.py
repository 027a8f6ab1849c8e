"""Offline data sets: loading into the replay buffer, validation, and reference scores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from border_cli.config.compose import compose
from border_cli.core.interfaces import ReplayBuffer
from border_cli.core.returns import Moments
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Transitions
from border_cli.errors import ConfigError
from border_cli.launch.build import build_replay_buffer, env_factory, observe_stored
from border_cli.launch.effective import effective_settings
from border_cli.launch.offline_data import check_dataset
from border_cli.settings.run import RunConfig
from tests.support.datasets import CARTPOLE, datasets_in, episode, write, write_cartpole
from tests.support.discounted_returns import described, pooled
from tests.support.fakes import FakeAgent
from tests.support.whole_runs import trained

NESTED = gym.spaces.Dict(
    place=gym.spaces.Tuple([gym.spaces.Discrete(4, start=1), gym.spaces.Box(-9, 9, (2,))]),
    inner=gym.spaces.Dict(word=gym.spaces.Text(3), flags=gym.spaces.MultiBinary(2)),
)


class Nested(gym.Env[Any, Any]):
    """An environment with episodes of four steps and nested observations of many kinds."""

    observation_space, action_space = NESTED, gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        del seed, options
        self.left = 4
        return NESTED.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        self.left -= 1
        return NESTED.sample(), 1.0, self.left == 0, False, {}


gym.register("border/Nested-v0", Nested)
FLAT = ("env=gym", "env.id=border/Nested-v0", "env.wrappers=[FlattenObservation]")
COUNTS = gym.spaces.Box(0.0, 1e6, (1,), np.float64)
NUMBERS = "test/numbers-v0"


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path) -> Iterator[Path]:
    with datasets_in(tmp_path):
        yield tmp_path


def spec_of(*, n: int = 9, size: int = 1) -> EnvSpec:
    return EnvSpec(
        id="numbers",
        observation=BoxSpace((size,), "float32", np.zeros(size), np.ones(size)),
        action=DiscreteSpace(n),
        max_episode_steps=None,
    )


def config_of(*overrides: str) -> RunConfig:
    return compose(
        "env=cartpole", "~tuned", "trainer=offline", f"replay_buffer.dataset={NUMBERS}",
        "agent.gamma=0.5", *overrides,
    )  # fmt: skip


def write_numbers(actions: tuple[int, ...] = (3, 4), *, episodes: int = 1, **flags: bool) -> None:
    """Writes a data set of episodes with observations 0, 1, 2, … and rewards 1, 2, …"""
    steps = len(actions)
    observations = np.arange(steps + 1.0)[:, None]
    rewards = [float(1 + t) for t in range(steps)]
    one = episode(observations, np.array(actions), rewards, **flags)
    write(NUMBERS, [one] * episodes, COUNTS, gym.spaces.Discrete(9))


def rows_of(buffer: ReplayBuffer) -> Transitions:
    return buffer.rows(np.arange(len(buffer)))


def test_rows_go_through_the_step_processor_of_the_run() -> None:
    write_numbers((3, 4, 5), terminated=True)
    two = config_of("step_processor.n_steps=2")
    rows: Any = rows_of(build_replay_buffer(effective_settings(two), spec_of()))
    order = rows.obs[:, 0].argsort()
    assert rows.obs.dtype == np.float32
    assert rows.action[order].tolist() == [3, 4, 5]
    assert rows.reward[order].tolist() == [1 + 2 / 2, 2 + 3 / 2, 3]
    assert rows.discount[order].tolist() == [0.25, 0, 0]
    assert rows.next_obs[order, 0].tolist() == [2, 3, 3]  # the actual final observation


def test_a_cut_episode_bootstraps() -> None:
    write_numbers((3, 4), truncated=True)
    rows: Any = rows_of(
        build_replay_buffer(effective_settings(config_of("step_processor.n_steps=1")), spec_of())
    )
    assert rows.discount.tolist() == [0.5, 0.5]
    assert rows.next_obs[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize("n_steps", [1, 2])
def test_the_returns_of_every_step_are_seen_while_rows_are_read(n_steps: int) -> None:
    seen: list[Moments] = []
    write_numbers((3, 4, 5), episodes=2)
    config = config_of("agent.normalize_reward=true", f"step_processor.n_steps={n_steps}")
    build_replay_buffer(effective_settings(config), spec_of(), seen.append)
    by_hand = [1, 2 + 0.5, 3 + 1.25]
    assert pooled(seen) == pytest.approx(described(2 * by_hand), rel=1e-9)


def test_an_agent_is_shown_every_row_once() -> None:
    class Watching(FakeAgent):
        seen = 0

        def observe(self, transitions: Transitions) -> None:
            self.seen += len(transitions)

    write_numbers(tuple([1] * 5_000))
    agent = Watching()
    observe_stored(agent, build_replay_buffer(effective_settings(config_of()), spec_of()))
    assert agent.seen == 5_000
    observe_stored(
        agent, build_replay_buffer(effective_settings(compose("env=cartpole")), spec_of())
    )
    assert agent.seen == 5_000  # a buffer without a data set starts empty


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (spec_of(size=2), r"has observations float32 \[1\], but env.id=numbers has .*\[2\]"),
        (spec_of(n=2), r"has actions Discrete\(9\), but env.id=numbers has Discrete\(2\)"),
    ],
)
def test_a_data_set_of_another_environment_is_refused_by_name(spec: EnvSpec, said: str) -> None:
    write_numbers()
    with pytest.raises(ConfigError, match=f"replay_buffer.dataset={NUMBERS} {said}"):
        check_dataset(effective_settings(config_of()), spec)


@pytest.mark.parametrize(
    ("observations", "actions", "rewards", "said"),
    [
        ([0, 0, np.nan, 0], [0, 0, 0], [1, 1, 1], r", observations: step 2 is not finite: \[nan\]"),
        ([0, 0, 0, 0], [0, 0, 12], [1, 1, 1], r": the action .* 12 at \[2\] is out of bounds"),
        ([0, 0, 0, 0], [0, 0, 0], [1, 1, np.nan], ", rewards: step 2 is not finite: nan"),
        ([0, 0, 0], [0, 0, 0], [1, 1, 1], " has 3 observations for 3 rewards"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_with_its_place(
    observations: list[float], actions: list[int], rewards: list[float], said: str
) -> None:
    columns = np.array(observations, np.float64)[:, None], np.array(actions), rewards
    write(NUMBERS, [episode(*columns)], COUNTS, gym.spaces.Discrete(9))
    said = f"episode 0{said}"
    with pytest.raises(ConfigError, match=said):
        check_dataset(effective_settings(config_of()), spec_of())


def test_an_action_that_the_environment_cannot_take_is_refused() -> None:
    space = gym.spaces.Box(-10.0, 10.0, (1,))
    action = BoxSpace((1,), "float32", np.full(1, -2.0), np.full(1, 2.0))
    spec = replace(spec_of(), action=action)

    def check(name: str, largest: float) -> None:
        actions = np.array([[2.0], [largest], [-2.0]])
        write(name, [episode(np.zeros((4, 1)), actions, [1.0] * 3)], COUNTS, space)
        check_dataset(effective_settings(config_of(f"replay_buffer.dataset={name}")), spec)

    check("test/rounded-v0", 2.0001)
    with pytest.raises(ConfigError, match=r"actions: values between .*: \[-2.0\] to \[2.0\]"):
        check("test/wide-v0", 2.01)


def test_a_damaged_file_is_refused_in_the_rehearsal(datasets: Path) -> None:
    write_numbers()
    (file,) = datasets.rglob("main_data.hdf5")
    file.write_bytes(file.read_bytes()[:700])
    with pytest.raises(ConfigError, match=f"data set {NUMBERS} cannot be read: OSError"):
        check_dataset(effective_settings(config_of()), spec_of())


@pytest.mark.parametrize("module", ["minari", "h5py"])
def test_a_missing_package_is_said_with_the_line_that_installs_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_numbers()
    for name in [loaded for loaded in sys.modules if loaded.split(".")[0] == "minari"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r'pip install "border-cli\[offline\]"'):
        check_dataset(effective_settings(config_of()), spec_of())


def test_references_are_those_of_the_settings_else_of_the_data_set() -> None:
    def references(*typed: str) -> tuple[float | None, float | None]:
        settings = effective_settings(config_of(*typed)).evaluator
        return settings.ref_min_score, settings.ref_max_score

    write_numbers()
    assert references() == (None, None)
    write_cartpole(CARTPOLE, ref_min_score=20.0, ref_max_score=120.0)
    dataset = f"replay_buffer.dataset={CARTPOLE}"
    assert references(dataset) == (20.0, 120.0)
    refs = ("evaluator.ref_min_score=0", "evaluator.ref_max_score=140")
    assert references(dataset, *refs) == (0.0, 140.0)


def columns(values: list[Any]) -> Any:
    """Stacks observations as Minari stores them: one list or array per leaf."""
    first = values[0]
    if isinstance(first, dict):
        return {key: columns([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(columns([value[i] for value in values]) for i in range(len(first)))
    return values if isinstance(first, str) else np.stack(values)


def test_a_nested_data_set_is_flattened_as_the_environment_flattens(tmp_path: Path) -> None:
    NESTED.seed(0)
    observed = [NESTED.sample() for _ in range(5)]
    one = episode(columns(observed), np.array([0, 1, 0, 1]), [1.0] * 4, terminated=True)
    write(NUMBERS, [one], NESTED, gym.spaces.Discrete(2))
    flat = np.float32([gym.spaces.flatten(NESTED, obs) for obs in observed])
    config = config_of(*FLAT, "agent.hidden=[4]", "trainer.max_opt_steps=3", "recorder=none")
    effective = effective_settings(config)
    spec = env_factory(effective).spec
    check_dataset(effective, spec)
    rows: Any = rows_of(build_replay_buffer(effective, spec))
    np.testing.assert_array_equal(rows.obs, flat[:-1])
    np.testing.assert_array_equal(rows.next_obs, flat[1:])
    assert trained(config, tmp_path / "run").best_score == 4  # evaluations flatten as well


def test_observations_that_the_environment_does_not_flatten_are_refused_by_name() -> None:
    one = episode(["ab", "a", "b"], np.array([0, 1]), [1.0] * 2)
    write(NUMBERS, [one], gym.spaces.Text(3), gym.spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"Text.* but env.id=border/Nested-v0 flattens Dict\("):
        check_dataset(effective_settings(config_of(*FLAT)), spec_of())
