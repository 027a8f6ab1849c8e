"""Who plays in a recording of `border-record`, and what it says at the end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from border_cli.api import load_agent
from border_cli.config.saved import read_plain
from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.interfaces import Agent
from border_cli.core.types import PAST_SCHEDULES, Snapshot
from border_cli.core.words import setting, shell_command
from border_cli.launch.effective import EffectiveSettings
from border_cli.launch.play import RANDOM, Player, Recorded, random_agent, split_episodes
from border_cli.recorder import terminal
from border_cli.registry import AGENTS
from border_cli.run.finding import find_checkpoint

OFFLINE_AGENT = "iql"  # learns from any data; what to try first


def loaded(
    run_dir: Path, effective: EffectiveSettings, name: str, *, trust: bool
) -> tuple[Agent, Snapshot]:
    """An agent, and its weights with the exploration that it had when it was saved."""
    if name == RANDOM:
        agent = random_agent(effective)
        return agent, agent.snapshot()
    _, agent, counters = load_agent(run_dir, name, trust=trust)
    if effective.config.init_from is not None or not effective.has_actors:
        return agent, agent.snapshot(env_steps=PAST_SCHEDULES)
    return agent, agent.snapshot(env_steps=int(counters["env_steps"]))


def players(
    run_dir: Path,
    effective: EffectiveSettings,
    policies: Sequence[tuple[str, float]],
    episodes: int,
    *,
    trust: bool,
) -> list[Player]:
    """The policies, of names and weights, with their episodes; refuses those that the run does not
    have."""
    counts = split_episodes(episodes, [weight for _, weight in policies])
    for (name, _), count in zip(policies, counts, strict=True):
        if name not in ("best", "latest", RANDOM) and not name.isdecimal():
            raise ConfigError(f"policy must be best, latest, random or a step, got {name!r}")
        if name != RANDOM:
            find_checkpoint(run_dir, name)
        if not count:
            raise ConfigError(f"episodes={episodes} leave none for {name}")
    found = []
    for (name, _), count in zip(policies, counts, strict=True):
        agent, snapshot = loaded(run_dir, effective, name, trust=trust)
        found.append(Player(name=name, episodes=count, agent=agent, snapshot=snapshot))
    return found


def document(dataset: str, recorded: Recorded) -> dict[str, Any]:
    """What `--json` prints."""
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
    """What each policy played, the reference scores, and what to type next; see `typed_env`."""
    console = terminal.make_console()
    table = terminal.make_table("policy", "updates", "episodes", "steps", "mean return", "std")
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
        references = "none: the run is no better than random actions"
    else:
        low, high = recorded.references
        references = f"{low:.2f} of random actions, {high:.2f} of the best model"
    lines.append(("references", references))
    lines.append(("next", _next_command(dataset, recorded.effective.config, env_words)))
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
    return " ".join([shell_command("border-train"), *map(shlex.quote, words)])


def typed_env(run_dir: Path) -> list[str]:
    """What was typed of the environment when the run began."""
    file = run_dir / ".hydra" / "overrides.yaml"
    typed = read_plain(file) if file.is_file() else []
    words = [str(each) for each in typed] if isinstance(typed, list) else []
    return [each for each in words if each.lstrip("+").startswith(("env=", "env."))]


def _env_words(config: RunConfig, typed: Sequence[str]) -> list[str]:
    """How the environment was typed; by its id where that is not known. What can name a module is
    taken from the settings, which were checked."""
    words = [each for each in typed if not each.lstrip("+").startswith("env.id=")]
    if not any(each.lstrip("+").startswith("env=") for each in words):
        words.insert(0, setting("env.id", str(config.env.id)))
    return [*words, f"imports=[{','.join(config.imports)}]"] if config.imports else words
