"""Kills the processes of a study of CartPole, to compare it with the same study undisturbed.

    python -m benchmarks.study_kills [--trials 30] [--kills 4] [--seed 0] [--storage URL]

Runs `border-tune` with three seeds and two processes, and kills (`kill -9`) the process of a run
and the whole command alternately, at random times. After each kill of the command, the same command
is started again. Reports how the trials ended, what the study cost in env steps, and the winner's
scores on fresh seeds. `--kills 0` is the undisturbed study.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from benchmarks.table import emit, make_parser, say
from border_cli.analysis.load import load_runs
from border_cli.tune.trials import rank_trials, read_trials
from border_cli.words import format_override

SEEDS, FULL = 3, 6_000
SETTINGS = (
    *("agent=dqn", "env=cartpole", "~tuned", f"seeds={SEEDS}", "jobs=2", "fresh_seeds=5"),
    *(f"trainer.max_env_steps={FULL}", "trainer.eval_interval_env_steps=250"),
    *("trainer.save_interval=500", "trainer.warmup_period=250", "agent.hidden=[64,64]"),
)


def start_command(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts the command, whose output is appended to the log."""
    code = "from border_cli.cli.tune import command; command()"
    with log.open("ab") as output:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def runs_of(command: subprocess.Popen[bytes], root: Path) -> list[int]:
    """Returns the ids of the command's running processes that hold the lock of a run."""
    descendants = {process.pid for process in psutil.Process(command.pid).children(recursive=True)}
    pids = []
    for lock in root.glob("*/seed-*/run.lock"):
        text = lock.read_text()
        if text and json.loads(text)["pid"] in descendants:
            pids.append(int(json.loads(text)["pid"]))
    return pids


def study(root: Path, arguments: list[str], kills: int, rng: random.Random) -> dict[str, Any]:
    """Runs the study to its end; returns its exit status and what was killed."""
    began_s, log, killed = time.monotonic(), root.with_suffix(".log"), []
    command = start_command(arguments, log)
    while True:
        wait_s = rng.uniform(10, 30) if len(killed) < kills else 3600
        try:
            command.wait(wait_s)
            break
        except subprocess.TimeoutExpired:
            runs = runs_of(command, root)
        if len(killed) % 2 == 0 and runs:
            psutil.Process(rng.choice(runs)).send_signal(signal.SIGKILL)
            killed.append("run")
        elif len(killed) % 2:
            command.send_signal(signal.SIGKILL)
            command.wait()
            killed.append("command")
            command = start_command(arguments, log)
        say(f"killed {killed[-1:]} after {time.monotonic() - began_s:.0f} s")
    return {
        "status": command.returncode,
        "killed": killed,
        "wall_s": round(time.monotonic() - began_s, 1),
    }


def main() -> None:
    """Prints one JSON object."""
    parser = make_parser(__doc__)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--storage")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="study")) / "study"
    arguments = [*SETTINGS, f"study={root}", f"trials={options.trials}"]
    arguments += [format_override("storage", options.storage)] if options.storage else []
    ended = study(root, arguments, options.kills, random.Random(options.seed))
    trials = read_trials(root)
    runs = load_runs(*root.glob("trial-*"))
    steps = sum(run.facts["env_steps"] for run in runs)
    fresh = [run.facts["final_score"] for run in load_runs(*root.glob("best/*"))]
    emit(
        "study_kills",
        "killed" if options.kills else "undisturbed",
        {
            **ended,
            "trials": dict(Counter(trial.status for trial in trials)),
            "runs": len(runs),
            "runs_done": sum(run.status == "done" for run in runs),
            "attempts": sum(len(run.facts["attempts"]) for run in runs),
            "cost": round(steps / (options.trials * SEEDS * FULL), 3),
            "winner": rank_trials(read_trials(root))[0].number,
            "fresh": fresh,
            "folder": str(root),
        },
    )


if __name__ == "__main__":
    main()
