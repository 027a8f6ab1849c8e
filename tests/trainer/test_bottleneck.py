"""The advice at the end of a run, from times made up by hand."""

from __future__ import annotations

from typing import Any

import pytest

from border_cli.actor_manager.config import ProcessConfig, SerialConfig, ThreadConfig
from border_cli.agent.config import DqnConfig
from border_cli.core.config import (
    EnvConfig,
    EvaluatorConfig,
    RunConfig,
    StepProcessorConfig,
)
from border_cli.core.timing import LEARNER_SECTIONS
from border_cli.replay_buffer.config import UniformConfig
from border_cli.trainer.bottleneck import SECTIONS, TimeUse, bottleneck_advice
from border_cli.trainer.config import AsyncConfig

BUSY = {"act": 1.0, "env_step": 8.0, "blocked": 1.0}
BLOCKED = {"act": 1.0, "env_step": 1.0, "blocked": 8.0}
WAITS = {"wait": 71.0, "update": 20.0, "other": 9.0}
UPDATES = {"wait": 1.0, "update": 93.0, "sample": 4.0, "other": 2.0}
FREE = AsyncConfig(samples_per_opt_step=None)


def advice(
    learner: dict[str, float],
    actors: dict[str, float],
    *,
    cores: int = 4,
    threads: int = 1,
    update_s: float = 0.002,
    device: str = "cpu",
    **parts: Any,
) -> str | None:
    settings: dict[str, Any] = {
        "agent": DqnConfig(batch_size=64),
        "env": EnvConfig(),
        "step_processor": StepProcessorConfig(),
        "replay_buffer": UniformConfig(),
        "actor_manager": ProcessConfig(num_actors=2),
        "trainer": AsyncConfig(),
        "evaluator": EvaluatorConfig(),
    }
    config = RunConfig(**settings | parts)
    use = TimeUse(
        config=config,
        learner=dict.fromkeys(LEARNER_SECTIONS, 0.0) | learner,
        actors=actors,
        device=device,
        cores=cores,
        threads=threads,
        opt_steps=round(learner.get("update", 0.0) / update_s),
        in_learner_thread=isinstance(config.actor_manager, SerialConfig),
        actor_threads=isinstance(config.actor_manager, ThreadConfig),
    )
    return bottleneck_advice(use)


def test_a_run_without_time_has_no_bottleneck() -> None:
    assert advice({}, {}) is None


@pytest.mark.parametrize(
    ("learner", "actors", "parts", "setting"),
    [
        (WAITS, {}, {}, "actor_manager.num_actors"),
        (WAITS, BUSY, {}, "actor_manager.num_actors"),
        (WAITS, BUSY, {"cores": 2}, "actor_manager.nice=0"),
        (WAITS, BUSY, {"cores": 2, "actor_manager": ProcessConfig(nice=0)}, "env.num_envs"),
        (WAITS, BUSY, {"actor_manager": ThreadConfig()}, "actor_manager=process"),
        (WAITS, BUSY, {"actor_manager": SerialConfig()}, "env.num_envs"),
        (WAITS, BLOCKED, {}, "a longer run"),
        (UPDATES, BUSY, {}, "agent.batch_size"),
        (UPDATES, BUSY, {"actor_manager": ThreadConfig()}, "agent.batch_size"),
        (UPDATES, BUSY, {"actor_manager": ThreadConfig(), "trainer": FREE}, "=process"),
        (UPDATES, BUSY, {"device": "cuda"}, "agent.compile=true"),
        (UPDATES, BUSY, {"threads": 2}, "agent.num_threads=1"),
        (UPDATES, BLOCKED, {}, "agent.num_threads=2"),
        (UPDATES, BUSY, {"actor_manager": SerialConfig()}, "agent.num_threads=2"),
        (UPDATES, BLOCKED, {"cores": 1}, "trainer.samples_per_opt_step"),
        (UPDATES, BLOCKED, {"update_s": 0.001}, "trainer.samples_per_opt_step"),
        (UPDATES, BLOCKED, {"update_s": 0.001, "trainer": FREE}, "agent.batch_size"),
    ],
)
def test_advice_names_the_setting_for_what_took_most(
    learner: dict[str, float], actors: dict[str, float], parts: dict[str, Any], setting: str
) -> None:
    said = advice(learner, actors, **parts)
    assert said is not None
    share = "(71 %)" if learner is WAITS else "(93 %)"
    assert f" {share}. Try " in said
    assert setting in said


def test_actor_threads_without_a_limit_are_named_whatever_they_slow_down() -> None:
    slowed = {"update": 40.0, "sample": 30.0, "push": 30.0}
    free = {"actor_manager": ThreadConfig(), "trainer": FREE}
    assert "(30 %). Try actor_manager=process" in (advice(slowed, BUSY, **free) or "")


def test_what_could_be_gone_counts_twice_as_much_as_the_updates_themselves() -> None:
    assert "waiting for samples (34 %)" in (advice({"wait": 34.0, "update": 66.0}, {}) or "")
    assert "learner updates (67 %)" in (advice({"wait": 33.0, "update": 67.0}, {}) or "")


def test_every_section_of_the_learners_time_has_its_advice() -> None:
    assert set(SECTIONS) == set(LEARNER_SECTIONS)
