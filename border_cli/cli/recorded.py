"""What `border-record` says of a data set that it has made."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from border_cli.cli.shell import command, setting
from border_cli.config.saved import read_plain
from border_cli.core.config import RunConfig
from border_cli.launch.play import Recorded
from border_cli.recorder import terminal
from border_cli.registry import AGENTS

OFFLINE_AGENT = "iql"  # learns from any data; what to try first


def document(dataset: str, recorded: Recorded) -> dict[str, Any]:
    """Everything, for JSON."""
    low, high = recorded.references or (None, None)
    return {
        "dataset": dataset,
        "episodes": sum(len(each.returns) for each in recorded.played),
        "steps": sum(int(each.lengths.sum()) for each in recorded.played),
        "ref_min_score": low,
        "ref_max_score": high,
        "policies": [
            {
                "policy": each.name,
                "opt_steps": each.opt_steps,
                "returns": each.returns.tolist(),
                "lengths": each.lengths.tolist(),
            }
            for each in recorded.played
        ],
    }


def print_recorded(dataset: str, recorded: Recorded, env_words: Sequence[str]) -> None:
    """Who played what, the reference scores, and what to type next, see `typed_env`."""
    console = terminal.make_console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name in ("policy", "updates", "episodes", "steps", "mean return", "std"):
        table.add_column(name, justify="right")
    for each in recorded.played:
        table.add_row(
            each.name,
            "-" if each.opt_steps is None else f"{each.opt_steps:,}",
            f"{len(each.returns):,}",
            f"{int(each.lengths.sum()):,}",
            f"{each.returns.mean():,.2f}",
            f"{each.returns.std():,.2f}",
        )
    console.print(table)
    total = document(dataset, recorded)
    lines = [("data set", f"{dataset}, {total['episodes']:,} episodes, {total['steps']:,} steps")]
    if recorded.references is None:
        said = "none: the run is no better than random actions"
    else:
        low, high = recorded.references
        said = f"{low:.2f} of random actions, {high:.2f} of the best model"
    lines += [("references", said), ("next", _next_command(dataset, recorded.config, env_words))]
    terminal.header(console, lines)


def _next_command(dataset: str, config: RunConfig, env_words: Sequence[str]) -> str:
    known = OFFLINE_AGENT in AGENTS.names()
    agent = OFFLINE_AGENT if known else AGENTS.entry_of(config.agent).name
    words = [
        f"agent={agent}",
        *_env_words(config, env_words),
        "trainer=offline",
        setting("replay_buffer.dataset", dataset),
    ]
    return " ".join([command("border-train"), *map(shlex.quote, words)])


def typed_env(run_dir: Path) -> list[str]:
    """What was typed of the environment when the run began."""
    file = run_dir / ".hydra" / "overrides.yaml"
    typed = read_plain(file) if file.is_file() else []
    words = [str(each) for each in typed] if isinstance(typed, list) else []
    return [each for each in words if each.lstrip("+").startswith(("env=", "env."))]


def _env_words(config: RunConfig, typed: Sequence[str]) -> list[str]:
    """How the environment was typed; by its id where that is not known. What can name a module is
    taken from the settings, which were looked at."""
    words = [each for each in typed if not each.lstrip("+").startswith("env.id=")]
    if not any(each.lstrip("+").startswith("env=") for each in words):
        words.insert(0, setting("env.id", str(config.env.id)))
    return [*words, f"imports=[{','.join(config.imports)}]"] if config.imports else words
