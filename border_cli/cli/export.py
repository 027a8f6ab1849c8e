"""`border-export`: writes a saved model as a folder without pickles, for robots, services and
hubs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from border_cli.cli.eval import figures_of
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
from border_cli.errors import ConfigError, RunFailed, os_errors_as
from border_cli.messages import say
from border_cli.process.monitor import monitored, set_stall_timeout
from border_cli.process.signals import EarlySignals
from border_cli.system.files import settings_path
from border_cli.system.streams import prints_to_stderr

HELP = """\
border-export: writes a saved model as a folder that needs neither the run nor its environment.

  border-export RUN_DIR DIR [key=value …] [--json]
  border-export --verify DIR

  RUN_DIR                          a run directory of border-train, or one of its checkpoints:
                                   RUN_DIR/best, RUN_DIR/checkpoints/5000
  DIR                              the new folder: policy.npz (requires only numpy),
                                   policy.onnx, model.safetensors, policy.json, README.md (a model
                                   card), resolved.yaml and verification.npz
  checkpoint=best|latest|STEP      the model to export; default: best, or latest if there is no best
  episodes=N                       fresh episodes for the score in the model card; default: 20
  seed=N                           seed of these episodes; default: 1000000
  onnx=false                       leaves out policy.onnx
  film=true                        also films one more episode: film.mp4
  trust=true                       also imports modules from the directories that the run recorded,
                                   and does not check its environment; only for code that you trust
  --verify                         runs every format of an exported folder on its observations
  --json                           prints one JSON object instead of the lines
  --version, --help

The folder appears only after all formats agree with the policy of border-eval. The command requires
pip install "border-cli[export]"; acting with policy.npz requires only numpy.

Examples
  border-export outputs/dqn_cartpole/2026-01-31_12-00-00-123456 cartpole_policy
  border-eval cartpole_policy episodes=100
  border-train --from cartpole_policy init_from=cartpole_policy
"""
FRESH_SEED = 1_000_000  # far from the usual seeds of runs
VERIFY = "--verify"


READERS: Mapping[str, Reader] = {
    "checkpoint": read_text,
    "episodes": integer_reader(1),
    "seed": integer_reader(0),
    "onnx": read_bool,
    "film": read_bool,
    "trust": read_bool,
}


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    document: dict[str, Any]
    if VERIFY in typed:
        # imported late, as all below: torch, which --help and most refusals do not need
        from border_cli.export.verify import verify_export
        from border_cli.run.exported import open_export

        (folder,), _ = read_pairs(typed, {}, ["exported folder"], flags=("--json", VERIFY))
        document = {"verified": verify_export(open_export(folder))}
    else:
        (path, folder), values = read_pairs(typed, READERS, ["run directory", "new folder"])
        document = _export(path, folder, signals, **values)
    if "--json" in typed:
        say(json.dumps(document))
        return
    from border_cli.recorder import terminal

    document["verified"] = "\n".join(document["verified"])
    terminal.header(terminal.make_console(), [(name, str(document[name])) for name in document])


@prints_to_stderr()
def _export(
    run: Path,
    folder: Path,
    signals: EarlySignals,
    *,
    checkpoint: str | None = None,
    episodes: int = 20,
    seed: int = FRESH_SEED,
    onnx: bool = True,
    film: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """Writes the folder and returns the object that `--json` prints."""
    run_dir, checkpoint = locate_run(run, checkpoint)
    if folder.exists():
        raise ConfigError(f"{folder} already exists: name a new folder")
    from border_cli.api import load_agent, read_config
    from border_cli.config.saved import run_import_path
    from border_cli.export.write import form_of, in_float32, refuse_missing, write
    from border_cli.launch.build import evaluation_policy
    from border_cli.run.status import read_run

    with run_import_path(run_dir, trust=trust):
        checkpoint = checkpoint or best_or_latest("border-export", run_dir)
        config = in_float32(read_config(run_dir, trust=trust))
        loaded: Any = load_agent(run_dir, checkpoint, config=config)
        effective, agent, counters = loaded
        set_stall_timeout(effective.config.trainer.stall_timeout_s)
        policy: Any = evaluation_policy(effective, agent)
        form = form_of(agent, policy, effective.config.agent.option or type(agent).__name__)
        refuse_missing(onnx=onnx, film=film)
        facts = read_run(run_dir)
        about = {
            "command": f"`{shlex.join(facts.get('command', ()))}`",
            **{name: facts.get(name) for name in ("started", "git", "versions")},
            **counters,
            "checkpoint": checkpoint,
            "seed of the episodes": seed,
        }
        with signals.polled() as stop, os_errors_as(RunFailed):
            evaluation, lines = write(
                folder,
                effective.with_episodes(episodes),
                agent,
                policy,
                form,
                stop,
                settings=settings_path(run_dir),
                seed=seed,
                onnx=onnx,
                film=film,
                about=about,
            )
    return {
        "dir": str(folder),
        "run_dir": str(run_dir.absolute()),
        "checkpoint": checkpoint,
        "seed": seed,
        **figures_of(evaluation),
        "verified": lines,
    }


main = partial(plain_command, "border-export", HELP, _run)
command = monitored("border-export")(main)  # entry point of the console script


if __name__ == "__main__":
    command()
