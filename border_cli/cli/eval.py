"""`border-eval`: plays the episodes of a saved model, also while its run is still running."""

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
    located,
    plain_command,
    read_pairs,
    text,
    truth,
    whole,
)
from border_cli.errors import ConfigError, RunFailed
from border_cli.messages import say
from border_cli.process.monitor import expect, monitored
from border_cli.process.signals import EarlySignals
from border_cli.system.files import expanded, is_exported
from border_cli.words import counted

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
  episodes=N                       number of episodes; default: evaluator.num_episodes of the run
  seed=N                           plays fresh episodes; default: the episodes of the run's own
                                   evaluations, which reproduce its recorded best score
  env=NAME, env.id=ID, env.kwargs.obstacles=5, …
                                   another environment than that of the run, as border-train takes
                                   it, with the same spaces
  render=human                     shows the episodes in a window, one at a time; needs a display
  video=FILE.mp4|.gif              films the episodes, with step and return under each frame; needs
                                   pip install "border-cli[video,render]", no display
  trust=true                       also imports modules from the directories that the run recorded,
                                   and from RUN_DIR itself; only for runs whose code you trust
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
SCALED = {  # where the environment or the settings know them
    "normalized_score": " normalized {normalized_score:.2f}",
    "human_normalized": " human-normalized {human_normalized:.1f}",
}
EXPORTED = "exported"  # the one model of an exported folder
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    chosen, rest = split_env(typed)
    (place,), values = read_pairs(rest, READERS)
    if "render" in values and "video" in values:
        raise ConfigError("video and render=human cannot be combined: give one of them")
    run_dir, checkpoint = located(place, values.pop("checkpoint", None))
    document, not_finite = _evaluate(run_dir, checkpoint, signals, chosen, **values)
    if "--json" in typed:
        say(json.dumps(document))
    else:
        _print_table(run_dir, document)
    if not_finite:
        raise RunFailed(f"the score is not finite: {not_finite}")


def _window(key: str, value: str) -> str:
    """Raises ConfigError where no window can open: glfw aborts the process there, and pygame draws
    to nothing. A video driver that the user has chosen for pygame is taken as it is."""
    if value != "human":
        raise ConfigError(f"{key} must be human, got {value!r}")
    if sys.platform == "linux" and not any(map(os.environ.get, DISPLAYS)):
        raise ConfigError(
            "render=human needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set. Set "
            "DISPLAY (over ssh: ssh -X), or run the command under xvfb-run, which provides a "
            "virtual one. video=FILE.mp4 films the episodes without a display"
        )
    return value


READERS: Mapping[str, Reader] = {
    "checkpoint": text,
    "episodes": whole(1),
    "seed": whole(0),
    "render": _window,
    "video": lambda _, value: expanded(value),
    "trust": truth,
}


def _evaluate(
    run_dir: Path,
    checkpoint: str | None,
    signals: EarlySignals,
    chosen: Sequence[str],
    *,
    episodes: int | None = None,
    seed: int | None = None,
    render: str | None = None,
    video: Path | None = None,
    trust: bool = False,
) -> tuple[dict[str, Any], str | None]:
    """The object that `--json` prints: figures, the model that played, and its episodes. Beside it
    the first episode whose return is not finite.

    `chosen`: overrides of the environment.
    """
    # imported late: torch, which --help and most refusals do not need
    from border_cli.api import load_agent
    from border_cli.config.saved import opened_run
    from border_cli.evaluator.film import refuse_no_film
    from border_cli.launch.build import evaluation_policy
    from border_cli.playing.evaluate import play
    from border_cli.run.finding import find_checkpoint
    from border_cli.run.manifest import read_json

    if video is not None:
        refuse_no_film(video)
    with opened_run(run_dir, trust=trust):
        if is_exported(run_dir):
            checkpoint = EXPORTED
        checkpoint = checkpoint or best_or_latest("border-eval", run_dir)
        config = settings_in_env(run_dir, chosen, trust=trust) if chosen else None
        effective, agent, counters = load_agent(run_dir, checkpoint, config=config, trust=trust)
        expect(effective.config.trainer.stall_timeout_s)
        rounds = 1
        if episodes is not None:
            effective = effective.with_episodes(episodes)
        elif checkpoint == "best":
            scored = read_json(find_checkpoint(run_dir, checkpoint) / "score.json")["returns"]
            rounds = max(1, len(scored) // effective.evaluator.num_episodes)  # above 1: confirmed
        policy = evaluation_policy(effective, agent)
        with signals.polled() as stop:
            evaluation = play(
                effective, policy, stop, seed=seed, rounds=rounds, render=render, video=video
            )
    confirming = (rounds - 1) * effective.evaluator.num_episodes
    changes = env_changes(run_dir, effective) if chosen else []
    document = {
        **figures_of(evaluation),
        "run_dir": str(run_dir.absolute()),
        "env": effective.evaluation_env.id,
        **({"env_changes": changes} if changes else {}),
        "checkpoint": checkpoint,
        "opt_steps": counters["opt_steps"],
        "seed": seed,
        **({"confirming": confirming} if confirming else {}),
        "returns": evaluation.returns,
        "lengths": evaluation.lengths,
        **({"info": dict(evaluation.info)} if evaluation.info else {}),
        **({"video": str(video)} if video else {}),
    }
    return document, evaluation.not_finite


def figures_of(evaluation: Evaluation) -> dict[str, float]:
    """The figures of the last line; the deviation is that of the population."""
    metrics = evaluation.metrics
    figures = {name: metrics[each] for name, each in RETURNS.items()}
    figures["episodes"] = len(evaluation.returns)
    for name in (*evaluation.info, *SCALED):
        if f"eval/{name}" in metrics:
            figures[name] = metrics[f"eval/{name}"]
    return figures


def _print_table(run_dir: Path, found: Mapping[str, Any]) -> None:
    from border_cli.recorder import terminal

    console = terminal.make_console()
    seed = "the run's evaluation seeds" if found["seed"] is None else f"seed {found['seed']}"
    model = f"{found['checkpoint']} at {counted(found['opt_steps'], 'update')}"
    terminal.say(console, f"{run_dir}   {model}   {seed}")
    info = found.get("info", {})
    if "confirming" in found:
        first = len(found["returns"]) - found["confirming"]
        confirmed = f"{found['confirming']} more that confirmed the score"
        terminal.say(console, f"{first} episodes and {confirmed} (trainer.stop_confirmations)")
    if "env_changes" in found:
        changed = "; ".join(found["env_changes"])
        terminal.say(console, f"in another environment ({changed}): not the recorded score")
    table = terminal.make_table("episode", "return", "length", *info)
    played = zip(found["returns"], found["lengths"], *info.values(), strict=True)
    for i, (score, length, *said) in enumerate(played):
        table.add_row(str(i), f"{score:,.2f}", f"{length:,}", *(f"{each:g}" for each in said))
    console.print(table)
    line = "mean {mean:.2f} std {std:.2f} min {min:g} max {max:g} episodes {episodes}"
    for name, form in SCALED.items():
        line += form if name in found else ""
    means = "".join(f" {name} {found[name]:.4g}" for name in info)
    terminal.say(console, line.format(**found) + means)
    if "video" in found:
        terminal.say(console, f"film {found['video']}")


main = partial(plain_command, "border-eval", HELP, _run)
command = monitored("border-eval")(main)  # the console script


if __name__ == "__main__":
    command()
