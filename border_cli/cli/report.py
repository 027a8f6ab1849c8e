"""What a job says in words at its end: its tables and its last lines."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from border_cli.cli.logs import FILE_ONLY
from border_cli.cli.resume import has_checkpoint
from border_cli.cli.shell import command, resume_run, shortest
from border_cli.core.actors import ActorStats
from border_cli.core.config import RunConfig
from border_cli.core.timing import summed
from border_cli.parts import actor_manager_config
from border_cli.recorder import terminal
from border_cli.registry import ACTOR_MANAGERS
from border_cli.trainer.stats import TrainerStats

log = logging.getLogger(__name__)

UNFINISHED = ("interrupted", "failed", "killed")


def print_tables(
    console: Console, config: RunConfig, actor_stats: list[ActorStats], stats: TrainerStats
) -> None:
    """The final statistics of actors and trainer, and where their time went."""
    samples = {"samples": stats.samples_total, "samples/s": stats.samples_per_sec}
    figures = {
        "opt steps": stats.opt_steps,
        **(samples if actor_stats else {}),  # there are no actors where a data set is all
        "opt/s": stats.opt_per_sec,
        "duration s": stats.duration_s,
    }
    terminal.stats_tables(console, actor_stats, figures)
    terminal.time_tree(
        console,
        stats.seconds,
        summed(each.seconds for each in actor_stats),
        in_turn=ACTOR_MANAGERS.entry_of(actor_manager_config(config)).name == "serial",
        beside={f"writing {stats.saves:,} checkpoints": stats.save_seconds},
    )


def print_closing(
    console: Console, run_dir: Path, facts: Mapping[str, Any], *, resumable: bool = True
) -> None:
    """What went wrong on the way, the run directory, the best score and what to type next.

    `facts` are those of `run.json`. `resumable`: its checkpoints may serve to go on.
    """
    shown = shortest(run_dir)
    best = None
    if facts.get("best_score") is not None and facts.get("best_opt_steps") is not None:
        best = (facts["best_score"], facts["best_opt_steps"])
    warnings = [
        f"{facts[key]} {what}"
        for key, what in (
            ("save_failures", "times a checkpoint could not be written"),
            ("saves_skipped", "checkpoints left out, because another was still being written"),
            ("recorder_failures", "times a recorder could not write"),
        )
        if facts.get(key)
    ]
    quoted = shlex.quote(str(shown))
    saved = (run_dir / "best", run_dir / "checkpoints" / "latest")
    commands = []
    if any(each.exists() for each in saved):
        commands.append(f"{command('border-eval')} {quoted}")
    events = "events.out.tfevents.*"
    if any(run_dir.glob(events)) or any(run_dir.glob(f"tensorboard/{events}")):
        commands.append(f"{command('tensorboard')} --logdir {quoted}")
    if resumable and facts.get("status") in UNFINISHED and has_checkpoint(run_dir):
        commands.append(resume_run(run_dir))
    if facts.get("bottleneck"):
        terminal.say(console, f"bottleneck: {facts['bottleneck']}")
        log.info("bottleneck: %s", facts["bottleneck"], extra=FILE_ONLY)
    if facts.get("status") == "done":
        terminal.say(console, f"ended: {facts['exit_reason']}")
    terminal.closing(console, shown, best, commands, warnings=warnings)
    told = (facts.get("status"), facts.get("exit_reason"), facts.get("best_score"))
    log.info("%s: %s; best score %s", *told, extra=FILE_ONLY)
