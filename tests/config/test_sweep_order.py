"""A job of a sweep has the settings of the same command without -m, in any order of overrides."""

from __future__ import annotations

import pytest

from border_cli.config.compose import Composer
from border_cli.config.sweep import jobs_of, sweep_terms
from tests.support.case_sampling import sampled

FIXED = "hydra.sweep.dir=out"  # the default contains the time of day


@pytest.mark.parametrize(
    "typed",
    sampled(
        [
            ("agent.gamma=0.9", "++agent.gamma=0.8"),
            ("env.kwargs.a=1", "env.kwargs={a:2}"),
            ("env.kwargs={a:1}", "env.kwargs.b=5"),
            ("agent.gamma=0.9", "agent.gamma=0.8"),
            ("env.kwargs={a:2}", "env.kwargs.a=1"),
            ("++env.kwargs.a=1", "env.kwargs.a=2", "~env.kwargs.a"),
        ],
        every=3,
    ),
    ids=lambda typed: " ".join(typed),
)
def test_a_job_of_a_sweep_has_the_settings_of_the_same_command_alone(
    typed: tuple[str, ...],
) -> None:
    words = ("env=cartpole", *typed)
    composer = Composer()
    terms = sweep_terms(composer, [FIXED, *words, "seed=1,2"])
    assert terms.jobs is not None
    jobs = jobs_of(composer, terms.jobs, terms)
    assert [swept.config.seed for swept in jobs] == [1, 2]
    for job in jobs:
        alone = Composer().job([FIXED, *words, f"seed={job.config.seed}"]).config
        assert (job.config.agent, job.config.env) == (alone.agent, alone.env)
