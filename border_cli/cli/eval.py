"""`border-eval`: evaluates a saved model, even while its run is still training."""

from __future__ import annotations

import json
import os
import sys
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
from border_cli.system.display import DISPLAYS, choose_renderer
from border_cli.system.files import expand_user, is_exported, replace_non_finite
from border_cli.system.streams import prints_to_stderr
from border_cli.words import pluralize

if TYPE_CHECKING:
    from border_cli.core.interfaces import Evaluation

HELP = """\
border-eval: evaluates a saved model of a run.

  border-eval RUN_DIR [key=value …] [--json]

  RUN_DIR                          a run directory of border-train, or one of its checkpoints:
                                   RUN_DIR/best, RUN_DIR/checkpoints/5000; or a folder of
                                   border-export
  checkpoint=best|latest|STEP      the model to evaluate; default: best, or latest if there is no
                                   best model yet
  episodes=N                       number of episodes; default: evaluator.num_episodes of the run,
                                   and for its best model those that confirmed the score, too
  seed=N                           plays fresh episodes; default: the episodes of the run's own
                                   evaluations, which reproduce its recorded best score
  env=NAME, env.id=ID, env.kwargs.obstacles=5, …
                                   evaluates in another environment with the same spaces; same
                                   syntax as in border-train
  render=human                     shows the episodes in a window, one at a time; needs a display
  video=FILE.mp4|.gif              films the episodes, with step and return under each frame; needs
                                   pip install "border-cli[video,render]" but no display
  trust=true                       also imports modules from the directories that the run recorded,
                                   and does not check its environment; only for code that you trust
  --json                           prints one JSON object instead of the table
  --version, --help

Examples
  border-eval outputs/dqn_cartpole/2026-01-31_12-00-00-123456
  border-eval RUN_DIR seed=123 episodes=100
  border-eval RUN_DIR checkpoint=latest --json
"""
RETURNS = {
    "mean": "eval/return",
    "std": "eval/return_std",
    "min": "eval/return_min",
    "max": "eval/return_max",
}
SCALED = {  # shown if the environment or the settings define the scale
    "normalized_score": " normalized {normalized_score:.2f}",
    "human_normalized": " human-normalized {human_normalized:.1f}",
}
EXPORTED = "exported"  # checkpoint name of an exported policy


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    env_overrides, rest = split_env(typed)
    (path,), values = read_pairs(rest, READERS)
    if "render" in values and "video" in values:
        raise ConfigError("video and render=human cannot be combined: give one of them")
    run_dir, checkpoint = locate_run(path, values.pop("checkpoint", None))
    document, not_finite = _evaluate(run_dir, checkpoint, signals, env_overrides, **values)
    if "--json" in typed:
        say(json.dumps(replace_non_finite(document), allow_nan=False))
    else:
        _print_table(run_dir, document)
    if not_finite:
        raise RunFailed(f"the score is not finite: {not_finite}")


def _read_render(key: str, value: str) -> str:
    """Raises ConfigError if no window can open: without a display, glfw aborts the process and
    pygame draws nowhere. A video driver that the user has set for pygame is accepted."""
    if value != "human":
        raise ConfigError(f"{key} must be human, got {value!r}")
    if sys.platform == "linux" and not any(map(os.environ.get, (*DISPLAYS, "SDL_VIDEODRIVER"))):
        raise ConfigError(
            "render=human needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set. Set "
            "DISPLAY (over ssh: ssh -X), or run the command under xvfb-run, which provides a "
            "virtual one. video=FILE.mp4 films the episodes without a display"
        )
    return value


READERS: Mapping[str, Reader] = {
    "checkpoint": read_text,
    "episodes": integer_reader(1),
    "seed": integer_reader(0),
    "render": _read_render,
    "video": lambda _, value: expand_user(value),
    "trust": read_bool,
}


