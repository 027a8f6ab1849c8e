"""The advice at the end of a run, derived from made-up times."""

from __future__ import annotations

import pytest

from border_cli.core.timing import LEARNER_SECTIONS
from border_cli.launch.summary import SECTIONS, bottleneck_advice

WAITS = {"wait": 71.0, "update": 20.0, "other": 9.0}
UPDATES = {"wait": 1.0, "update": 93.0, "sample": 4.0, "other": 2.0}


def advice(
    learner: dict[str, float],
    *,
    in_learner_thread: bool = False,
    actor_threads: bool = False,
    paced: bool = True,
    unlimited_episodes: bool = False,
) -> str:
    text = bottleneck_advice(
        learner,
        in_learner_thread=in_learner_thread,
        actor_threads=actor_threads,
        paced=paced,
        unlimited_episodes=unlimited_episodes,
    )
    assert text is not None
    return text


@pytest.mark.parametrize(
    ("learner", "kind", "setting"),
    [
        (WAITS, {}, "actor_manager.num_actors"),
        (WAITS, {"in_learner_thread": True}, "env.num_envs"),
        (WAITS, {"actor_threads": True}, "actor_manager=process"),
        (UPDATES, {}, "agent.batch_size"),
        (UPDATES, {"actor_threads": True}, "agent.batch_size"),
        (UPDATES, {"actor_threads": True, "paced": False}, "actor_manager=process"),
        (UPDATES, {"paced": False}, "agent.batch_size"),
    ],
)
def test_advice_names_the_setting_for_what_took_most(
    learner: dict[str, float], kind: dict[str, bool], setting: str
) -> None:
    text = advice(learner, **kind)
    share = "(71 %)" if learner is WAITS else "(93 %)"
    assert f" {share}. Try " in text
    assert setting in text


def test_evaluations_that_no_time_limit_ends_are_told_the_setting_that_does() -> None:
    assert "trainer.eval_interval" in advice({"evaluate": 9.0})
    assert "evaluator.max_episode_steps" in advice({"evaluate": 9.0}, unlimited_episodes=True)


def test_every_section_of_the_learners_time_has_its_advice() -> None:
    assert set(SECTIONS) == set(LEARNER_SECTIONS)
