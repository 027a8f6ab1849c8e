"""`border-record`: plays the models of a run and keeps the episodes as a Minari data set."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.cli.plain_command import (
    best_or_latest,
    located,
    opened_run,
    plain_command,
    read_pairs,
    truth,
    whole_number,
)
from border_cli.core.errors import CheckpointError, ConfigError, RunFailed, reachable
from border_cli.core.words import setting, shell_command
from border_cli.launch.monitor import expect, monitored
from border_cli.launch.signals import EarlySignals

if TYPE_CHECKING:
    from border_cli.core.config import RunConfig
    from border_cli.core.interfaces import Agent
    from border_cli.core.types import Snapshot
    from border_cli.launch.effective import EffectiveSettings
    from border_cli.launch.play import Player, Recorded

HELP = """\
border-record: plays a saved model of a run and stores its episodes as a Minari data set.

  border-record RUN_DIR dataset=ID [key=value …] [--json]

  RUN_DIR                          a run directory of border-train, or one of its checkpoints:
                                   RUN_DIR/best, RUN_DIR/checkpoints/5000
  dataset=ID                       id of the new data set, [namespace/]name-v0; it is stored in
                                   $MINARI_DATASETS_PATH, by default ~/.minari/datasets
  episodes=N                       number of episodes; default: 100
  policy=best|latest|STEP|random   the policy; default: best, or latest if there is no best model
                                   yet. A list splits the episodes evenly, [best,random], or by
                                   weight, [best:0.3,random:0.7]
  explore=true                     explores as in training; default: greedy actions
  seed=N                           seed of the episodes; default: the seed of the run
  overwrite=true                   replaces an existing data set of the same id
  trust=true                       also imports modules from the directories that the run recorded,
                                   and from RUN_DIR itself; only for runs whose code you trust
  --json                           prints one JSON object instead of the table
  --version, --help

Examples
  border-record RUN_DIR dataset=my/cartpole-expert-v0 episodes=200
  border-record RUN_DIR dataset=my/cartpole-mixed-v0 episodes=500 'policy=[best,5000,random]'
  border-train agent=dqn env=cartpole trainer=offline replay_buffer.dataset=my/cartpole-expert-v0
"""
KEYS = ("dataset", "episodes", "policy", "explore", "seed", "overwrite", "trust")
EPISODES = 100
OFFLINE_AGENT = "iql"  # learns from any data; what to try first


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, checked as far as it can be without the run."""

    run_dir: Path
    dataset: str | None = None
    episodes: int = EPISODES
    policies: tuple[tuple[str, float], ...] = ()  # names and weights; none: best, else latest
    explore: bool = False
    seed: int | None = None
    overwrite: bool = False
    trust: bool = False
    as_json: bool = False


