"""`border-eval`: plays the episodes of a saved model, also while its run is still running.

What --help and most refusals do not need (torch, rich) is imported by the functions that play and
print.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.cli.plain_command import (
    best_or_latest,
    located,
    plain_command,
    read_pairs,
    truth,
    whole_number,
)
from border_cli.core.errors import ConfigError
from border_cli.core.files import expanded
from border_cli.core.words import counted
from border_cli.launch.monitor import expect, monitored
from border_cli.launch.signals import EarlySignals

if TYPE_CHECKING:
    from border_cli.core.interfaces import Evaluation

HELP = """\
border-eval: evaluates a saved model of a run.

  border-eval RUN_DIR [key=value …] [--json]

  RUN_DIR                          a run directory of border-train, or one of its checkpoints:
                                   RUN_DIR/best, RUN_DIR/checkpoints/5000
  checkpoint=best|latest|STEP      the model to evaluate; default: best, or latest if there is no
                                   best model yet
  episodes=N                       number of episodes; default: evaluator.num_episodes of the run
  seed=N                           plays fresh episodes; default: the episodes of the run's own
                                   evaluations, which reproduce its recorded best score
  render=human                     shows the episodes in a window, one at a time; needs a display
  video=FILE.mp4|.gif|.png         films the episodes, with step and return under each frame; .png:
                                   a sheet of frames; needs pip install "border-cli[video]", and
                                   no display
  trust=true                       also imports modules from the directories that the run recorded,
                                   and from RUN_DIR itself; only for runs whose code you trust
  --json                           prints one JSON object instead of the table
  --version, --help

Examples
  border-eval outputs/dqn_cartpole/2026-01-31_12-00-00-123456
  border-eval RUN_DIR seed=123 episodes=100
  border-eval RUN_DIR checkpoint=latest --json
"""
KEYS = ("checkpoint", "episodes", "seed", "render", "video", "trust")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, checked."""

    run_dir: Path
    checkpoint: str | None = None
    episodes: int | None = None
    seed: int | None = None
    render: str | None = None
    video: Path | None = None
    trust: bool = False
    as_json: bool = False