@prints_to_stderr()
def _evaluate(
    run_dir: Path,
    checkpoint: str | None,
    signals: EarlySignals,
    env_overrides: Sequence[str],
    *,
    episodes: int | None = None,
    seed: int | None = None,
    render: str | None = None,
    video: Path | None = None,
    trust: bool = False,
) -> tuple[dict[str, Any], str | None]:
    """Returns the object that `--json` prints (figures, the model, its episodes), and a description
    of the first episode whose return is not finite, or None.

    `env_overrides`: overrides of the environment.
    """
    # imported late: torch, which --help and most refusals do not need
    from border_cli.api import load_agent
    from border_cli.config.saved import run_import_path
    from border_cli.evaluator.film import refuse_no_film
    from border_cli.launch.build import evaluation_policy
    from border_cli.playing.evaluate import play
    from border_cli.run.finding import find_checkpoint
    from border_cli.run.manifest import read_json

    if video is not None:
        refuse_no_film(video)
        choose_renderer()
    with run_import_path(run_dir, trust=trust):
        if is_exported(run_dir):
            if checkpoint is not None:
                raise ConfigError(f"{run_dir} is an exported policy: leave out checkpoint")
            checkpoint = EXPORTED
        checkpoint = checkpoint or best_or_latest("border-eval", run_dir)
        config = settings_in_env(run_dir, env_overrides, trust=trust) if env_overrides else None
        effective, agent, counters = load_agent(run_dir, checkpoint, config=config, trust=trust)
        set_stall_timeout(effective.config.trainer.stall_timeout_s)
        rounds = 1
        if episodes is not None:
            effective = effective.with_episodes(episodes)
        elif checkpoint == "best":
            scored = read_json(find_checkpoint(run_dir, checkpoint) / "score.json")["returns"]
            rounds = max(
                1, len(scored) // effective.evaluator.num_episodes
            )  # above 1 for a confirmed score
        policy = evaluation_policy(effective, agent)
        with signals.polled() as stop:
            evaluation = play(
                effective, policy, stop, seed=seed, rounds=rounds, render=render, video=video
            )
    confirming = (rounds - 1) * effective.evaluator.num_episodes
    changes = env_changes(run_dir, effective) if env_overrides else []
    document = {
        **figures_of(evaluation),
        "run_dir": str(run_dir.absolute()),
        "env": effective.evaluation_env.id,
        "env_changes": changes,
        "checkpoint": checkpoint,
        "opt_steps": counters["opt_steps"],
        "seed": seed,
        "confirming": confirming,
        "returns": evaluation.returns,
        "lengths": evaluation.lengths,
        "info": dict(evaluation.info),
        "video": video and str(video),
    }
    return document, evaluation.not_finite


def figures_of(evaluation: Evaluation) -> dict[str, float]:
    """Returns the summary statistics of an evaluation, with the population standard deviation."""
    metrics = evaluation.metrics
    figures = {name: metrics[key] for name, key in RETURNS.items()}
    figures["episodes"] = len(evaluation.returns)
    for name in (*evaluation.info, *SCALED):
        if f"eval/{name}" in metrics:
            figures[name] = metrics[f"eval/{name}"]
    return figures


def _print_table(run_dir: Path, document: Mapping[str, Any]) -> None:
    from border_cli.recorder import terminal

    console = terminal.make_console()
    seed = "the run's evaluation seeds" if document["seed"] is None else f"seed {document['seed']}"
    model = f"{document['checkpoint']} at {pluralize(document['opt_steps'], 'update')}"
    terminal.say(console, f"{run_dir}   {model}   {seed}")
    info = document["info"]
    if document["confirming"]:
        first = len(document["returns"]) - document["confirming"]
        confirming = f"{document['confirming']} more that confirmed the score"
        terminal.say(console, f"{first} episodes and {confirming} (trainer.stop_confirmations)")
    if document["env_changes"]:
        changes = "; ".join(document["env_changes"])
        terminal.say(console, f"in another environment ({changes}): not the recorded score")
    table = terminal.make_table("episode", "return", "length", *info)
    episodes = zip(document["returns"], document["lengths"], *info.values(), strict=True)
    for i, (score, length, *values) in enumerate(episodes):
        table.add_row(str(i), f"{score:,.2f}", f"{length:,}", *(f"{value:g}" for value in values))
    console.print(table)
    line = "mean {mean:.2f} std {std:.2f} min {min:g} max {max:g} episodes {episodes}"
    for name, template in SCALED.items():
        line += template if name in document else ""
    means = "".join(f" {name} {document[name]:.4g}" for name in info)
    terminal.say(console, line.format(**document) + means)
    if document["video"]:
        terminal.say(console, f"film {document['video']}")


main = partial(plain_command, "border-eval", HELP, _run)
command = monitored("border-eval")(main)  # entry point of the console script


if __name__ == "__main__":
    command()
