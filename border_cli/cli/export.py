"""`border-export`: a saved model as a folder without pickles, for robots, services and hubs.

What --help and most refusals do not need (torch, rich) is imported by the functions that export.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from border_cli.cli.plain_command import (
    Reader,
    best_or_latest,
    located,
    plain_command,
    read_places,
    text,
    truth,
    whole,
)
from border_cli.errors import ConfigError, RunFailed
from border_cli.launch.monitor import expect, monitored
from border_cli.launch.signals import EarlySignals
from border_cli.system.files import is_exported

HELP = """\
border-export: writes a saved model as a folder that needs neither the run nor its environment.

  border-export RUN_DIR DIR [key=value …] [--json]
  border-export --verify DIR

  RUN_DIR                          a run directory of border-train, or one of its checkpoints:
                                   RUN_DIR/best, RUN_DIR/checkpoints/5000
  DIR                              the new folder: policy.npz (numpy alone acts with it),
                                   policy.onnx, model.safetensors, policy.json, README.md (a model
                                   card), resolved.yaml and verification.npz
  checkpoint=best|latest|STEP      the model; default: best, or latest if there is no best one yet
  episodes=N                       fresh episodes for the score in the model card; default: 20
  seed=N                           their seed; default: 1000000
  onnx=false                       leaves out policy.onnx
  film=true                        also films one more episode: film.mp4
  trust=true                       also imports modules from the directories that the run recorded,
                                   and from RUN_DIR itself; only for runs whose code you trust
  --verify                         runs every format of an exported folder on its observations
  --json                           prints one JSON object instead of the lines
  --version, --help

All formats are compared with the policy of border-eval before the folder appears. Needs
pip install "border-cli[export]"; what acts with policy.npz needs numpy alone.

Examples
  border-export outputs/dqn_cartpole/2026-01-31_12-00-00-123456 cartpole_policy
  border-eval cartpole_policy episodes=100
  border-train --from cartpole_policy init_from=cartpole_policy
"""
FRESH_SEED = 1_000_000  # far from those of runs
VERIFY = "--verify"


def command() -> None:
    """The console script: `main` under its monitor."""
    with monitored("border-export"):
        main()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; see `plain_command`."""
    plain_command("border-export", HELP, _run, argv, interrupted="interrupted; nothing was written")


READERS: Mapping[str, Reader] = {
    "checkpoint": text,
    "episodes": whole(1),
    "seed": whole(0),
    "onnx": truth,
    "film": truth,
    "trust": truth,
}


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    verify = VERIFY in typed
    wanted = ["exported folder"] if verify else ["run directory", "new folder"]
    places, values = read_places(typed, READERS, wanted, flags=("--json", VERIFY))
    found: dict[str, Any]
    if verify:
        if values:
            raise ConfigError(f"{VERIFY} takes no {', '.join(values)}")
        found = {"dir": str(places[0]), "verified": _verified(places[0])}
    else:
        found = _export(places, signals, **values)
    if "--json" in typed:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    from border_cli.recorder import terminal

    lines = [("verified", "\n".join(found["verified"]))]
    if not verify:
        place = shlex.quote(found["dir"])
        lines += [
            ("mean return", f"{found['mean']:.2f} ± {found['std']:.2f} ({found['episodes']} fresh "
             f"episodes, seed {found['seed']})"),
            ("written", found["dir"]),
            ("next", f"border-eval {place} episodes=100\nborder-export {VERIFY} {place}"),
        ]  # fmt: skip
    terminal.header(terminal.make_console(), lines)


def _verified(place: Path) -> list[str]:
    from border_cli.export.verify import verified
    from border_cli.run.exported import opened_folder

    if not is_exported(place):
        raise ConfigError(f"{place} is not an exported folder: it has no policy.json")
    return verified(opened_folder(place))


def _export(
    places: Sequence[Path],
    signals: EarlySignals,
    *,
    checkpoint: str | None = None,
    episodes: int = 20,
    seed: int = FRESH_SEED,
    onnx: bool = True,
    film: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """The object that `--json` prints."""
    run_dir, checkpoint = located(places[0], checkpoint)
    place = places[1].absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ConfigError(f"{places[1]} is not empty: name a new folder")
    from border_cli.api import load_agent, opened, read_config
    from border_cli.evaluator.film import refuse_no_film
    from border_cli.export.write import Export, form_of, in_float32
    from border_cli.launch.build import evaluation_policy
    from border_cli.run.status import read_run

    if film:
        refuse_no_film(Path("film.mp4"))
    with opened(run_dir, trust=trust):
        checkpoint = checkpoint or best_or_latest("border-export", run_dir)
        config = in_float32(read_config(run_dir, trust=trust))
        effective, agent, counters = load_agent(run_dir, checkpoint, config=config)
        expect(effective.config.trainer.stall_timeout_s)
        effective = effective.with_episodes(episodes)
        policy: Any = evaluation_policy(effective, agent)
        learned: Any = agent
        name = effective.config.agent.option or type(agent).__name__
        form = form_of(agent, policy, name, int(counters["opt_steps"]))
        export = Export(
            run_dir=run_dir,
            effective=effective,
            agent=learned,  # both as `form_of` takes them
            policy=policy,
            form=form,
            onnx=onnx,
            film=film,
        )
        export.refuse_missing()
        about = _about(read_run(run_dir), counters, checkpoint)
        try:
            with signals.polled() as stop:
                exported = export.write(place, stop, seed=seed, about=about)
        except OSError as error:
            raise RunFailed(f"{place} could not be written: {error}") from error
    metrics = exported.evaluation.metrics
    return {
        "dir": str(places[1]),
        "run_dir": str(run_dir.absolute()),
        "checkpoint": checkpoint,
        "mean": metrics["eval/return"],
        "std": metrics["eval/return_std"],
        "episodes": episodes,
        "seed": seed,
        "verified": exported.lines,
    }


def _about(
    facts: Mapping[str, Any], counters: Mapping[str, Any], checkpoint: str
) -> dict[str, Any]:
    """How the model came about, for its card."""
    git, versions = facts.get("git") or {}, facts.get("versions") or {}
    known = {
        "command": f"`{shlex.join(facts.get('command') or [])}`",
        "checkpoint": checkpoint,
        "updates": counters.get("opt_steps"),
        "env steps": counters.get("env_steps"),
        "started": facts.get("started"),
        "git commit": git.get("commit"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return {name: value for name, value in known.items() if value}


if __name__ == "__main__":
    command()
