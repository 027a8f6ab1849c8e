"""`border-record`: stores episodes of saved models as a Minari data set."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.cli.changed_env import env_changes, settings_in_env, split_env
from border_cli.cli.plain_command import (
    Reader,
    best_or_latest,
    integer_reader,
    locate_run,
    plain_command,
    read_bool,
    read_pairs,
    read_text,
)
from border_cli.errors import ConfigError, RunFailed
from border_cli.messages import say
from border_cli.process.monitor import monitored, set_stall_timeout
from border_cli.process.signals import EarlySignals
from border_cli.system.streams import prints_to_stderr
from border_cli.words import format_override, shell_command

if TYPE_CHECKING:
    from border_cli.launch.effective import EffectiveSettings
    from border_cli.playing.record import Recording

HELP = """\
border-record: plays a saved model of a run in the environment of its evaluations and stores the
episodes as a Minari data set.

  border-record RUN_DIR dataset=ID [key=value …] [--json]

  RUN_DIR                          a run directory of border-train, or one of its checkpoints:
                                   RUN_DIR/best, RUN_DIR/checkpoints/5000
  dataset=ID                       id of the new data set, [namespace/]name-v0; it is stored in
                                   $MINARI_DATASETS_PATH, by default ~/.minari/datasets
  episodes=N                       number of episodes; default: 100
  steps=N                          instead of episodes=N: whole episodes with at least N env steps
  policy=best|latest|STEP|random   the policy; default: best, or latest if there is no best model
                                   yet. A list splits episodes or steps evenly, [best,random], or by
                                   weight, [best:0.3,random:0.7]
  explore=true                     explores as in training; default: greedy actions
  seed=N                           seed of the episodes; default: the seed of the run
  env=NAME, env.kwargs.obstacles=5, …
                                   records in another environment with the same spaces; same syntax
                                   as in border-train
  overwrite=true                   replaces an existing data set of the same id
  trust=true                       also imports modules from the directories that the run recorded,
                                   and does not check its environment; only for code that you trust
  --json                           prints one JSON object instead of the table
  --version, --help

Examples
  border-record RUN_DIR dataset=my/cartpole-expert-v0 episodes=200
  border-record RUN_DIR dataset=my/cartpole-mixed-v0 episodes=500 'policy=[best,5000,random]'
  border-train agent=dqn env=cartpole trainer=offline replay_buffer.dataset=my/cartpole-expert-v0
