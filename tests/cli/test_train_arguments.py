"""`border-train` up to the moment when a job begins."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from border_cli import __version__
from border_cli.agent.config import RandomConfig
from border_cli.cli.arguments import read_arguments
from border_cli.cli.train import main
from border_cli.config.frozen import load_resolved, write_resolved
from border_cli.config.job import JobContext
from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the search path and the log handlers put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BORDER_CONFIG_PATH", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield tmp_path
    for handler in set(root.handlers) - set(before):
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


class Jobs:
    """Stands in for training: remembers what it is asked, and saves its settings."""

    def __init__(self) -> None:
        self.configs: list[RunConfig] = []
        self.contexts: list[JobContext] = []

    def __call__(self, config: RunConfig, context: JobContext) -> float:
        self.configs.append(config)
        self.contexts.append(context)
        write_resolved(context.run_dir, context.resolved)
        return float(config.seed)


def ran(*argv: str) -> Jobs:
    jobs = Jobs()
    main(argv, run_job=jobs)
    return jobs


@pytest.fixture
def refusal(folder: Path, capsys: Capture) -> Callable[..., str]:
    """Runs what must be refused with status 2 and no new file; returns what is said."""

    def _refusal(*argv: str) -> str:
        before = sorted(folder.rglob("*"))
        with pytest.raises(SystemExit) as left:
            main(argv, run_job=Jobs())
        assert left.value.code == 2
        assert sorted(folder.rglob("*")) == before
        said = capsys.readouterr().err
        assert said.startswith("border-train: ")
        assert "Traceback" not in said
        return said

    return _refusal


@pytest.mark.parametrize(
    "argv",
    [
        ["-m", "-cd", "d", "agent=dqn", "seed=1,2"],
        ["agent=dqn", "-m", "seed=1,2", "--config-dir", "d"],
        ["agent=dqn", "seed=1,2", "--config-dir=d", "--multirun"],
    ],
)
def test_flags_and_overrides_come_in_any_order(argv: list[str]) -> None:
    found = read_arguments(argv)
    assert (found.multirun, found.config_dirs) == (True, ["d"])
    assert found.overrides == ["agent=dqn", "seed=1,2"]
    assert found.for_hydra(found.overrides)[-2:] == ["agent=dqn", "seed=1,2"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--agent=dqn"], "settings are written without dashes: agent=dqn"),
        (["--cfg", "jobs"], "invalid choice: 'jobs'"),
        (["--cfg", "job", "-m"], "give one of them"),
        (["--resolve"], "--resolve belongs to --cfg"),
        (["--experimental-rerun", "x"], "unrecognized arguments"),
    ],
)
def test_a_flag_that_does_not_exist_is_refused(argv: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_arguments(argv)


def test_a_job_gets_typed_settings_and_its_context(folder: Path) -> None:
    jobs = ran("env=cartpole", "seed=3")
    config, context = jobs.configs[0], jobs.contexts[0]
    assert (config.env.id, config.seed) == ("CartPole-v1", 3)
    assert context.run_dir.parent == folder / "outputs" / "dqn_cartpole"
    assert context.overrides == ["env=cartpole", "seed=3"]
    assert context.command == ["border-train", "env=cartpole", "seed=3"]
    assert context.tuned is not None
    assert context.tuned.endswith("tuned/dqn_cartpole.yaml")
    assert context.job_number is None
    assert context.import_paths == [str(folder)]
    assert {"config", "agent", "env", "tuned"} < {source.group for source in context.sources}
    assert load_resolved(context.run_dir) == config
    assert (context.run_dir / "border-train.log").exists()
    assert {each.name for each in (context.run_dir / ".hydra").iterdir()} == {
        "config.yaml",
        "hydra.yaml",
        "overrides.yaml",
        "resolved.yaml",
    }


def test_a_bare_id_is_never_tuned(folder: Path) -> None:
    assert folder
    assert ran("env.id=CartPole-v1").contexts[0].tuned is None


def test_a_sweep_runs_one_job_after_another(folder: Path) -> None:
    jobs = ran("seed=0,1", "env=cartpole,acrobot", "-m")
    seen = [(each.seed, each.env.id) for each in jobs.configs]
    assert seen == [(0, "CartPole-v1"), (0, "Acrobot-v1"), (1, "CartPole-v1"), (1, "Acrobot-v1")]
    assert [each.job_number for each in jobs.contexts] == [0, 1, 2, 3]
    assert [each.run_dir.name for each in jobs.contexts] == ["0", "1", "2", "3"]
    assert jobs.contexts[0].run_dir.parent.parent == folder / "outputs" / "multirun"
    assert [each.tuned is None for each in jobs.contexts] == [False, True, False, True]


def test_a_sweep_in_a_folder_of_its_own_names_jobs_by_overrides(folder: Path) -> None:
    first = ran("-m", "run_dir=s", "env=cartpole", "seed=0,1")
    names = ["env-cartpole__seed-0", "env-cartpole__seed-1"]
    assert [each.run_dir for each in first.contexts] == [folder / "s" / name for name in names]
    more = ran("-m", "run_dir=s", "env=cartpole", "seed=2,1", "resume=auto", "quiet=true")
    assert [each.run_dir.name for each in more.contexts] == ["env-cartpole__seed-2", names[1]]


def test_a_first_file_may_ask_for_a_sweep(folder: Path) -> None:
    text = "defaults: [config, override env: cartpole, _self_]\nhydra:\n  mode: MULTIRUN\n"
    (folder / "all.yaml").write_text(text + "  sweeper: {params: {seed: '4,5'}}\n")
    jobs = ran("-cd", ".", "-cn", "all", "agent.gamma=0.5,0.6")
    assert [(each.seed, each.agent.gamma) for each in jobs.configs] == [
        (4, 0.5),
        (4, 0.6),
        (5, 0.5),
        (5, 0.6),
    ]


def test_a_used_folder_needs_resume(folder: Path, refusal: Callable[..., str]) -> None:
    ran("run_dir=a", "env=cartpole")
    assert "run_dir=a holds a run already" in refusal("run_dir=a", "env=cartpole")
    assert "holds a single run" in refusal("-m", "run_dir=a", "env=cartpole", "resume=auto")
    again = ran("run_dir=a", "env=cartpole", "resume=auto", "seed=1")
    assert again.contexts[0].run_dir == folder / "a"
    record = folder / "a" / ".hydra"
    assert (record / "overrides.yaml").read_text() == "- run_dir=a\n- env=cartpole\n"
    assert "seed=1" in (record / "resume-1" / "overrides.yaml").read_text()


def test_a_used_folder_of_a_sweep_needs_resume(refusal: Callable[..., str]) -> None:
    ran("-m", "run_dir=s", "env=cartpole", "seed=0")
    assert "holds a sweep already" in refusal("-m", "run_dir=s", "env=cartpole", "seed=1")
    assert "holds a sweep" in refusal("run_dir=s", "env=cartpole")


def test_a_folder_with_a_run_json_is_used(folder: Path, refusal: Callable[..., str]) -> None:
    (folder / "b").mkdir()
    (folder / "b" / "run.json").write_text("{}")
    assert "run_dir=b holds a run already" in refusal("run_dir=b", "env=cartpole")
    assert "is a file" in refusal("run_dir=b/run.json/x", "env=cartpole")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "one of acrobot, cartpole, lunarlander, mountaincar, or any Gymnasium id"),
        (["env=cartpol"], "did you mean 'cartpole'?"),
        (["env=cartpole", "+agent.gama=1"], "agent.gama: there is no such setting; did you mean"),
        (["env=cartpole", "resume=auto"], "resume=auto needs run_dir=FOLDER"),
        (["env=cartpole", "resume=x"], "resume must be null or auto, got 'x'"),
        (["-m", "env=cartpole", "run_dir=a,b"], "run_dir takes one value"),
        (
            ["-m", "env=cartpole", "agent.gamma=0.5,0.6,7"],
            "must be at least 0 and at most 1, got 7",
        ),
        (["-m", "env=cartpole", "agent=dqn,dqm"], "agent=dqm: 'dqm' is none of agent"),
        (["-m", "env=cartpole", "agent.gama=1,2"], "agent.gama=1: there is no such setting"),
        (["-m", "env=cartpole", "seed=interval(1,2)"], "does not support sweep type"),
        (["-m", "run_dir=s", "env=cartpole", "seed=1,1"], "name a value only once"),
        (["-cd", "nowhere"], "--config-dir: there is no folder"),
        (["--info", "defaults", "agent=dqm"], "did you mean 'dqn'?"),
        (["agent=dqm", "--help"], "did you mean 'dqn'?"),
        (["-sc", "install=csh"], "no shell 'csh'"),
        (["-sc"], "-sc takes one of install=SHELL"),
    ],
)
def test_a_refusal_leaves_nothing_behind(
    argv: list[str], said: str, refusal: Callable[..., str]
) -> None:
    assert said in refusal(*argv)


def test_refusals_do_not_depend_on_hydras_own_switch(
    refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert "did you mean 'dqn'?" in refusal("agent=dqm")


def test_what_is_shown_is_what_a_run_saves_and_runs_again(folder: Path, capsys: Capture) -> None:
    choices = ("env=acrobot", "agent=random", "recorder=none", "seed=4")
    main([*choices, "--cfg", "job", "--resolve"])
    shown = capsys.readouterr().out
    first = ran(*choices, "run_dir=a")
    assert (folder / "a" / ".hydra" / "resolved.yaml").read_text() == shown
    (folder / "frozen.yaml").write_text(shown)
    again = ran("-cd", ".", "-cn", "frozen")
    assert again.contexts[0].resolved == shown
    assert isinstance(again.configs[0].agent, RandomConfig)
    assert again.contexts[0].run_dir.parent.name == "random_acrobot"
    assert first.configs[0].seed == 4
    swept = ran("seed=1,2", "-cn", "frozen.yaml", "-m", "-cd", ".")
    assert [each.seed for each in swept.configs] == [1, 2]


def test_settings_are_shown_as_composed_without_resolve(capsys: Capture, folder: Path) -> None:
    main(["--cfg", "job"])
    shown = capsys.readouterr().out
    assert "name: ${hydra:runtime.choices.agent}_${hydra:runtime.choices.env}\n" in shown
    assert "  id: null\n" in shown
    main(["--cfg", "job", "--package", "agent", "env=cartpole"])
    assert capsys.readouterr().out.startswith("# @package agent\ngamma: 0.99\n")
    main(["--cfg", "hydra"])
    assert "  output_subdir: ${border.record_folder:" in capsys.readouterr().out
    assert not list(folder.iterdir())


def test_the_overview_lists_groups_settings_flags_and_examples(
    folder: Path, capsys: Capture
) -> None:
    (folder / "own" / "env").mkdir(parents=True)
    (folder / "own" / "env" / "maze.yaml").write_text("defaults: [gym, _self_]\n")
    main(["--help", "-cd", "own"])
    text = capsys.readouterr().out
    assert "env             acrobot, cartpole, gym*, lunarlander, maze, mountaincar\n" in text
    assert "recorder        console*, jsonl*, none, tensorboard*\n" in text
    assert "  seed       the one seed" in text
    assert text.count("\n  border-train ") == 5
    assert all(len(line) <= 120 for line in text.splitlines())


def test_help_of_a_choice_lists_its_settings(capsys: Capture) -> None:
    main(["agent=dqn", "-h"])
    assert "  agent.tau=1.0\n" in capsys.readouterr().out


def test_the_version_is_ours(capsys: Capture) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"border_cli {__version__}\n"


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> list[str]:
    monkeypatch.setenv("COMP_LINE", line)
    main(["-sc", "query=bash"])
    return capsys.readouterr().out.split()


def test_tab_knows_options_flags_and_the_users_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (folder / "own" / "agent").mkdir(parents=True)
    (folder / "own" / "agent" / "mine.yaml").write_text("defaults: [dqn, _self_]\n")
    assert completed("border-train agent=d", monkeypatch, capsys) == ["agent=dqn"]
    line = "border-train env=cartpole -cd own -m agent="
    assert completed(line, monkeypatch, capsys) == ["agent=dqn", "agent=mine", "agent=random"]
    assert completed("border-train --mul", monkeypatch, capsys) == ["--multirun"]


def test_a_shell_can_install_the_completion(capsys: Capture) -> None:
    main(["-sc", "install=bash"])
    assert "complete -o nospace" in capsys.readouterr().out


QUICK = [
    (["--help"], 0),
    (["--version"], 0),
    (["agent=dqn", "--help"], 0),
    (["env=cartpole", "--cfg", "job", "--resolve"], 0),
    (["-sc", "query=bash"], 0),
    (["env=cartpole", "agent.gama=1"], 2),
]
CHECK = """
import sys
from border_cli.cli.train import main
try:
    main(sys.argv[1:])
finally:
    heavy = {"torch", "gymnasium", "tensorboard", "rich"} & set(sys.modules)
    assert not heavy, heavy
    if "--version" in sys.argv or sys.argv[1:] == ["--help"]:
        assert "hydra" not in sys.modules
"""


@pytest.mark.parametrize(("argv", "status"), QUICK, ids=[" ".join(each) for each, _ in QUICK])
def test_an_answer_without_training_imports_no_torch(
    argv: list[str], status: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK, *argv],
        cwd=tmp_path,
        env={**os.environ, "COMP_LINE": "border-train agent="},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_package_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "border_cli", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"border_cli {__version__}\n"