def command() -> None:
    """The console script: `main` under its monitor."""
    with monitored("border-record"):
        main()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; see `plain_command`."""
    plain_command("border-record", HELP, _run, argv, interrupted="interrupted; nothing was written")


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    request = _located(read_request(typed))
    try:
        with opened_run(request.run_dir, trust=request.trust):
            _record(request, signals)
    except OSError as error:  # a full disk, a folder that cannot be written
        raise RunFailed(f"the data set could not be written: {error}") from error
    except SystemExit as error:
        raise RunFailed(f"the environment called sys.exit({error.code!r})") from error


def read_request(typed: Sequence[str]) -> Request:
    """Reads the arguments in any order; raises ConfigError naming what is not understood."""
    run_dir, values = read_pairs(typed, KEYS)
    episodes = whole_number(values, "episodes", 1) or EPISODES
    policies = _policies(values["policy"]) if "policy" in values else ()
    return Request(
        run_dir=run_dir,
        dataset=values.get("dataset"),
        episodes=episodes,
        policies=policies,
        explore=truth(values, "explore"),
        seed=whole_number(values, "seed", 0),
        overwrite=truth(values, "overwrite"),
        trust=truth(values, "trust"),
        as_json="--json" in typed,
    )


def _located(request: Request) -> Request:
    """The same with the run directory, and with the policy where a checkpoint was typed instead."""
    run_dir, checkpoint = located(request.run_dir)
    if checkpoint is None:
        return replace(request, run_dir=run_dir)
    if request.policies:
        raise ConfigError(f"{request.run_dir} is a checkpoint: leave out policy, or give {run_dir}")
    return replace(request, run_dir=run_dir, policies=((checkpoint, 1.0),))


def _policies(text: str) -> tuple[tuple[str, float], ...]:
    """`best`, `[best,random]` or `[best:0.3,random:0.7]` as names and weights."""
    listed = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    parts = [each.strip().partition(":") for each in listed.split(",")]
    names = [name for name, _, _ in parts]
    if len(set(names)) < len(names) or not all(names):
        raise ConfigError(f"policy must name each policy once, got {text!r}")
    weighted = [colon for _, colon, _ in parts]
    if any(weighted) and not all(weighted):
        raise ConfigError(f"policy must have a weight for every policy or for none, got {text!r}")
    return tuple((name, _weight(text, weight) if colon else 1.0) for name, colon, weight in parts)


def _weight(text: str, weight: str) -> float:
    try:
        number = float(weight)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"policy must have weights above 0, got {weight!r} in {text!r}")
    return number


def _record(request: Request, signals: EarlySignals) -> None:
    from border_cli.api import read_config
    from border_cli.dataset.minari_files import refuse_name
    from border_cli.launch.effective import effective_settings
    from border_cli.launch.play import RecordingRequest, record

    dataset = refuse_name(request.dataset, overwrite=request.overwrite)
    players = _players(request)
    with reachable(CheckpointError):
        env_words = typed_env(request.run_dir)  # before anything is played: it may be refused
    with signals.polled() as stop:
        effective = effective_settings(read_config(request.run_dir, trust=request.trust))
        expect(effective.config.trainer.stall_timeout_s)
        loaded = [_load(request, effective, each.name) for each in players]
        recording = RecordingRequest(
            run_dir=request.run_dir,
            dataset=dataset,
            players=players,
            seed=request.seed,
            explore=request.explore,
            overwrite=request.overwrite,
        )
        recorded = record(recording, effective, loaded, stop)
    if request.as_json:
        sys.stdout.write(json.dumps(document(dataset, recorded)) + "\n")
    else:
        print_recorded(dataset, recorded, env_words)


def _load(request: Request, effective: EffectiveSettings, name: str) -> tuple[Agent, Snapshot]:
    """An agent, and its weights with the exploration that it had when it was saved."""
    from border_cli.api import load_agent
    from border_cli.core.types import PAST_SCHEDULES
    from border_cli.launch.play import RANDOM, random_agent

    if name == RANDOM:
        agent = random_agent(effective)
        return agent, agent.snapshot()
    _, agent, counters = load_agent(request.run_dir, name, trust=request.trust)
    if effective.config.init_from is not None or not effective.has_actors:
        return agent, agent.snapshot(env_steps=PAST_SCHEDULES)
    return agent, agent.snapshot(env_steps=int(counters["env_steps"]))


def _players(request: Request) -> list[Player]:
    """The policies with their episodes; refuses those that the run does not have."""
    from border_cli.launch.play import RANDOM, Player, split_episodes
    from border_cli.run.finding import find_checkpoint

    policies = request.policies or ((best_or_latest("border-record", request.run_dir), 1.0),)
    for name, _ in policies:
        if name not in ("best", "latest", RANDOM) and not name.isdecimal():
            raise ConfigError(f"policy must be best, latest, random or a step, got {name!r}")
        if name != RANDOM:
            find_checkpoint(request.run_dir, name)
    counts = split_episodes(request.episodes, [weight for _, weight in policies])
    players = [
        Player(name=name, episodes=count) for (name, _), count in zip(policies, counts, strict=True)
    ]
    none = [each.name for each in players if not each.episodes]
    if none:
        raise ConfigError(f"episodes={request.episodes} leave none for {', '.join(none)}")
    return players


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
    from border_cli.recorder import terminal

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
    from border_cli.registry import AGENTS

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
    from border_cli.config.saved import read_plain

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


if __name__ == "__main__":
    command()