"""


OFFLINE_AGENT = "iql"  # learns from any data, so a good first choice
Policies = Mapping[str, float]  # policy name -> weight


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    env_overrides, rest = split_env(typed)
    (path,), values = read_pairs(rest, READERS)
    run_dir, checkpoint = locate_run(path)
    if checkpoint is not None:
        if "policy" in values:
            raise ConfigError(f"{path} is a checkpoint: leave out policy, or give {run_dir}")
        values["policy"] = {checkpoint: 1.0}
    try:
        document = _record(run_dir, signals, env_overrides, **values)
    except OSError as error:  # disk full or folder not writable
        raise RunFailed(f"the data set could not be written: {error}") from error
    if "--json" in typed:
        say(json.dumps(document))
    else:
        _print(run_dir, document, env_overrides)


def _policies(_: str, value: str) -> Policies:
    """Parses `best`, `[best,random]` or `[best:0.3,random:0.7]` into weights by name."""
    parts = [part.strip().partition(":") for part in value.strip("[]").split(",")]
    weights: dict[str, float] = {}
    for name, colon, weight in parts:
        weights[name] = weights.get(name, 0.0) + _weight(weight if colon else "1")
    return weights


def _weight(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise ConfigError(f"policy must have weights above 0, got {text!r}")
    return number


READERS: Mapping[str, Reader] = {
    "dataset": read_text,
    "episodes": integer_reader(1),
    "steps": integer_reader(1),
    "policy": _policies,
    "explore": read_bool,
    "seed": integer_reader(0),
    "overwrite": read_bool,
    "trust": read_bool,
}


@prints_to_stderr()
def _record(
    run_dir: Path,
    signals: EarlySignals,
    env_overrides: Sequence[str],
    *,
    dataset: str | None = None,
    episodes: int | None = None,
    steps: int | None = None,
    policy: Policies | None = None,
    explore: bool = False,
    seed: int | None = None,
    overwrite: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """Records the data set and returns the object that `--json` prints. `env_overrides`: overrides
    of the environment."""
    # imported late: torch and rich, which --help and most refusals do not need
    from border_cli.api import read_config, with_episode_limit
    from border_cli.config.saved import run_import_path
    from border_cli.dataset.minari_files import refuse_name
    from border_cli.launch.effective import effective_settings
    from border_cli.playing.players import build_players
    from border_cli.playing.record import record
    from border_cli.run.finding import best_score

    if episodes and steps:
        raise ConfigError("episodes and steps cannot be combined: give one of them")
    amount, unit = (steps, "steps") if steps else (episodes or 100, "episodes")
    with run_import_path(run_dir, trust=trust):
        dataset = refuse_name(dataset, overwrite=overwrite)
        policy = policy or {best_or_latest("border-record", run_dir): 1.0}
        with signals.polled() as stop:
            config = settings_in_env(run_dir, env_overrides, trust=trust) if env_overrides else None
            settings = config or read_config(run_dir, trust=trust)
            effective = effective_settings(with_episode_limit(settings, run_dir))
            set_stall_timeout(effective.config.trainer.stall_timeout_s)
            changes = env_changes(run_dir, effective) if env_overrides else []
            best = None if changes else best_score(run_dir)
            recorded = record(
                effective,
                build_players(run_dir, effective, policy, amount, unit, trust=trust, config=config),
                stop,
                best=best and best[0],
                dataset=dataset,
                seed=effective.config.seed if seed is None else seed,
                explore=explore,
                overwrite=overwrite,
            )
    return {**_document(dataset, effective, recorded), "env_changes": changes}


def _document(dataset: str, effective: EffectiveSettings, recorded: Recording) -> dict[str, Any]:
    """Returns the object that `--json` prints."""
    low, high = recorded.references or (None, None)
    return {
        "dataset": dataset,
        "env": effective.evaluation_env.id,
        "evaluator_env": effective.config.evaluator.env,
        "episodes": sum(len(played.returns) for played in recorded.played),
        "steps": sum(int(played.lengths.sum()) for played in recorded.played),
        "ref_min_score": low,
        "ref_max_score": high,
        "policies": [
            {
                "policy": played.name,
                "opt_steps": played.opt_steps,
                "returns": played.returns.tolist(),
                "lengths": played.lengths.tolist(),
            }
            for played in recorded.played
        ],
    }


def _print(run_dir: Path, document: Mapping[str, Any], env_overrides: Sequence[str]) -> None:
    """Prints the episodes of each policy, the reference scores, and the next command."""
    import numpy as np

    from border_cli.config.describe import format_setting
    from border_cli.recorder import figures, terminal

    console = terminal.make_console()
    table = terminal.make_table("policy", "updates", "episodes", "steps", "mean return", "std")
    for policy in document["policies"]:
        returns = policy["returns"]
        table.add_row(
            policy["policy"],
            figures.count(policy["opt_steps"]),
            f"{len(returns):,}",
            f"{sum(policy['lengths']):,}",
            f"{np.mean(returns):,.2f}",
            f"{np.std(returns):,.2f}",
        )
    console.print(table)
    references = "none: the run is no better than random actions"
    if document["ref_min_score"] is not None:
        references = (
            "{ref_min_score:.2f} for random actions, {ref_max_score:.2f} for the best policy"
        )
    lines = [
        (
            "environment",
            f"{document['env']} for evaluation, "
            f"evaluator.env={format_setting(document['evaluator_env'])}",
        ),
        *([("changed", "\n".join(document["env_changes"]))] if document["env_changes"] else []),
        ("data set", "{dataset}, {episodes:,} episodes, {steps:,} steps".format(**document)),
        ("references", references.format(**document)),
        ("next", _next_command(run_dir, document["dataset"], env_overrides)),
    ]
    terminal.header(console, lines)


def _next_command(run_dir: Path, dataset: str, env_overrides: Sequence[str]) -> str:
    """Returns a command that learns from the data set, with the settings of the run and the
    overrides of the environment."""
    words = ["--from", str(run_dir), f"agent={OFFLINE_AGENT}", "trainer=offline"]
    words += [format_override("replay_buffer.dataset", dataset), *env_overrides]
    return f"{shell_command('border-train')} {shlex.join(words)}"


main = partial(plain_command, "border-record", HELP, _run)
command = monitored("border-record")(main)  # entry point of the console script


if __name__ == "__main__":
    command()
