"""`border-plot`: printed output, written files, and refused arguments."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from border_cli import compose, load_runs, train
from border_cli.analysis.tables import number
from border_cli.cli.plot import main, parse_arguments
from border_cli.errors import ConfigError
from tests.support.written_evaluations import evaluated_run, two_groups


def test_without_a_file_the_curves_are_drawn_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(two_groups(tmp_path))])
    out, err = capsys.readouterr()
    assert "cartpole: eval/return" in out
    assert "A  false" in out
    assert "B  true" in out
    # scores 5, 15, 25: mean 15, standard deviation 10, interval +- 4.303 * 10 / sqrt(3)
    assert " false          3       15.00 [-9.84, 39.84]   5.00     25.00     300 env steps" in out
    assert " true    false        0.67 " in out  # false wins three of nine pairs
    assert err == ""


def test_files_are_written_by_their_suffix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, out = two_groups(tmp_path / "runs"), tmp_path / "new" / "curves"
    suffixes = (".png", ".svg", ".pdf", ".html", ".md", ".csv")
    options = [word for suffix in suffixes for word in ("--out", f"{out}{suffix}")]
    main([str(runs), "--by", "agent.double", "--stat", "iqm", *options])
    text = {suffix: Path(f"{out}{suffix}").read_bytes() for suffix in suffixes}
    assert text[".png"].startswith(b"\x89PNG")
    assert b"<svg" in text[".svg"]
    assert text[".pdf"].startswith(b"%PDF")
    assert text[".html"].startswith(b"<!DOCTYPE html>")
    assert b"| agent.double | seeds | IQM |" in text[".md"]
    assert text[".csv"].startswith(b"env,group,env_steps,iqm,low,high,seeds\n")
    printed = capsys.readouterr().out
    assert "A  false" not in printed
    assert printed.count("wrote ") == 6


def test_warnings_go_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluated_run(tmp_path / "short", [1.0], settings={"agent.gamma": 0.9})
    evaluated_run(tmp_path / "long", [1.0, 2.0])
    main([str(tmp_path)])
    err = capsys.readouterr().err
    assert "border-plot: warning: 0.9 on cartpole: one seed" in err
    assert "border-plot: warning: unequal budgets on cartpole: 100 to 200 env steps" in err


def test_failed_runs_are_counted_and_drawn_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, status in enumerate(("done", "done", "failed")):
        evaluated_run(tmp_path / str(seed), [1.0, 2.0], seed=seed, status=status)
    main([str(tmp_path)])
    assert "border-plot: warning: 1 failed run left out; --failed" in capsys.readouterr().err
    main([str(tmp_path), "--failed", "--csv", "scores", "--out", str(tmp_path / "scores.csv")])
    assert capsys.readouterr().err == ""
    assert ",3," in (tmp_path / "scores.csv").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "2")])
    assert "1 run, all failed; --failed shows them" in capsys.readouterr().err


def test_references_give_normalised_scores_over_environments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for env in ("cartpole", "acrobot"):
        two_groups(tmp_path / env, env=env)
    options = ["--reference", "cartpole=5:25", "--reference=acrobot=-15:35"]
    out = tmp_path / "profile.csv"
    main([str(tmp_path), *options, "--csv", "profile", "--out", str(out)])
    lines = capsys.readouterr().out.split("\n")
    # 5, 15, 25 normalise to 0, 50, 100 on cartpole and to 40, 60, 80 on acrobot
    [overall] = [line for line in lines if line.startswith(" all") and "false" in line]
    assert " 55.00 " in overall
    assert len(out.read_text(encoding="utf-8").splitlines()) == 1 + 2 * 101


def test_without_the_extra_a_picture_is_refused_with_the_pip_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "curves.png"
    with pytest.raises(SystemExit, match="2"):
        main([str(two_groups(tmp_path)), "--out", str(out)])
    err = capsys.readouterr().err
    assert f"--out {out} needs a package that is not installed: " in err
    assert 'pip install "border-cli[plot]"' in err
    assert not out.exists()


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--stat=iqr", "--stat: invalid choice: 'iqr'"),
        ("--bye=agent", "unrecognized arguments: --bye=agent"),
        ("--out=curves.eps", "--out must end in one of .*, got 'curves.eps'"),
        ("--size=6", "--size must be WIDTHxHEIGHT in inches, such as 6x4, got '6'"),
        ("--size=6x4", "--size needs an --out that ends in .png or .svg or .pdf or .html"),
        ("--reference=cartpole", "--reference must be ENV=RANDOM:EXPERT"),
        ("--reference=cartpole=5:5", "the lower one first"),
        ("--csv=scores", "--csv needs an --out that ends in .csv"),
    ],
)
def test_what_is_not_understood_is_refused_before_anything_is_read(
    typed: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_arguments(["runs", typed])


@pytest.mark.parametrize("again", [["--y", "train/loss"], ["--y=train/loss"]])
def test_an_option_of_one_value_that_is_given_twice_is_refused(again: list[str]) -> None:
    with pytest.raises(ConfigError, match="--y is given 2 times, but takes one value"):
        parse_arguments(["runs", "--y", "eval/return", *again])


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["nowhere"], "no such directory: nowhere"),
        (["."], "no runs in ."),
        (["--stat", "iqm"], "the following arguments are required: paths"),
    ],
)
def test_directories_without_runs_are_refused(
    typed: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(typed)
    assert capsys.readouterr().err.startswith(f"border-plot: {message}")


def test_a_picture_has_the_size_that_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, out = two_groups(tmp_path / "runs"), tmp_path / "curves.png"
    main([str(runs), "--size", "3.25x2.5", "--out", str(out)])
    assert struct.unpack(">II", out.read_bytes()[16:24]) == (487, 375)  # 150 dots per inch
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main([str(runs), "--size", "3x1", "--out", str(out)])
    assert "--size has no room for the curves beside their names: " in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "curves.md"
    with pytest.raises(SystemExit, match="1"):
        main([str(two_groups(tmp_path / "runs")), "--out", str(out)])
    assert f"border-plot: {tmp_path / 'file'}: " in capsys.readouterr().err


@pytest.mark.slow
def test_what_training_leaves_is_what_is_plotted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ("trainer.max_opt_steps=40", "trainer.eval_interval=20", "trainer.warmup_period=20")
    for gamma in (0.9, 0.99):
        typed = (f"agent.gamma={gamma}", "evaluator.num_episodes=2", "quiet=true", *limits)
        config = compose("agent=dqn", "env=cartpole", *typed, f"run_dir={tmp_path / str(gamma)}")
        train(config)
    main([str(tmp_path), "--x", "opt_steps"])
    out = capsys.readouterr().out
    assert "agent.gamma" in out
    final = load_runs(tmp_path / "0.99")[0].facts["final_score"]
    assert f" 0.99          1       {number(final)} " in out
    assert "40 updates" in out
