"""Schedules: their values, refused schedules, and schedules that end with the run."""

from __future__ import annotations

import math
from typing import Any

import pytest

from border_cli.agent.config import DqnConfig, SacConfig, Td3Config
from border_cli.errors import ConfigError
from border_cli.replay_buffer.config import PrioritizedConfig
from border_cli.settings.schedule import ENV_STEPS, UPDATES, Schedule, schedule_of
from border_cli.trainer.config import AsyncConfig, OfflineConfig


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("linear", [8.0, 6.5, 5.0, 2.0, 2.0]),
        # the fraction covered is (1 - cos(pi * progress)) / 2: 0, (1 - sqrt(1/2)) / 2, 1/2, 1
        ("cosine", [8.0, 8 - 6 * (1 - math.sqrt(0.5)) / 2, 5.0, 2.0, 2.0]),
        # a factor of 1/4 in 100 steps, hence 1/2 in 50
        ("exponential", [8.0, 8 / math.sqrt(2), 4.0, 2.0, 2.0]),
    ],
)
def test_each_kind_moves_from_its_initial_to_its_final_value_and_stays(
    kind: str, values: list[float]
) -> None:
    config = DqnConfig(learning_rate={"initial": 8, "final": 2, "kind": kind, "steps": 100})
    schedule = schedule_of(config.learning_rate)
    assert isinstance(schedule, Schedule)
    assert [schedule.at(count) for count in (0, 25, 50, 100, 2**40)] == pytest.approx(values)
    assert (schedule.at(0), schedule.at(100)) == (8.0, 2.0)


def test_linear_is_the_kind_that_is_meant_where_none_is_given() -> None:
    config = Td3Config(noise_std={"initial": "3e-1", "final": 0})
    assert config.noise_std == {"initial": 0.3, "final": 0.0, "kind": "linear", "steps": None}


def test_a_number_stays_a_number() -> None:
    assert (DqnConfig(learning_rate=1).learning_rate, SacConfig().critic_learning_rate) == (1, None)


GIVEN = {"initial": 0.5, "final": 0.1}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            GIVEN | {"kind": "linaer"},
            r"\.kind must be one of .*, got 'linaer', did you mean linear",
        ),
        (GIVEN | {"knd": "linear"}, r"unknown agent\.epsilon key 'knd', did you mean kind"),
        (GIVEN | {"initial": 1.5}, r"\.initial must be at least 0 and at most 1, got 1\.5"),
        (GIVEN | {"final": -0.1}, r"\.final must be at least 0 and at most 1, got -0\.1"),
        (GIVEN | {"final": math.nan}, r"\.final must be at least 0 and at most 1, got nan"),
        (GIVEN | {"final": True}, r"\.final must be a number, got True"),
        (GIVEN | {"steps": 10.5}, r"\.steps must be a whole number of at least 1"),
        (GIVEN | {"final": 0, "kind": "exponential"}, r"\.final must be above 0 .* never reaches"),
        ("often", r"must be a number or a schedule"),
        (True, r"must be a number .* got True"),
    ],
)
def test_what_is_no_schedule_is_refused_by_its_path(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^(agent\.epsilon)? ?{message}"):
        DqnConfig(epsilon=value)


def test_an_open_bound_may_be_the_final_value_but_not_the_initial_one() -> None:
    assert DqnConfig(learning_rate={"initial": 1e-3, "final": 0}).learning_rate["final"] == 0
    with pytest.raises(ConfigError, match=r"agent\.learning_rate\.initial must be above 0, got 0"):
        DqnConfig(learning_rate={"initial": 0, "final": 1e-3})


def test_only_what_may_be_null_is() -> None:
    with pytest.raises(ConfigError, match=r"agent\.learning_rate must be a number .* got null"):
        SacConfig(learning_rate=None)


def test_a_mapping_with_both_ends_is_a_whole_schedule_and_another_changes_the_default() -> None:
    whole = {"initial": 1.0, "final": 0.05, "kind": "linear", "steps": 10_000}
    assert DqnConfig().epsilon == whole
    assert DqnConfig(epsilon={"final": 0.2, "steps": 5e3}).epsilon == (
        whole | {"final": 0.2, "steps": 5_000}
    )
    assert DqnConfig(epsilon=GIVEN).epsilon == GIVEN | {"kind": "linear", "steps": None}
    assert PrioritizedConfig(beta={"steps": None}).beta == (
        {"initial": 0.4, "final": 1.0, "kind": "linear", "steps": None}
    )
    with pytest.raises(ConfigError, match=r"agent\.learning_rate\.initial must be a number"):
        DqnConfig(learning_rate={"final": 0.1})


def test_a_constant_epsilon_is_refused_where_the_agent_explores_otherwise() -> None:
    with pytest.raises(
        ConfigError, match=r"agent\.epsilon needs agent\.exploration=epsilon_greedy"
    ):
        DqnConfig(epsilon=0.1, exploration="softmax")
    assert DqnConfig(epsilon={"final": 0.2}, exploration="softmax").schedules == {}


@pytest.mark.parametrize(
    ("limits", "updates", "env_steps"),
    [
        ({"max_opt_steps": 500}, 500, 1100),  # 100 warm-up samples, then 2 per update
        ({"max_opt_steps": None, "max_env_steps": 700}, 300, 700),
        ({"max_opt_steps": 500, "max_env_steps": 700}, 300, 700),  # the limit reached first
        ({"max_opt_steps": 500, "samples_per_opt_step": None}, 500, None),
        ({"max_opt_steps": None, "max_time_s": 9.0}, None, None),
    ],
)
def test_without_steps_a_schedule_ends_with_the_run(
    limits: dict[str, Any], updates: int | None, env_steps: int | None
) -> None:
    trainer = AsyncConfig(**{"warmup_period": 100, "samples_per_opt_step": 2.0} | limits)
    assert trainer.steps_of_run(UPDATES) == updates
    assert trainer.steps_of_run(ENV_STEPS) == env_steps


def test_a_run_without_a_limit_in_its_counter_needs_the_steps() -> None:
    trainer, agent = OfflineConfig(max_opt_steps=500), DqnConfig(epsilon=GIVEN)
    with pytest.raises(ConfigError, match=r"agent\.epsilon\.steps must be set in a run without"):
        trainer.with_steps(agent)
    with_steps = DqnConfig(epsilon=GIVEN | {"steps": 9}, learning_rate=GIVEN)
    assert trainer.with_steps(with_steps).learning_rate["steps"] == 500
    assert with_steps.learning_rate["steps"] is None
