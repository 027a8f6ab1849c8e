"""Settings of the place where evaluations run."""

from __future__ import annotations

import pytest

from border_cli import compose
from border_cli.errors import ConfigError
from border_cli.launch.effective import effective_settings
from tests.support.case_sampling import sampled

ON_RAY = ("evaluator.background=true", "evaluator.where=ray")


@pytest.mark.parametrize(
    ("typed", "said"),
    sampled(
        [
            (
                ["evaluator.where=ray"],
                r"evaluator\.where needs evaluator\.background=true, got 'ray'",
            ),
            (
                ["evaluator.address=auto"],
                r"evaluator\.address needs evaluator\.where=ray, got 'auto'",
            ),
            ([*ON_RAY, "evaluator.num_workers=0"], r"evaluator\.num_workers must be at least 1"),
            ([*ON_RAY, "trainer=sync"], r"evaluator\.where=ray needs actors beside the learner"),
        ],
        every=3,
    ),
)
def test_invalid_settings_of_the_place_are_refused(typed: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        effective_settings(compose("env=cartpole", *typed))


@pytest.mark.parametrize("typed", ["={CPU: 2, GPU: 0.5}", ".CPU=2"])
def test_resources_are_set_like_any_setting(typed: str) -> None:
    config = compose(
        *("env=cartpole", "actor_manager=ray", f"actor_manager.resources{typed}", *ON_RAY),
        f"evaluator.resources{typed}",
    )
    for part in (config.actor_manager, config.evaluator):
        assert vars(part)["resources"]["CPU"] == 2.0
