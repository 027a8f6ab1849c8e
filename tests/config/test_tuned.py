"""The files of conf/tuned: which of them apply to a run, and which of their values count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.agent.config import SacConfig
from border_cli.config.compose import Composer, compose
from border_cli.config.job import Job, resolved_yaml, write_resolved
from border_cli.config.open_composer import open_composer
from border_cli.config.saved import load_resolved
from border_cli.config.tuned import tuned_files
from border_cli.errors import ConfigError
from border_cli.launch.effective import effective_settings
from border_cli.launch.header import choice_lines, doubts
from border_cli.replay_buffer.config import PrioritizedConfig
from border_cli.settings.run import RunConfig
from border_cli.step_processor.config import NStepConfig
from tests.support.case_sampling import sampled

Write = Callable[[str, str], Path]


def compose_job(*overrides: str, folder: Path | None = None) -> Job:
    return Composer([f"file://{folder}"] if folder else []).job(list(overrides))


def resumed_job(folder: Path, *typed: str) -> Job:
    with open_composer([f"resume={folder / 'run'}", *typed]) as (composer, words):
        return composer.job(words)


def tuned_names(job: Job) -> list[str]:
    return [Path(file).stem for file in tuned_files(job.sources)]


def samples_per_update(config: RunConfig) -> float | None:
    return config.trainer.samples_per_opt_step


def limits(config: RunConfig) -> tuple[int | None, int | None, float | None]:
    trainer = config.trainer
    return trainer.max_opt_steps, trainer.max_env_steps, trainer.max_time_s


@pytest.mark.parametrize("agent", ["redq", "droq"])
def test_redq_and_droq_make_twenty_updates_per_sample_with_any_env(agent: str) -> None:
    config = compose(f"agent={agent}", "env.id=A-v0")
    assert isinstance(config.agent, SacConfig)
    assert samples_per_update(config) == 1 / config.agent.policy_delay == 0.05
    assert limits(config) == (None, 20_000, None)


def test_the_pair_wins_over_the_agent_and_the_experiment_and_the_line_over_both(
    folder: Path, write: Write
) -> None:
    write("tuned/redq_pendulum.yaml", "# @package _global_\ntrainer: {eval_interval: 7}\n")
    write("experiment/x.yaml", "# @package _global_\ntrainer: {eval_interval: 8}\n")
    words = ("agent=redq", "env=pendulum")

    def eval_interval(*more: str) -> int:
        job = compose_job(*words, *more, folder=folder)
        assert tuned_names(job) == ["redq", "redq_pendulum"]
        assert samples_per_update(job.config) == 0.05
        return job.config.trainer.eval_interval

    assert compose(*words).trainer.eval_interval == 20_000
    assert eval_interval() == 7
    assert eval_interval("experiment=x") == 8
    assert eval_interval("experiment=x", "trainer.eval_interval=9") == 9


def test_values_of_a_family_stand_between_those_of_the_agent_and_of_the_pair(
    folder: Path, write: Write
) -> None:
    write("env/maze.yaml", "defaults: [gym, _self_]\nid: A-v0\n")
    write("env/maze_large.yaml", "defaults: [maze, _self_]\nkwargs: {side: 9}\n")
    for name, batch_size in (("redq", 1), ("redq_maze", 2), ("redq_maze_large", 3)):
        text = f"agent: {{batch_size: {batch_size}, gamma: 0.{batch_size}}}\n"
        write(f"tuned/{name}.yaml", f"# @package _global_\n{text}")
        job = compose_job("agent=redq", "env=maze_large", folder=folder)
        assert job.config.agent.batch_size == batch_size
    assert tuned_names(job) == ["redq", "redq_maze", "redq_maze_large"]
    assert tuned_names(compose_job("agent=redq", "env=maze", folder=folder)) == [
        "redq",
        "redq_maze",
    ]
    assert tuned_names(compose_job("agent=droq", "env=maze_large", folder=folder)) == ["droq"]


def test_offline_training_ignores_an_agents_samples_per_update_and_limits() -> None:
    offline = [
        compose(f"agent={agent}", "trainer=offline", "replay_buffer.dataset=my/a-v0").trainer
        for agent in ("redq", "sac")
    ]
    assert offline[0] == offline[1]
    config = compose("agent=redq", "trainer=offline", "trainer.max_opt_steps=7")
    assert limits(config) == (7, None, None)


@pytest.mark.parametrize(
    ("typed", "found"),
    sampled(
        [
            ("agent=tqc env=hopper trainer.max_env_steps=1000000", (None, 1_000_000, None, None)),
            ("agent=tqc env=hopper trainer.stop_at_score=9", (100_000, None, None, 9.0)),
            ("agent=dqn env=cartpole trainer.max_opt_steps=null", (None, None, None, 500.0)),
            ("agent=redq env=pendulum trainer={max_opt_steps:400}", (400, None, None, None)),
            ("agent=redq env=acrobot_slow", (90, None, None, None)),
            ("agent=redq env=pendulum experiment=updates", (5, None, None, None)),
            ("-cn own experiment=updates", (None, None, 4.0, None)),
            ("agent=iql trainer=offline trainer.max_time_s=60", (None, None, 60.0, None)),
        ],
        every=4,
    ),
)
def test_the_limits_of_a_run_are_those_of_the_last_place_that_sets_one(
    typed: str, found: tuple[float | None, ...], folder: Path, write: Write
) -> None:
    write("experiment/updates.yaml", "# @package _global_\ntrainer: {max_opt_steps: 5}\n")
    write("env/acrobot_slow.yaml", "defaults: [acrobot, _self_]\n")
    write("tuned/redq_acrobot_slow.yaml", "# @package _global_\ntrainer: {max_opt_steps: 90}\n")
    write("own.yaml", "defaults: [config, _self_]\ntrainer: {max_time_s: 4}\n")
    words = typed.removeprefix("-cn own ").split()
    name = "config" if words == typed.split() else "own"
    if "trainer=offline" in words:
        words.append("replay_buffer.dataset=my/a-v0")
    config = compose(*words, config_dir=str(folder), config_name=name)
    assert (*limits(config), config.trainer.stop_at_score) == found


def test_a_limit_replaces_all_that_a_run_has_saved(folder: Path) -> None:
    saved = compose("agent=dqn", "env=cartpole", "trainer.max_time_s=3")
    write_resolved(folder / "run", resolved_yaml(saved))

    def resumed(*typed: str) -> RunConfig:
        return resumed_job(folder, *typed).config

    assert limits(resumed()) == (None, None, 3.0)
    assert limits(resumed("trainer.max_env_steps=9")) == (None, 9, None)
    assert limits(resumed("trainer.max_env_steps=9", "trainer.max_time_s=3")) == (None, 9, 3.0)
    assert limits(resumed("trainer.stop_at_score=450")) == (None, None, 3.0)


@pytest.mark.parametrize(
    "typed",
    sampled([("~tuned",), ("experiment=bare",), ("experiment=bare", "env=acrobot")], every=2),
)
def test_what_switches_tuned_off_switches_the_agents_values_off(
    typed: tuple[str, ...], folder: Path, write: Write
) -> None:
    write("experiment/bare.yaml", "# @package _global_\ndefaults: [override /tuned: null]\n")
    for agent in ("redq", "rainbow"):
        job = compose_job(f"agent={agent}", "env=pendulum", *typed, folder=folder)
        assert tuned_names(job) == []
        assert (samples_per_update(job.config), limits(job.config)) == (1.0, (100_000, None, None))
        buffer = job.config.replay_buffer
        assert not isinstance(buffer, PrioritizedConfig) or buffer == PrioritizedConfig()


@pytest.mark.parametrize(
    ("typed", "n_steps"),
    sampled(
        [
            ("agent=mine", 3),
            ("agent=dqn step_processor=n_step", 1),
            ("agent=discrete_cql", 1),
            ("agent=sac env=pendulum step_processor=multi_step", 3),
        ],
        every=4,
    ),
)
def test_value_based_agents_that_explore_use_multi_step_returns(
    typed: str, n_steps: int, folder: Path, write: Write
) -> None:
    write("agent/mine.yaml", "defaults: [dqn, _self_]\ngamma: 0.9\n")
    job = compose_job("~tuned", *typed.split(), folder=folder)
    assert job.config.step_processor == NStepConfig(n_steps=n_steps)


@pytest.mark.parametrize(
    ("typed", "n_steps", "option"),
    [
        ("agent=dqn env=cartpole", 3, "multi_step"),
        ("agent=dqn env=cartpole step_processor=n_step", 1, "n_step"),
        ("agent=dqn env=cartpole step_processor=n_step step_processor.n_steps=5", 5, "multi_step"),
        ("agent=discrete_sac env=cartpole", 3, "multi_step"),
        ("agent=discrete_sac env=cartpole step_processor=n_step", 1, "n_step"),
        ("agent=dqn env=cartpole trainer=offline replay_buffer.dataset=my/a-v0", 1, "n_step"),
        ("agent=dqn env=cartpole experiment=one_step", 1, "n_step"),
        ("agent=dqn env=breakout", 1, "n_step"),
        ("agent=dqn env=breakout step_processor=multi_step", 3, "multi_step"),
        ("agent=dqn env=breakout experiment=mine", 4, "mine"),
        ("agent=der env=cartpole", 20, "multi_step"),
    ],
)
def test_tuned_values_do_not_replace_those_of_an_option_that_something_else_chose(
    typed: str, n_steps: int, option: str, folder: Path, write: Write
) -> None:
    write("step_processor/mine.yaml", "defaults: [multi_step, _self_]\nn_steps: 4\n")
    for name, chosen in (("one_step", "n_step"), ("mine", "mine")):
        text = f"defaults: [override /step_processor: {chosen}]\n"
        write(f"experiment/{name}.yaml", f"# @package _global_\n{text}")
    job = compose_job(*typed.split(), folder=folder)
    assert job.config.step_processor == NStepConfig(n_steps=n_steps)
    assert job.config.step_processor.option == option
    shown = "\n".join(value for _, value in choice_lines(job))
    assert (f"step_processor={option}" in shown) or f"{option} from" in shown


def test_offline_training_has_no_trainer_values_of_a_file_made_with_actors() -> None:
    offline = ("trainer=offline", "replay_buffer.dataset=my/a-v0")
    cartpole = compose("agent=dqn", "env=cartpole", *offline).trainer
    assert cartpole == compose("agent=dqn", "env.id=A-v0", *offline).trainer
    assert compose("agent=iql", "env=pendulum", *offline).trainer.max_opt_steps == 10_000
    sync = compose("agent=dqn", "env=cartpole", "trainer=sync").trainer
    assert (sync.max_opt_steps, sync.stop_at_score) == (20_000, 500)


def test_other_tuned_values_count_with_any_option_of_their_group() -> None:
    config = compose("agent=dqn", "env=breakout", "replay_buffer=prioritized")
    assert config.replay_buffer == PrioritizedConfig(capacity=400_000)


@pytest.mark.parametrize(
    "typed", sampled([(), ("trainer.samples_per_opt_step=0.5",), ("~tuned",)], every=3)
)
def test_tuned_values_are_never_applied_to_saved_settings(
    typed: tuple[str, ...], folder: Path
) -> None:
    config = compose("agent=redq", "env=pendulum", *typed)
    write_resolved(folder / "run", resolved_yaml(config))
    assert load_resolved(folder / "run") == config
    assert resumed_job(folder).config.trainer == config.trainer
    again = resumed_job(folder, "trainer=sync")
    assert (samples_per_update(again.config), tuned_files(again.sources)) == (1.0, [])


def test_an_agent_inherits_the_values_of_what_it_is_built_on(folder: Path, write: Write) -> None:
    write("agent/mine.yaml", "defaults: [redq, _self_]\ngamma: 0.5\n")
    write("tuned/redq_pendulum.yaml", "# @package _global_\nagent: {gamma: 0.6}\n")
    job = compose_job("agent=mine", "env=pendulum", folder=folder)
    assert tuned_names(job) == ["redq"]  # pairs are matched by name only
    assert (samples_per_update(job.config), job.config.agent.gamma) == (0.05, 0.5)
    write("tuned/mine.yaml", "# @package _global_\ntrainer: {eval_interval: 7}\n")
    job = compose_job("agent=mine", "env=pendulum", folder=folder)
    assert tuned_names(job) == ["redq", "mine"]
    assert (samples_per_update(job.config), job.config.trainer.eval_interval) == (0.05, 7)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    sampled(
        [
            (
                "tuned/redq.yaml",
                "# @package _global_\ndefaults: [sac_pendulum]\n",
                r"^tuned/redq\.yaml: it may only set values",
            ),
            (
                "tuned/redq.yaml",
                "# @package _global_\ntrainer: {evil_interval: 7}\n",
                r"^tuned/redq\.yaml: unknown setting 'trainer\.evil_interval', did you mean",
            ),
            (
                "tuned/redq.yaml",
                "trainer: {eval_interval: 7}\n",
                r"^tuned/redq\.yaml: tuned has .* must begin with the line `# @package _global_`$",
            ),
            (
                "experiment/x.yaml",
                "# @package _global_\ndefaults: [override /tuned: sac_pendulm]\n",
                r"^experiment/x\.yaml: unknown tuned 'sac_pendulm', did you mean sac_pendulum\?",
            ),
        ],
        every=2,
    ),
)
def test_what_cannot_be_meant_is_refused_with_its_file(
    file: str, text: str, said: str, folder: Path, write: Write
) -> None:
    write(file, text)
    more = ["experiment=x"] if file.startswith("experiment") else []
    with pytest.raises(ConfigError, match=said):
        compose("agent=redq", "env=pendulum", *more, config_dir=str(folder))


def test_settings_that_mean_nothing_with_a_synchronous_trainer_are_doubted_where_typed() -> None:
    typed = ("trainer.sync_interval=5", "actor_manager.n_buffer=7")
    for trainer, count in (("sync", 2), ("async", 0)):
        job = compose_job("agent=dqn", "env=cartpole", f"trainer={trainer}", *typed)
        said = doubts(effective_settings(job.config), job.overrides)
        assert len([line for line in said if "has no effect with trainer=sync" in line]) == count
    assert doubts(effective_settings(compose_job("env=cartpole", "trainer=sync").config)) == []


def test_wrappers_that_normalise_are_doubted_with_the_setting_instead() -> None:
    wrappers = "env.wrappers=[FlattenObservation,NormalizeObservation,{NormalizeReward: {}}]"
    job = compose_job("env=cartpole", wrappers)
    said = doubts(effective_settings(job.config))
    assert [line.rpartition("; use ")[2] for line in said] == [
        "agent.normalize_obs=true instead",
        "agent.normalize_reward=true instead",
    ]
