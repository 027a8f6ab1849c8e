"""Jobs that share their composition are those that Hydra composes one by one."""

from __future__ import annotations

import pytest
from sampling import sampled

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.sweep import jobs_of, sweep_terms
from border_cli.errors import ConfigError

FIXED = "hydra.sweep.dir=out"  # without the time of day


def both_ways(*typed: str) -> tuple[list[Job], list[Job]]:
    composer = Composer()
    terms = sweep_terms(composer, [FIXED, *typed])
    assert terms.jobs is not None
    of_all = [each for each in (FIXED, *typed) if each.startswith("hydra.")]
    alone = [composer.job([*of_all, *each], number) for number, each in enumerate(terms.jobs)]
    return jobs_of(composer, terms.jobs, terms), alone


@pytest.mark.parametrize(
    "typed",
    [
        ("agent=dqn,rainbow", "env=cartpole", "agent.gamma=0.9,0.95"),
        ("env=cartpole", "run_dir=S", "resume=auto", "seed=0,1,2"),
        ("env=cartpole", "env.kwargs.a=1,2", "seed=5,6"),
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                ("agent=sac", "env.id=A-v0", "+env.kwargs.x=1,2", "agent.hidden=[4],[5,6]"),
                ("env=cartpole", "name=a,b", "env.kwargs={a:1},{b:2}", "seed=${hydra:job.num}"),
                ("agent=redq,iql", "env=pendulum", "trainer.max_opt_steps=10,20", "seed=3,4"),
                ("env=cartpole", "trainer.max_time_s=null,5", "recorder=[jsonl],[console]"),
                ("env=cartpole", "hydra.sweep.subdir=x${hydra:job.num}", "seed=1,2,3"),
                ("env=cartpole", "recorder.console.line_interval_s=5,6", "seed=1,2"),
                ("experiment=cartpole_per", "seed=1,2", "replay_buffer.capacity=5000,6000"),
            )
        ),
    ],
    ids=lambda typed: " ".join(typed),
)
def test_shared_compositions_equal_those_made_one_by_one(typed: tuple[str, ...]) -> None:
    shared, alone = both_ways(*typed)
    assert len(shared) > 1
    assert shared == alone


@pytest.mark.parametrize(
    "typed",
    sampled(
        [
            ("agent.gamma=0.9", "++agent.gamma=0.8"),
            ("env.kwargs.a=1", "env.kwargs={a:2}"),
            ("env.kwargs={a:1}", "env.kwargs.b=5", "env.kwargs={b:2}"),
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
    jobs, _ = both_ways(*words, "seed=1,2")
    assert [each.config.seed for each in jobs] == [1, 2]
    for job in jobs:
        alone = Composer().job([FIXED, *words, f"seed={job.config.seed}"]).config
        assert (job.config.agent, job.config.env) == (alone.agent, alone.env)


def test_swept_dictionaries_of_one_key_are_refused_and_of_its_parts_combined() -> None:
    with pytest.raises(ConfigError, match=r"give env\.kwargs once"):
        both_ways("env=cartpole", "env.kwargs={a:1},{a:2}", "env.kwargs={b:1},{b:2}")
    with pytest.raises(ConfigError, match="give seed once"):
        both_ways("env=cartpole", "seed=1,2", "seed=3")
    jobs, _ = both_ways("env=cartpole", "env.kwargs={a:1},{a:2}", "env.kwargs.b=1,2")
    assert [each.config.env.kwargs for each in jobs] == [  # type: ignore[attr-defined]
        {"a": 1, "b": 1},
        {"a": 1, "b": 2},
        {"a": 2, "b": 1},
        {"a": 2, "b": 2},
    ]


@pytest.mark.slow
def test_the_jobs_of_every_shipped_agent_are_equal_both_ways() -> None:
    agents = ",".join(Composer().options("agent"))
    shared, alone = both_ways(f"agent={agents}", "env.id=A-v0")
    assert len(shared) == len(agents.split(","))
    assert shared == alone


@pytest.mark.parametrize(
    ("value", "message"),
    sampled(
        [
            ("agent.gamma=0.9,1.5", "agent.gamma must be"),
            ("agent.gama=0.9,0.8", "did you mean agent.gamma"),
            ("seed=1,x", "seed must be an integer"),
        ],
        every=2,
    ),
)
def test_a_refusal_is_that_of_the_job_alone(value: str, message: str) -> None:
    composer = Composer()
    terms = sweep_terms(composer, [FIXED, "env=cartpole", value])
    jobs = terms.jobs or []
    with pytest.raises(ConfigError, match=message) as shared:
        jobs_of(composer, jobs, terms)
    with pytest.raises(ConfigError, match=message) as alone:
        [composer.job(each, number) for number, each in enumerate(jobs)]
    assert str(shared.value) == str(alone.value)
