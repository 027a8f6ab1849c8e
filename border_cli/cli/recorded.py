"""The players of a recording of `border-record`, and its report at the end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from border_cli.api import load_agent
from border_cli.config.describe import shown
from border_cli.core.types import PAST_SCHEDULES
from border_cli.errors import ConfigError
from border_cli.launch.effective import EffectiveSettings
from border_cli.playing.record import RANDOM, Player, Recorded, random_agent, split_amount
from border_cli.recorder import figures, terminal
from border_cli.settings.run import RunConfig
from border_cli.words import setting, shell_command

OFFLINE_AGENT = "iql"  # learns from any data; what to try first


def players(
    run_dir: Path,
    effective: EffectiveSettings,
    policies: Mapping[str, float],
    amount: int,
    unit: str,
    *,
    trust: bool,
    config: RunConfig | None,
) -> list[Player]:
    """The policies, weights by names, with their episodes or steps; refuses those that the run does
    not have. `config` stands for the saved settings."""
    parts = dict(zip(policies, split_amount(amount, [*policies.values()]), strict=True))
    none = [name for name, part in parts.items() if not part]
    if none:
        raise ConfigError(f"{unit}={amount} leave none for {', '.join(none)}")
    found = []
    for name, part in parts.items():
        if name == RANDOM:
            agent, env_steps = random_agent(effective), 0
        else:
            _, agent, counters = load_agent(run_dir, name, config=config, trust=trust)
            settings = effective.config
            explored = settings.init_from is not None or settings.trainer.offline
            env_steps = PAST_SCHEDULES if explored else int(counters["env_steps"])
        found.append(
            Player(
                name=name,
                amount=part,
                unit=unit,
                agent=agent,
                snapshot=agent.snapshot(env_steps=env_steps),  # explores as when it was saved
            )
        )
    return found


def document(dataset: str, effective: EffectiveSettings, recorded: Recorded) -> dict[str, Any]:
    """The object that `--json` prints."""
    low, high = recorded.references or (None, None)
    return {
        "dataset": dataset,
        "env": effective.evaluation_env.id,
        "evaluator_env": effective.config.evaluator.env,
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


def print_recorded(run_dir: Path, found: Mapping[str, Any]) -> None:
    """Prints the episodes of each policy, the reference scores, and the next command."""
    console = terminal.make_console()
    table = terminal.make_table("policy", "updates", "episodes", "steps", "mean return", "std")
    for each in found["policies"]:
        returns = each["returns"]
        table.add_row(
            each["policy"],
            figures.count(each["opt_steps"]),
            f"{len(returns):,}",
            f"{sum(each['lengths']):,}",
            f"{np.mean(returns):,.2f}",
            f"{np.std(returns):,.2f}",
        )
    console.print(table)
    references = "none: the run is no better than random actions"
    if found["ref_min_score"] is not None:
        references = "{ref_min_score:.2f} of random actions, {ref_max_score:.2f} of the best model"
    lines = [
        (
            "environment",
            f"{found['env']} of evaluations, evaluator.env={shown(found['evaluator_env'])}",
        ),
        *([("changed", "\n".join(found["env_changes"]))] if found["env_changes"] else []),
        ("data set", "{dataset}, {episodes:,} episodes, {steps:,} steps".format(**found)),
        ("references", references.format(**found)),
        ("next", _next_command(run_dir, found["dataset"])),
    ]
    terminal.header(console, lines)


def _next_command(run_dir: Path, dataset: str) -> str:
    """Trains offline in the environment of the run, with whatever else was set for it."""
    words = ["--from", str(run_dir), f"agent={OFFLINE_AGENT}", "trainer=offline"]
    words.append(setting("replay_buffer.dataset", dataset))
    return f"{shell_command('border-train')} {shlex.join(words)}"
