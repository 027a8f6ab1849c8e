"""The console recorder: the live panel, plain lines without a terminal, and quiet mode."""

from __future__ import annotations

import io
import logging
import sys
import threading
from pathlib import Path

from rich.console import Console

from border_cli.core.output import Progress, RecordStep, RunInfo
from border_cli.recorder.config import ConsoleConfig
from border_cli.recorder.console import ConsoleRecorder
from border_cli.recorder.terminal import ConsoleHandler

HIDE_CURSOR, SHOW_CURSOR, CURSOR_UP = "\x1b[?25l", "\x1b[?25h", "\x1b[1A"


def info(*, quiet: bool = False) -> RunInfo:
    return RunInfo(
        name="dqn_cartpole",
        run_dir=Path("somewhere"),
        max_opt_steps=20_000,
        max_env_steps=None,
        max_time_s=None,
        quiet=quiet,
    )


def terminal(width: int = 80, height: int = 40) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        force_interactive=True,
        width=width,
        height=height,
        color_system=None,
        legacy_windows=False,
        _environ={},
    )


def pipe() -> Console:
    return Console(file=io.StringIO(), width=80, _environ={})


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def recorder(console: Console, *, quiet: bool = False, interval_s: float = 30.0) -> ConsoleRecorder:
    config = ConsoleConfig(line_interval_s=interval_s)
    return ConsoleRecorder(config, info=info(quiet=quiet), console=console)


def at(time_s: float, opt_steps: int = 0) -> RecordStep:
    return RecordStep(opt_steps=opt_steps, env_steps=1_000 + opt_steps, time_s=time_s)


def progress(time_s: float, opt_steps: int = 0, *, phase: str = "learning") -> Progress:
    return Progress(step=at(time_s, opt_steps), phase=phase, samples_total=0, gauges={})


def test_the_panel_is_drawn_again_only_after_half_a_second_of_the_run_or_in_a_new_phase() -> None:
    console = terminal()
    shown = recorder(console)
    lengths = []
    for update in (
        progress(0.0),
        progress(0.4),
        progress(0.5),
        progress(0.6),
        progress(0.6, phase="evaluating"),
    ):
        before = len(output(console))
        shown.show(update)
        lengths.append(len(output(console)) > before)
    shown.close()
    assert lengths == [True, False, True, False, True]


def test_a_panel_that_a_narrower_terminal_has_wrapped_is_erased_whole() -> None:
    console = terminal(width=100)
    shown = recorder(console)
    shown.show(progress(1.0))
    before = len(output(console))
    console.width = 60
    shown.show(progress(2.0))
    drawn = output(console)[before:]
    shown.close()
    # 10 rows of 100 cells wrap to 20 rows of 60; the hint fits in one row of either width
    assert drawn[: drawn.index("╭")].count(CURSOR_UP) == 20


def test_close_gives_the_terminal_back_and_leaves_the_last_state() -> None:
    console = terminal()
    stdout, stderr, threads = sys.stdout, sys.stderr, threading.enumerate()
    shown = recorder(console)
    shown.show(progress(1.0, 10))
    assert threading.enumerate() == threads
    shown.write(at(1.1, 20_000), {"eval/return": 499.5})
    shown.close()
    shown.close()
    shown.show(progress(9.0, 30))
    assert (sys.stdout, sys.stderr) == (stdout, stderr)
    written = output(console)
    assert written.count(HIDE_CURSOR) == written.count(SHOW_CURSOR) == 1
    last = written[written.rindex("╭") :]
    assert "ended" in last
    assert "499.5 at 20,000" in last


def test_a_log_record_stands_whole_above_the_panel() -> None:
    console = terminal()
    shown = recorder(console)
    shown.show(progress(1.0))
    before = len(output(console))
    logger = logging.Logger("test")
    logger.addHandler(ConsoleHandler(console))
    logger.warning("see %s", "/very/long" * 12)
    drawn = output(console)[before:]
    shown.close()
    message, panel = drawn.index("/very/long" * 12), drawn.index("╭")
    assert message < panel


def test_without_a_terminal_a_line_comes_soon_then_one_per_interval_and_one_at_the_end() -> None:
    console = pipe()
    shown = recorder(console, interval_s=30.0)
    counts = []
    for time_s in (5.0, 6.9, 7.0, 36.9, 37.0, 50.0):
        shown.show(progress(time_s, int(time_s)))
        counts.append(len(output(console).splitlines()))
    shown.close()
    shown.close()
    assert counts == [0, 0, 1, 1, 2, 2]
    assert len(output(console).splitlines()) == 3
    assert output(console).splitlines()[-1].startswith("ended  updates 50 of 20,000")


def test_quiet_draws_nothing() -> None:
    for console in (terminal(), pipe()):
        shown = recorder(console, quiet=True, interval_s=0.001)
        for time_s in (0.0, 5.0, 10.0):
            shown.show(progress(time_s))
            shown.write(at(time_s), {"eval/return": 1.0})
        shown.close()
        assert output(console) == ""
