"""Settings of a resumed run: where they come from, and which of them may change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.actor_manager.config import ProcessConfig, SerialConfig
from border_cli.agent.config import DqnConfig
from border_cli.config.compose import compose
from border_cli.config.job import BEFORE, Job, begin_attempt, resolved_yaml, write_resolved
from border_cli.config.open_composer import open_composer
from border_cli.config.overrides import run_to_resume
from border_cli.config.resuming import changes, may_change, refuse_beside_resume
from border_cli.config.saved import load_resolved
from border_cli.errors import ConfigError
from border_cli.system.files import SETTINGS

Write = Callable[[str, str], Path]

CHOICES = (
    *("env=cartpole", "actor_manager.num_actors=5", "agent.learning_rate=1e-5", "seed=4"),
    *("recorder.console.line_interval_s=7", "env.kwargs={a: {b: 1}}", "trainer.max_opt_steps=90"),
)


@pytest.fixture(scope="module")
def saved() -> str:
    return resolved_yaml(compose(*CHOICES))


@pytest.fixture
def run_dir(folder: Path, saved: str) -> Path:
    write_resolved(folder / "run", saved)
    return folder / "run"


def compose_resumed(run_dir: Path, *overrides: str, folders: tuple[str, ...] = ()) -> Job:
    typed = [f"resume={run_dir}", *overrides]
    with open_composer(typed, config_dirs=folders) as (composer, words):
        return composer.job(words)


def list_changes(run_dir: Path, *overrides: str) -> list[str]:
    config = compose_resumed(run_dir, *overrides).config
    return [str(change) for change in changes(load_resolved(run_dir), config)]


def test_nothing_typed_changes_nothing_and_leads_to_the_folder_of_the_run(run_dir: Path) -> None:
    job = compose_resumed(run_dir)
    assert resolved_yaml(job.config) == (run_dir / SETTINGS).read_text()
    assert Path(job.folder) == run_dir
    first = next(source for source in job.sources if source.group == "config")
    assert first.file == str(run_dir / SETTINGS)


def test_what_is_typed_replaces_what_was_saved(run_dir: Path) -> None:
    config = compose_resumed(run_dir, "trainer.max_opt_steps=200", "env.kwargs.c=2").config
    assert config.trainer.max_opt_steps == 200
    assert config.env.kwargs == {"a": {"b": 1}, "c": 2}  # type: ignore[attr-defined]
    assert (config.seed, config.actor_manager.num_actors) == (4, 5)


def test_a_group_that_is_named_is_taken_from_its_file(run_dir: Path) -> None:
    config = compose_resumed(run_dir, "actor_manager=process", "actor_manager.nice=3").config
    assert config.actor_manager == ProcessConfig(nice=3)  # num_actors=5 is not kept
    assert isinstance(config.agent, DqnConfig)
    assert config.agent.learning_rate == 1e-5  # the other settings are as saved


def test_a_group_may_come_from_the_users_folder(run_dir: Path, folder: Path, write: Write) -> None:
    text = "defaults: [/schema/actor_manager/serial@_here_, _self_]\nnum_actors: 3\n"
    write("own/actor_manager/mine.yaml", text)
    job = compose_resumed(run_dir, "actor_manager=mine", folders=(f"{folder}/own",))
    assert job.config.actor_manager == SerialConfig(num_actors=3)
    assert any(source.choice == "mine" for source in job.sources)


def test_the_users_yaml_is_not_needed_again(folder: Path, write: Write) -> None:
    write("own/agent/mine.yaml", "defaults: [dqn, _self_]\ngamma: 0.5\n")
    config = compose("env=cartpole", "agent=mine", config_dir=str(folder / "own"))
    write_resolved(folder / "run", resolved_yaml(config))
    (folder / "own" / "agent" / "mine.yaml").unlink()
    assert compose_resumed(folder / "run").config.agent.gamma == 0.5


def test_changes_name_each_key_with_both_values(run_dir: Path) -> None:
    assert list_changes(
        run_dir, "agent.gamma=0.5", "device=cpu", "env.kwargs={a: {b: 2, c: x}}"
    ) == [
        "device: auto -> cpu",
        "agent.gamma: 0.995 -> 0.5",
        "env.kwargs.a.b: 1 -> 2",
        "env.kwargs.a.c: absent -> x",
    ]
    assert list_changes(run_dir, "trainer.max_opt_steps=null", "trainer.max_env_steps=9") == [
        "trainer.max_opt_steps: 90 -> null",
        "trainer.max_env_steps: null -> 9",
    ]


ALLOWED = (
    *("trainer.max_opt_steps=1", "trainer.stop_evals=9", "actor_manager=process", "device=cpu"),
    *("agent.num_threads=2", "recorder=none", "checkpoint.keep=9", "quiet=true"),
)
REFUSED = (
    *("seed=1", "agent=random", "agent.gamma=0.5", "env=acrobot", "replay_buffer.capacity=5000"),
    *("trainer=sync", "trainer.warmup_period=1", "evaluator.num_episodes=1"),
)


def test_a_run_goes_on_with_other_limits_parts_and_outputs_and_nothing_else() -> None:
    before = compose("env=cartpole")
    differences = changes(before, compose("env=cartpole", *ALLOWED))
    assert len(differences) >= len(ALLOWED)
    assert all(change.allowed for change in differences)
    for override in REFUSED:
        differences = changes(before, compose("env=cartpole", override))
        assert any(not change.allowed for change in differences), override


@pytest.mark.parametrize(
    ("key", "free"),
    [
        ("trainer.sync_interval", True),  # trainer=offline redefines its default
        ("agent.value_learning_rate.final", True),
        ("evaluator.resources.CPU", True),
        ("recorder.mine.path", True),
        ("callback", True),
        ("quiet", True),
        ("trainer.warmup_period", False),
        ("env.action_mask", False),
        ("agent", False),
    ],
)
def test_a_setting_says_whether_it_may_change_or_its_group_says_it_for_all(
    key: str, free: bool
) -> None:
    assert may_change(key) is free


def test_an_action_mask_may_be_switched_off_but_not_on() -> None:
    before, masked = compose("env=cartpole"), compose("env=cartpole", "env.action_mask=true")
    assert [change.allowed for change in changes(masked, before)] == [True]
    assert [change.allowed for change in changes(before, masked)] == [False]


def test_modules_may_join_and_must_not_leave() -> None:
    before, after = compose("imports=[yaml]"), compose("imports=[rich,yaml]")
    assert [change.allowed for change in changes(before, after)] == [True]
    assert [change.allowed for change in changes(after, before)] == [False]


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["seed=1"], None),
        (["resume=auto"], None),
        (["resume=a,b"], None),
        (["resume=1e5"], "1e5"),
        (["resume=auto", "resume='a b'"], "a b"),
    ],
)
def test_the_folder_of_a_run_is_read_as_hydra_reads_it(
    overrides: list[str], name: str | None, folder: Path
) -> None:
    assert run_to_resume(overrides) == (folder / name if name else None)


def test_a_folder_without_a_run_is_refused(run_dir: Path, folder: Path, write: Write) -> None:
    def said(path: Path) -> str:
        with pytest.raises(ConfigError) as refused:
            refuse_beside_resume(path, [], multirun=False, config_name="config")
        return str(refused.value)

    assert "is not a run directory: there is no .hydra/resolved.yaml" in said(folder)
    (run_dir / "checkpoints" / "0000000010").mkdir(parents=True)
    assert f"; the run is {run_dir}. " in said(run_dir / "checkpoints" / "0000000010")
    write("sweep/sweep.json", "")
    assert said(folder / "sweep").endswith("The command of a sweep resumes it with resume=auto")


def test_an_attempt_is_noted_beside_the_first_and_keeps_the_settings_it_replaces(
    folder: Path,
) -> None:
    record = {"overrides.yaml": "- seed=1\n", "config.yaml": "seed: 1\n"}
    for settings in ("one", "one", "two", "three"):
        begin_attempt(folder, record, settings)
    contents = {
        str(path.relative_to(folder / ".hydra")): path.read_text()
        for path in (folder / ".hydra").rglob("*")
        if path.is_file()
    }
    assert contents == {
        "resolved.yaml": "three",
        **record,
        **{f"resume-{n}/{name}": text for n in (1, 2, 3) for name, text in record.items()},
        f"resume-2/{BEFORE}": "one",
        f"resume-3/{BEFORE}": "two",
    }
