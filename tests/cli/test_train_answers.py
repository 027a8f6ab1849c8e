"""`border-train` without training: help, settings, and shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from border_cli.cli.train import main
from tests.support.case_sampling import sampled

Capture = pytest.CaptureFixture[str]
PROGRAM = Path(sys.executable).with_name("border-train")


def test_what_is_shown_is_what_a_run_saves_and_runs_again(
    folder: Path, capsys: Capture, ran: Callable[..., Any]
) -> None:
    choices = ("env=acrobot", "agent=random", "recorder=none", "seed=4")
    main([*choices, "--cfg", "job", "--resolve"])
    shown = capsys.readouterr().out
    ran(*choices, "run_dir=a")
    assert (folder / "a" / ".hydra" / "resolved.yaml").read_text() == shown
    (folder / "frozen.yaml").write_text(shown)
    run_dir = ran("-cd", ".", "-cn", "frozen").jobs[0].folder
    assert (run_dir / ".hydra" / "resolved.yaml").read_text() == shown
    assert run_dir.parent.name == "random_acrobot"
    swept = ran("seed=1,2", "-cn", "frozen.yaml", "-m", "-cd", ".")
    assert [config.seed for config in swept.configs] == [1, 2]


def test_the_overview_lists_groups_settings_flags_and_examples(
    folder: Path, capsys: Capture
) -> None:
    (folder / "own" / "env").mkdir(parents=True)
    (folder / "own" / "env" / "maze.yaml").write_text("defaults: [gym, _self_]\n")
    main(["--help", "-cd", "own"])
    text = capsys.readouterr().out
    for line in (
        " maze, ", "  recorder        console*, jsonl*, mlflow, none, tensorboard*, trackio, wandb",
        "  seed ", "--multirun", "EXAMPLES\n",
    ):  # fmt: skip
        assert line in text
    assert all(len(line) <= 120 for line in text.splitlines())


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> list[str]:
    monkeypatch.setenv("COMP_LINE", line)
    main(["-sc", "query=bash"])
    return capsys.readouterr().out.split()


def test_tab_offers_flags_and_prints_no_refusal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert folder
    assert completed("border-train --cf", monkeypatch, capsys) == ["--cfg"]
    assert completed("border-train -cd ", monkeypatch, capsys) == []  # the shell completes paths
    assert completed("border-train -cd nowhere agent=", monkeypatch, capsys) == []
    assert completed("border-train --nope agent=", monkeypatch, capsys) == []
    assert capsys.readouterr().err == ""


def test_tab_reads_quotes_as_the_shell_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert folder
    line = "border-train 'recorder=[jsonl,console]' agent=dq"
    assert completed(line, monkeypatch, capsys) == ["agent=dqn"]
    line = "border-train 'recorder=[jsonl,c"
    assert completed(line, monkeypatch, capsys) == ["recorder=[jsonl,console"]


def test_bash_completes_what_follows_the_equals_sign(capsys: Capture, tmp_path: Path) -> None:
    main(["-sc", "install=bash"])
    pressed = "COMP_LINE='border-train agent=dq' COMP_POINT=21 COMP_WORDS=(border-train agent = dq)"
    call = f"COMP_CWORD=3; _border_train {PROGRAM} dq =; echo ${{COMPREPLY[@]}}"
    script = f"{capsys.readouterr().out}\n{pressed} {call}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("dqn\n", "")


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
    heavy = {"torch", "gymnasium", "numpy", "tensorboard", "rich"} & set(sys.modules)
    assert not heavy, heavy
    if "--version" in sys.argv or sys.argv[1:] == ["--help"]:
        assert "hydra" not in sys.modules
"""


@pytest.mark.parametrize(
    ("argv", "status"), sampled([*QUICK], every=3, ids=[" ".join(words) for words, _ in QUICK])
)
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
