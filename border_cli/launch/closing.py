"""The last lines of a job: tables, warnings, score, and commands to run next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from border_cli.core.interfaces import ActorStats
from border_cli.core.output import TrainerStats
from border_cli.core.timing import sum_seconds
from border_cli.recorder import figures, terminal
from border_cli.run.run_folder import RunFolder
from border_cli.run.status import read_run
from border_cli.words import format_override, pluralize, shell_command, shortest

TROUBLES = ("save_failures", "saves_skipped", "recorder_failures", "recorders_switched_off")
UNFINISHED = ("interrupted", "failed", "killed")


def print_tables(console: Console, actor_stats: list[ActorStats], stats: TrainerStats) -> None:
    """Prints the final statistics of actors and trainer, and where their time went."""
    samples = {"samples": stats.samples_total, "samples/s": stats.samples_per_sec}
    totals = {
        "updates": stats.opt_steps,
        **(samples if actor_stats else {}),  # a run on a data set alone has no actors
        "updates/s": stats.opt_per_sec,
        "duration s": stats.duration_s,
    }
    terminal.stats_tables(console, actor_stats, totals)
    terminal.time_tree(
        console,
        stats.seconds,
        sum_seconds(actor.seconds for actor in actor_stats),
        {f"writing {pluralize(stats.saves, 'checkpoint')}": stats.save_seconds},
    )


def print_summary(console: Console, run_dir: Path, *, intact: bool = True) -> None:
    """Prints warnings, the run directory, the best score and commands to run next.

    `intact`: whether the run may be resumed from its checkpoints.
    """
    folder = RunFolder(run_dir)
    facts = folder.facts
    for name in TROUBLES:
        if facts.get(name):
            warning = f"{name.replace('_', ' ')}: {facts[name]}"
            terminal.say(console, Text.assemble(("warning: ", "yellow"), warning))
    commands = []
    if intact and facts.get("status") in UNFINISHED and folder.checkpoints:
        commands.append(resume_command(run_dir))
    if any((run_dir / name).exists() for name in ("best", "checkpoints/latest")):
        commands.append(f"{shell_command('border-eval')} {shlex.quote(str(shortest(run_dir)))}")
    if any(run_dir.glob("events.out.tfevents.*")):
        parent = shlex.quote(str(shortest(run_dir.parent)))  # HParams shows no single-run scores
        commands.append(f"{shell_command('tensorboard')} --logdir {parent}")
    lines = [("bottleneck", facts["bottleneck"])] if facts.get("bottleneck") else []
    if facts.get("status") == "done":
        lines.append(("ended", facts["exit_reason"]))
    score, opt_steps = facts.get("best_score"), facts.get("best_opt_steps")
    best = "no evaluation"
    if score is not None and opt_steps is not None:
        best = f"{figures.score(score)} at {pluralize(opt_steps, 'update')}"
    lines += [("run directory", str(shortest(run_dir))), ("best score", best)]
    if commands:
        lines.append(("next", "\n".join(commands)))
    terminal.header(console, lines)


def result_line(run_dir: Path) -> str:
    """Returns the only line that a quiet run prints to standard output."""
    facts = read_run(run_dir)
    best, opt_steps = facts.get("best_score"), facts.get("best_opt_steps")
    if best is None or opt_steps is None:
        return f"no score: {shortest(run_dir)}"
    return f"best score {best:.10g} at {pluralize(opt_steps, 'update')}: {shortest(run_dir)}"


def resume_command(run_dir: Path) -> str:
    """Returns the complete command that resumes a run."""
    resume = format_override("resume", str(shortest(run_dir)))
    return f"{shell_command('border-train')} {shlex.quote(resume)}"


def sweep_command(typed: Sequence[str], root: Path) -> str:
    """Returns the command that repeats a sweep and skips the jobs that are done."""
    name, *words = typed
    rest = [word for word in words if not word.startswith("resume=")]
    if not any(word.startswith("run_dir=") for word in words):
        rest.append(format_override("run_dir", str(shortest(root))))
    return " ".join([shell_command(name), *map(shlex.quote, [*rest, "resume=auto"])])
