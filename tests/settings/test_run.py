"""Settings of different groups are checked against each other before anything is built."""

from __future__ import annotations

from typing import Any

import pytest

from border_cli.errors import ConfigError
from border_cli.settings.run import (
    ActorManagerConfig,
    AgentConfig,
    EnvConfig,
    EvaluatorConfig,
    ReplayBufferConfig,
    ReplayRatioConfig,
    RunConfig,
    StepProcessorConfig,
    TrainerConfig,
)


def run_config(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "agent": AgentConfig(),
        "env": EnvConfig(id="CartPole-v1"),
        "step_processor": StepProcessorConfig(),
        "replay_buffer": ReplayBufferConfig(),
        "actor_manager": ActorManagerConfig(),
        "trainer": TrainerConfig(),
        "evaluator": EvaluatorConfig(),
    }
    return RunConfig(**settings | changes)


def test_a_warm_up_above_the_capacity_is_refused_and_one_that_fills_it_is_not() -> None:
    trainer = ReplayRatioConfig(warmup_period=500)
    run_config(trainer=trainer, replay_buffer=ReplayBufferConfig(capacity=500))
    message = r"^trainer\.warmup_period must be at most replay_buffer\.capacity \(499\), got 500$"
    with pytest.raises(ConfigError, match=message):
        run_config(trainer=trainer, replay_buffer=ReplayBufferConfig(capacity=499))


def test_a_run_without_any_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.max_opt_steps may be null only if max_en"):
        TrainerConfig(max_opt_steps=None)


def test_a_score_to_stop_at_needs_evaluations() -> None:
    with pytest.raises(
        ConfigError, match=r"trainer\.stop_at_score needs trainer.eval_interval above 0"
    ):
        TrainerConfig(stop_at_score=475.0, eval_interval=0)
    with pytest.raises(ConfigError, match=r"trainer\.patience needs trainer.eval_interval above 0"):
        TrainerConfig(patience=3, eval_interval=0)


@pytest.mark.parametrize(
    "bad",
    [
        [0.1],
        "apex",
        [0.1, -0.1],
        [None, "softmax"],
    ],
)
def test_exploration_must_have_one_entry_per_actor(bad: Any) -> None:
    message = (
        r"actor_manager\.exploration must be null, ape_x, or a list of 2 entries \(one per actor.*"
        r"each null, a number of at least 0 or a mapping"
    )
    with pytest.raises(ConfigError, match=message):
        ActorManagerConfig(num_actors=2, exploration=bad)


def test_exploration_of_an_actor_is_its_entry_or_the_agents_own() -> None:
    listed = ActorManagerConfig(num_actors=3, exploration=[1, None, {"noise_std": 0.2}])
    assert [listed.exploration_of(i) for i in range(3)] == [1, None, {"noise_std": 0.2}]
    assert ActorManagerConfig().exploration_of(0) is None


def test_ape_x_spreads_as_in_its_paper() -> None:
    # with eight actors the exponents are 1, 2, …, 8
    eight = ActorManagerConfig(num_actors=8, exploration="ape_x")
    by_hand = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]
    assert [eight.exploration_of(i) for i in range(8)] == pytest.approx(by_hand, rel=1e-12)
    assert ActorManagerConfig(num_actors=1, exploration="ape_x").exploration_of(0) == 0.4


def test_evaluations_have_one_environment_for_each_episode() -> None:
    with pytest.raises(ConfigError, match=r"^evaluator\.env\.num_envs: "):
        run_config(evaluator=EvaluatorConfig(env={"num_envs": 2}))
    run_config(evaluator=EvaluatorConfig(env={"max_episode_steps": 5}))


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^name must be a plain directory name, got "):
        run_config(name=name)


@pytest.mark.parametrize("key", ["run_dir", "resume", "init_from"])
def test_an_empty_path_is_refused(key: str) -> None:
    assert getattr(run_config(**{key: "somewhere"}), key) == "somewhere"
    with pytest.raises(ConfigError, match=rf"^{key} must not be empty; null means none, got "):
        run_config(**{key: ""})


@pytest.mark.parametrize(("low", "high"), [(1.0, None), (None, 1.0), (2.0, 2.0)])
def test_reference_scores_come_in_pairs_and_in_order(low: float | None, high: float | None) -> None:
    with pytest.raises(ConfigError, match=r"evaluator\.ref_max_score must be above ref_min_score"):
        EvaluatorConfig(ref_min_score=low, ref_max_score=high)
