"""The sentence at the end of a run, from numbers made up by hand."""

from __future__ import annotations

from typing import Any

import pytest

from border_cli.actor_manager.config import ProcessConfig, SerialConfig, ThreadConfig
from border_cli.agent.config import DqnConfig
from border_cli.core.config import (
    ActorManagerConfig,
    AgentConfig,
    Device,
    EnvConfig,
    EvaluatorConfig,
    ReplayBufferConfig,
    RunConfig,
    StepProcessorConfig,
    TrainerConfig,
)
from border_cli.replay_buffer.config import PrioritizedConfig, UniformConfig
from border_cli.trainer.bottleneck import bottleneck_advice
from border_cli.trainer.config import AsyncConfig, SyncConfig

ENV_STEPS = {"act": 1.0, "env_step": 8.0, "process": 0.5, "send": 0.25, "blocked": 0.25}
BLOCKED = {"act": 1.0, "env_step": 1.0, "process": 0.0, "send": 0.0, "blocked": 8.0}


def sentence(
    learner: dict[str, float],
    actors: dict[str, float] | None = None,
    *,
    cores: int = 4,
    threads: int = 1,
    update_s: float = 0.002,
    on: str = "cpu",
    num_envs: int = 1,
    trainer: TrainerConfig | None = None,
    **parts: Any,
) -> str | None:
    settings: dict[str, Any] = {
        "agent": DqnConfig(batch_size=64),
        "env": EnvConfig(num_envs=num_envs),
        "step_processor": StepProcessorConfig(),
        "replay_buffer": UniformConfig(),
        "actor_manager": ProcessConfig(num_actors=2, n_buffer=100, nice=0),
        "trainer": trainer or AsyncConfig(),
        "evaluator": EvaluatorConfig(num_episodes=20),
    }
    config = RunConfig(**settings | parts)
    manager = config.actor_manager
    return bottleneck_advice(
        config,
        learner=learner,
        actors=actors or {},
        device=on,
        cores=cores,
        threads=threads,
        opt_steps=round(learner.get("update", 0.0) / update_s),
        in_learner_thread=config.trainer.synchronous or isinstance(manager, SerialConfig),
        actor_threads=isinstance(manager, ThreadConfig),
        prioritized=isinstance(config.replay_buffer, PrioritizedConfig),
    )


def test_a_run_without_time_has_no_bottleneck() -> None:
    assert sentence({"wait": 0.0, "update": 0.0}) is None


# The learner waits for samples ------------------------------------------------------------------

WAITS = {"wait": 71.0, "update": 20.0, "other": 9.0}


@pytest.mark.parametrize(
    ("actors", "parts", "said"),
    [
        ({}, {}, ". Try more actors (actor_manager.num_actors), or env.num_envs=8."),
        (
            ENV_STEPS, {},
            "; the actors spent 80 % of their time in env steps. "
            "Try more actors (actor_manager.num_actors), or env.num_envs=8.",
        ),
        (
            ENV_STEPS, {"num_envs": 16},
            "; the actors spent 80 % of their time in env steps. "
            "Try more actors (actor_manager.num_actors), or env.num_envs=32.",
        ),
        (  # both cores are taken: more actors help only where they sleep
            ENV_STEPS, {"cores": 2},
            "; the actors spent 80 % of their time in env steps. Try more actors "
            "(actor_manager.num_actors) if env steps wait, or env.num_envs=8 if they compute.",
        ),
        (
            ENV_STEPS, {"actor_manager": ThreadConfig()},
            "; the actors spent 80 % of their time in env steps. Try more actors "
            "(actor_manager.num_actors) if env steps wait, or actor_manager=process or "
            "env.num_envs=8 if they compute.",
        ),
        (
            {"act": 6.0, "env_step": 4.0}, {},
            "; the actors spent 60 % of their time acting. Try env.num_envs=8, "
            "or more actors (actor_manager.num_actors).",
        ),
        (
            {"act": 1.0, "process": 3.0}, {},
            "; the actors spent 75 % of their time processing steps. Try env.num_envs=8, "
            "or more actors (actor_manager.num_actors).",
        ),
        (
            {"act": 1.0, "send": 9.0}, {},
            "; the actors spent 90 % of their time sending samples. Try a larger "
            "actor_manager.n_buffer (now 100), or more actors (actor_manager.num_actors).",
        ),
        (
            BLOCKED, {},
            "; the actors spent 80 % of their time blocked. Try a longer run (this one is mostly "
            "startup and trainer.warmup_period), or a larger actor_manager.n_buffer (now 100) if "
            "samples arrive in bursts.",
        ),
    ],
    ids=[
        "unmeasured", "env", "env-of-many", "env-all-cores", "env-threads", "act", "process",
        "send", "blocked",
    ],
)  # fmt: skip
def test_a_learner_that_waits_says_what_its_actors_do(
    actors: dict[str, float], parts: dict[str, Any], said: str
) -> None:
    assert sentence(WAITS, actors, **parts) == f"learner waiting for samples (71 %){said}"