def command() -> None:
    """The console script: `main` under its monitor."""
    with monitored("border-eval"):
        main()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; see `plain_command`."""
    plain_command("border-eval", HELP, _run, argv)


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    request = read_request(typed)
    run_dir, checkpoint = located(request.run_dir, request.checkpoint)
    request = replace(request, run_dir=run_dir, checkpoint=checkpoint)
    identity, evaluation = _evaluate(request, signals)
    if request.as_json:
        sys.stdout.write(json.dumps(_document(request, identity, evaluation)) + "\n")
    else:
        _print_table(request, identity, evaluation)


def read_request(typed: Sequence[str]) -> Request:
    """Reads the arguments in any order; raises ConfigError naming what is not understood."""
    run_dir, values = read_pairs(typed, KEYS)
    if values.get("render") not in (None, "human"):
        raise ConfigError(f"render must be human, got {values['render']!r}")
    if values.get("render") == "human":
        refuse_no_display(sys.platform, os.environ)
    video = expanded(values["video"]) if "video" in values else None
    if video is not None and values.get("render"):
        raise ConfigError("video and render=human cannot be combined: give one of them")
    return Request(
        run_dir=run_dir,
        checkpoint=values.get("checkpoint"),
        episodes=whole_number(values, "episodes", 1),
        seed=whole_number(values, "seed", 0),
        render=values.get("render"),
        video=video,
        trust=truth(values, "trust"),
        as_json="--json" in typed,
    )


def refuse_no_display(platform: str, environment: Mapping[str, str]) -> None:
    """Raises ConfigError where a window cannot open: glfw aborts the process there, and pygame
    draws to nothing. A video driver that the user has chosen for pygame is taken as it is."""
    chosen = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if not platform.startswith("linux") or any(environment.get(each) for each in chosen):
        return
    raise ConfigError(
        "render=human needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set. Set "
        "DISPLAY (over ssh: ssh -X), or run the command under xvfb-run, which provides a virtual "
        "one. video=FILE.mp4 films the episodes without a display"
    )


def _evaluate(request: Request, signals: EarlySignals) -> tuple[dict[str, Any], Evaluation]:
    """The model that played, as JSON names it, and its episodes."""
    from border_cli.api import load_agent, opened
    from border_cli.launch.build import evaluation_policy
    from border_cli.launch.play import play, refuse_no_film
    from border_cli.run.finding import episodes_of_best

    if request.video is not None:
        refuse_no_film(request.video)
    with opened(request.run_dir, trust=request.trust):
        checkpoint = request.checkpoint or best_or_latest("border-eval", request.run_dir)
        effective, agent, _ = load_agent(request.run_dir, checkpoint, trust=request.trust)
        expect(effective.config.trainer.stall_timeout_s)
        rounds = 1
        if request.episodes is not None:
            effective = effective.with_episodes(request.episodes)
        elif checkpoint == "best":
            played = episodes_of_best(request.run_dir) or 0
            rounds = max(1, played // effective.evaluator.num_episodes)  # more than 1: confirmed
        policy = evaluation_policy(effective, agent)
        with signals.polled() as stop:
            evaluation = play(
                effective,
                policy,
                stop,
                seed=request.seed,
                rounds=rounds,
                render=request.render,
                video=request.video,
            )
    identity = {
        "run_dir": str(request.run_dir.absolute()),
        "env": effective.evaluation_env.id,
        "checkpoint": checkpoint,
        "opt_steps": agent.opt_steps,
        "seed": request.seed,
    }
    return identity, evaluation


def figures_of(evaluation: Evaluation) -> dict[str, float]:
    """The figures of the last line; the deviation is that of the population."""
    mean, returns, metrics = evaluation.score, evaluation.returns, evaluation.metrics
    squares = sum((each - mean) ** 2 for each in returns)
    figures = {
        "mean": mean,
        "std": math.sqrt(squares / len(returns)),
        "min": min(returns),
        "max": max(returns),
        "episodes": len(returns),
    }
    for name in (*evaluation.info, "normalized_score", "human_normalized"):
        if f"eval/{name}" in metrics:
            figures[name] = metrics[f"eval/{name}"]
    return figures


def _document(request: Request, identity: dict[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    """The object that `--json` prints."""
    document = {
        **figures_of(evaluation),
        **identity,
        "returns": list(evaluation.returns),
        "lengths": list(evaluation.lengths),
    }
    if evaluation.info:
        document["info"] = {name: list(values) for name, values in evaluation.info.items()}
    if request.video is not None:
        document["video"] = str(request.video)
    return document


def _print_table(request: Request, identity: dict[str, Any], evaluation: Evaluation) -> None:
    from border_cli.recorder import terminal

    console = terminal.make_console()
    seed = "the run's evaluation seeds" if request.seed is None else f"seed {request.seed}"
    model = f"{identity['checkpoint']} at {counted(identity['opt_steps'], 'update')}"
    terminal.say(console, f"{request.run_dir}   {model}   {seed}")
    info = evaluation.info
    table = terminal.make_table("episode", "return", "length", *info)
    played = zip(evaluation.returns, evaluation.lengths, *info.values(), strict=True)
    for i, (score, length, *said) in enumerate(played):
        table.add_row(str(i), f"{score:,.2f}", f"{length:,}", *(f"{each:g}" for each in said))
    console.print(table)
    figures = figures_of(evaluation)
    normalized, human = figures.get("normalized_score"), figures.get("human_normalized")
    terminal.say(
        console,
        f"mean {figures['mean']:.2f} std {figures['std']:.2f} min {figures['min']:g} "
        f"max {figures['max']:g} episodes {figures['episodes']}"
        + (f" normalized {normalized:.2f}" if normalized is not None else "")
        + (f" human-normalized {human:.1f}" if human is not None else "")
        + "".join(f" {name} {figures[name]:.4g}" for name in info),
    )
    if request.video is not None:
        terminal.say(console, f"film {request.video}")


if __name__ == "__main__":
    command()
