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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from border_cli.errors import ConfigError
from border_cli.launch.monitor import expect, monitored
from border_cli.launch.signals import EarlySignals
from border_cli.system.files import expanded
from border_cli.words import counted

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
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments, checked."""

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
    document = _evaluate(request, signals)
    if request.as_json:
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        _print_table(request, document)


def read_request(typed: Sequence[str]) -> Request:
    """Reads the arguments in any order; raises ConfigError naming what is not understood."""
    place, values = read_pairs(typed, READERS)
    if "render" in values and "video" in values:
        raise ConfigError("video and render=human cannot be combined: give one of them")
    run_dir, checkpoint = located(place, values.pop("checkpoint", None))
    return Request(run_dir=run_dir, checkpoint=checkpoint, as_json="--json" in typed, **values)


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


def _evaluate(request: Request, signals: EarlySignals) -> dict[str, Any]:
    """The object that `--json` prints: figures, the model that played, and its episodes."""
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
    info = {name: list(values) for name, values in evaluation.info.items()}
    return {
        **figures_of(evaluation),
        "run_dir": str(request.run_dir.absolute()),
        "env": effective.evaluation_env.id,
        "checkpoint": checkpoint,
        "opt_steps": agent.opt_steps,
        "seed": request.seed,
        "returns": list(evaluation.returns),
        "lengths": list(evaluation.lengths),
        **({"info": info} if info else {}),
        **({"video": str(request.video)} if request.video else {}),
    }


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


def _print_table(request: Request, found: Mapping[str, Any]) -> None:
    from border_cli.recorder import terminal

    console = terminal.make_console()
    seed = "the run's evaluation seeds" if request.seed is None else f"seed {request.seed}"
    model = f"{found['checkpoint']} at {counted(found['opt_steps'], 'update')}"
    terminal.say(console, f"{request.run_dir}   {model}   {seed}")
    info = found.get("info", {})
    table = terminal.make_table("episode", "return", "length", *info)
    played = zip(found["returns"], found["lengths"], *info.values(), strict=True)
    for i, (score, length, *said) in enumerate(played):
        table.add_row(str(i), f"{score:,.2f}", f"{length:,}", *(f"{each:g}" for each in said))
    console.print(table)
    line = "mean {mean:.2f} std {std:.2f} min {min:g} max {max:g} episodes {episodes}"
    if "normalized_score" in found:
        line += " normalized {normalized_score:.2f}"
    if "human_normalized" in found:
        line += " human-normalized {human_normalized:.1f}"
    means = "".join(f" {name} {found[name]:.4g}" for name in info)
    terminal.say(console, line.format(**found) + means)
    if request.video is not None:
        terminal.say(console, f"film {request.video}")


if __name__ == "__main__":
    command()