@pytest.mark.parametrize("main", ["act", "env_step", "send", "blocked"])
@pytest.mark.parametrize("manager", [ProcessConfig(), ThreadConfig()])
def test_actors_of_a_lower_priority_may_be_without_cores(
    main: str, manager: ActorManagerConfig
) -> None:
    said = sentence(WAITS, {main: 1.0}, actor_manager=manager)
    assert said is not None
    raised = ", or actor_manager.nice=0 if other programs need the cores."
    assert said.endswith(raised) == isinstance(manager, ProcessConfig)


def test_a_learner_that_waits_for_no_actor_says_how_they_make_more() -> None:
    free = AsyncConfig(samples_per_opt_step=None)
    for actors in (ENV_STEPS, BLOCKED):
        said = sentence(UPDATES, actors, trainer=free, actor_manager=ProcessConfig())
        assert said is not None
        assert said.endswith(", or actor_manager.nice=0 if other programs need the cores.")
    assert sentence(UPDATES, ENV_STEPS, actor_manager=ProcessConfig()) == (
        f"{BUSY}. Try a smaller agent.batch_size (now 64)."
    )


def test_actors_in_the_learners_thread_act_while_it_seems_to_wait() -> None:
    assert sentence(WAITS, ENV_STEPS, actor_manager=SerialConfig()) == (
        "acting in the learner thread (71 %), mostly in env steps. Try env.num_envs=8, or "
        "actor_manager=process (actors run in parallel, but not bit-reproducible)."
    )
    for manager in (SerialConfig(), ThreadConfig()):  # which `sync` does not use
        assert sentence(WAITS, {}, actor_manager=manager, trainer=SyncConfig()) == (
            "acting in the learner thread (71 %). Try env.num_envs=8, or trainer=async (actors "
            "run in parallel, but not bit-reproducible)."
        )


def test_what_could_be_gone_counts_twice_as_much_as_the_updates_themselves() -> None:
    waits = sentence({"wait": 34.0, "update": 66.0})
    assert waits is not None
    assert waits.startswith("learner waiting for samples (34 %)")
    works = sentence({"wait": 33.0, "update": 67.0})
    assert works is not None
    assert works.startswith("learner updates (67 %)")


# The learner updates ----------------------------------------------------------------------------

UPDATES = {"wait": 1.0, "update": 93.0, "sample": 4.0, "other": 2.0}
BUSY = "learner updates (93 %)"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, ""),
        ({"device": Device.cpu}, ", or device=cuda"),
        ({"on": "cuda"}, ", or agent.compile=true"),
        ({"on": "cuda", "agent": DqnConfig(compile=True)}, ""),
        ({"on": "cuda", "agent": AgentConfig()}, ""),
    ],
)
def test_updates_are_made_faster_by_settings_that_the_agent_has(
    parts: dict[str, Any], said: str
) -> None:
    expected = f"{BUSY}. Try a smaller agent.batch_size (now 64){said}."
    assert sentence(UPDATES, ENV_STEPS, **parts) == expected


def test_actors_that_are_blocked_could_give_more_samples_per_update() -> None:
    assert sentence(UPDATES, BLOCKED) == (
        f"{BUSY}; the actors were blocked 80 % of their time. Try a smaller agent.batch_size "
        "(now 64), or agent.num_threads=4 if nothing else needs the cores, or a higher "
        "trainer.samples_per_opt_step (now 1.0); cheap, since the actors are idle."
    )
    free = AsyncConfig(samples_per_opt_step=None)  # the channel blocks them
    one = ThreadConfig(num_actors=1)
    assert sentence(UPDATES, BLOCKED, trainer=free, actor_manager=one) == (
        f"{BUSY}; the actors were blocked 80 % of their time. Try a smaller agent.batch_size "
        "(now 64), or agent.num_threads=4 if nothing else needs the cores."
    )


def test_threads_that_run_freely_starve_the_learner() -> None:
    free = AsyncConfig(samples_per_opt_step=None)
    starved = (
        "learner slowed down by actor threads (busy 97 %): they share its interpreter lock and run "
        "without a rate limit. Try actor_manager=process, or a rate limit "
        "(trainer.samples_per_opt_step=1)."
    )
    for actors in (ENV_STEPS, {}, BLOCKED):  # two threads, of which 40 % of one runs
        assert sentence(UPDATES, actors, trainer=free, actor_manager=ThreadConfig()) == starved
    elsewhere = {"wait": 1.0, "update": 43.0, "sample": 44.0, "push": 10.0, "other": 2.0}
    assert sentence(elsewhere, {}, trainer=free, actor_manager=ThreadConfig()) == starved
    not_starved = f"{BUSY}. Try a smaller agent.batch_size (now 64)."
    assert sentence(UPDATES, ENV_STEPS, trainer=free) == not_starved  # other processes
    assert sentence(UPDATES, ENV_STEPS, actor_manager=ThreadConfig()) == not_starved  # paced
    in_turn = SyncConfig(samples_per_opt_step=None)
    assert sentence(UPDATES, {}, trainer=in_turn, actor_manager=ThreadConfig(), cores=1) == (
        not_starved
    )


def test_beside_actors_in_turn_all_other_cores_are_idle() -> None:
    assert sentence(UPDATES, ENV_STEPS, trainer=SyncConfig()) == (
        f"{BUSY}. Try a smaller agent.batch_size (now 64), or agent.num_threads=4 if nothing else "
        "needs the cores."
    )
    for settings in (
        {"cores": 1},
        {"update_s": 0.001},  # its products are small
        {"agent": AgentConfig()},
    ):
        assert sentence(UPDATES, ENV_STEPS, trainer=SyncConfig(), **settings) == (
            f"{BUSY}. Try a smaller agent.batch_size (now 64)."
        )


def test_an_update_on_several_threads_says_when_one_is_faster() -> None:
    for parts in ({"trainer": SyncConfig()}, {}):
        assert sentence(UPDATES, ENV_STEPS, threads=2, **parts) == (
            f"{BUSY}. Try a smaller agent.batch_size (now 64), or agent.num_threads=1 if other "
            "programs need the cores."
        )
    assert sentence(UPDATES, ENV_STEPS, threads=2, on="cuda") == (
        f"{BUSY}. Try a smaller agent.batch_size (now 64), or agent.compile=true."
    )


# The learner does something else ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "parts", "said"),
    [
        (
            "evaluate", {"trainer": SyncConfig()},
            "evaluations (60 %). Try a longer trainer.eval_interval (now 1,000), "
            "or fewer evaluator.num_episodes (now 20).",
        ),
        (
            "evaluate", {"evaluator": EvaluatorConfig()},
            "evaluations (60 %). Try a longer trainer.eval_interval (now 1,000), "
            "or fewer evaluator.num_episodes (now 20), or evaluator.background=true.",
        ),
        (
            "evaluate", {"evaluator": EvaluatorConfig(background=True)},
            "evaluations (60 %). Try a longer trainer.eval_interval (now 1,000), "
            "or fewer evaluator.num_episodes (now 20).",
        ),
        (  # only the one at the end
            "evaluate", {"trainer": AsyncConfig(eval_interval=0), "evaluator": EvaluatorConfig()},
            "evaluations (60 %). Try fewer evaluator.num_episodes (now 20).",
        ),
        (
            "save", {},
            "saving checkpoints (60 %). Try a longer trainer.save_interval (now 5,000), or fewer "
            "evaluations (trainer.eval_interval): each new best model is saved.",
        ),
        (
            "save", {"trainer": AsyncConfig(save_interval=0, save_every_s=1.5)},
            "saving checkpoints (60 %). Try a longer trainer.save_every_s (now 1.5), or fewer "
            "evaluations (trainer.eval_interval): each new best model is saved.",
        ),
        (
            "record", {},
            "recording metrics (60 %). Try a longer trainer.record_interval (now 100).",
        ),
        (
            "sync", {},
            "copying weights to the actors (60 %). Try a longer trainer.sync_interval (now 20).",
        ),
        (
            "sync", {"trainer": SyncConfig()},
            "copying weights to the actors (60 %). Try trainer=async, or env.num_envs=8.",
        ),
        (
            "push", {},
            "storing samples in the replay buffer (60 %). Try a larger actor_manager.n_buffer "
            "(now 100), or a lower trainer.samples_per_opt_step.",
        ),
        (
            "push", {"trainer": SyncConfig()},
            "storing samples in the replay buffer (60 %). Try trainer=async, or env.num_envs=8.",
        ),
        (
            "other", {},
            "startup, shutdown and the loop itself (60 %). Try a longer run for a better estimate.",
        ),
    ],
)  # fmt: skip
def test_whatever_else_takes_most_is_named_with_its_own_setting(
    section: str, parts: dict[str, Any], said: str
) -> None:
    assert sentence({"wait": 5.0, "update": 35.0, section: 60.0}, ENV_STEPS, **parts) == said


@pytest.mark.parametrize(
    ("buffer", "cheaper"),
    [(UniformConfig(), ""), (PrioritizedConfig(), ", or replay_buffer=uniform")],
)
def test_batches_and_priorities_count_together(buffer: ReplayBufferConfig, cheaper: str) -> None:
    learner = {"sample": 25.0, "priorities": 20.0, "update": 55.0}
    assert sentence(learner, {}, replay_buffer=buffer) == (
        "sampling batches from the replay buffer (45 %). "
        f"Try a smaller agent.batch_size (now 64){cheaper}."
    )
