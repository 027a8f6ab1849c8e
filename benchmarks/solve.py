"""Seconds from Enter to CartPole solved, compared with Stable-Baselines3.

    python -m benchmarks.solve [OVERRIDE …] [--repetitions 5] [--rows border_train sb3_ppo …]

`border_train` is `border-train agent=dqn env=cartpole seed=N` with its defaults, timed from start
to exit: interpreter, imports, evaluations, checkpoints, the final checkpoint. It stops once an
evaluation of 20 episodes reaches 500 and further episodes confirm it. `border-eval` then evaluates
its best model in 100 fresh episodes; a run below the threshold counts as not solved, whatever its
own evaluations were. Overrides are passed on, for example `agent=ppo` or `trainer=sync`.

`sb3_dqn` and `sb3_ppo` use the RL Zoo's settings for CartPole and are timed from process start
until the mean of 20 parallel greedy episodes first reaches the threshold; they are evaluated after
every round of acting and learning, 256 env steps. Saving, a final evaluation and the end of the
process are not counted, which is in their favor. `wall_s` includes their evaluations, as for ours;
`without_judging_s` excludes them.

`import_torch` is `python -c "import torch"`, timed from start to exit.

Repetition N uses seed `--first-seed` + N. `…_over_ours` divides medians, because seeds of different
programs are not paired.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.isolated import since_enter
from benchmarks.machine import installed
from benchmarks.table import Reading, Readings, column, emit, make_parser, say, summary, take_turns

EPISODES = 20
JUDGED = 100  # episodes that judge our best model
FRESH = 1_000_000  # added to seeds for fresh episodes; runs use much smaller seeds
COMMANDS = Path(sys.executable).parent
OURS = "border_train"
TORCH = "import_torch"
PEERS = {"sb3_dqn": "dqn", "sb3_ppo": "ppo"}

ROWS = [OURS, TORCH, *PEERS]


def agent_of(overrides: list[str]) -> list[str]:
    """Returns the override for the default agent, or [] if the overrides choose an agent."""
    return [] if any(override.startswith("agent=") for override in overrides) else ["agent=dqn"]


def border_train(env: str, overrides: list[str], seed: int) -> Reading:
    """Trains and judges one seed. Raises CalledProcessError if a command fails."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        typed = [*agent_of(overrides), f"env={env}", f"seed={seed}", f"run_dir={run_dir}"]
        typed += overrides
        began_s, cpu_began_s = time.monotonic(), _children_cpu_s()
        _run("border-train", typed)
        wall_s, cpu_s = time.monotonic() - began_s, _children_cpu_s() - cpu_began_s
        judge = [str(run_dir), f"seed={FRESH + seed}", f"episodes={JUDGED}", "--json"]
        score = json.loads(_run("border-eval", judge))["mean"]
        run = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    return {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "score": score,
        "updates": run["opt_steps"],
        "samples": run["env_steps"],
    }


def peer(algorithm: str, threshold: float, seed: int) -> Reading:
    """Measures one seed of Stable-Baselines3."""
    cpu_began_s = _children_cpu_s()
    answer = since_enter(
        "benchmarks.stable_baselines:solve",
        algorithm=algorithm,
        seed=seed,
        threshold=threshold,
        episodes=EPISODES,
    )
    return {
        "wall_s": answer["seen_s"],
        "without_judging_s": answer["seen_s"] - answer["judging_s"],
        "cpu_s": _children_cpu_s() - cpu_began_s,
        "score": answer["score"],
        "samples": answer["samples"],
    }


def import_torch(seed: int) -> Reading:
    """Times an interpreter that imports torch and exits."""
    del seed
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return {"wall_s": time.monotonic() - began_s}


def _children_cpu_s() -> float:
    """Returns the CPU time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run(command: str, arguments: list[str]) -> str:
    process = subprocess.run(
        [COMMANDS / command, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return process.stdout


def _seeded(run: Callable[[int], Reading], first: int, repetition: int) -> Reading:
    return run(first + repetition)


def line(name: str, readings: Readings, threshold: float) -> dict[str, Any]:
    """Returns one row of the table."""
    runs = readings[name]
    if name == TORCH:
        return summary(runs)
    content: dict[str, Any] = {
        "threshold": threshold,
        "solved": f"{sum(run['score'] >= threshold for run in runs)} of {len(runs)}",
        "worst_score": min(run["score"] for run in runs),
        "seeds_wall_s": [round(run["wall_s"], 2) for run in runs],
    }
    if name == OURS:
        mine_s = median(column(runs, "wall_s"))
        if TORCH in readings:
            times = mine_s / median(column(readings[TORCH], "wall_s"))
            content["wall_s_to_import_torch"] = round(times, 2)
        for other in PEERS.keys() & readings.keys():
            for duration in ("wall_s", "without_judging_s"):
                times = median(column(readings[other], duration)) / mine_s
                content[f"{other}_{duration}_over_ours"] = round(times, 2)
    return content | summary(runs)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "overrides", nargs="*", help="settings for border-train, such as trainer=sync"
    )
    parser.add_argument("--env", default="cartpole", help="env preset (default: cartpole)")
    parser.add_argument(
        "--threshold",
        type=float,
        default=475.0,
        help="mean return that counts as solved (default: 475)",
    )
    parser.add_argument(
        "--first-seed", type=int, default=0, help="seed of the first repetition (default: 0)"
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    arguments = parser.parse_args()
    contenders: dict[str, Callable[[int], Reading]] = {}
    for name in arguments.rows:
        if name == OURS:
            contenders[name] = partial(border_train, arguments.env, arguments.overrides)
        elif name == TORCH:
            contenders[name] = import_torch
        elif arguments.env != "cartpole":
            say(f"skipped: {name} (has settings for cartpole only)")
        elif not installed("stable-baselines3"):
            say(f'skipped: {name} (needs pip install "border-cli[bench]")')
        else:
            contenders[name] = partial(peer, PEERS[name], arguments.threshold)
    first = arguments.first_seed
    seeded = {name: partial(_seeded, run, first) for name, run in contenders.items()}
    readings = take_turns(seeded, arguments.repetitions)
    for name in readings:
        words = [*agent_of(arguments.overrides), f"env={arguments.env}", *arguments.overrides]
        command = f"border-train {' '.join(words)}"
        content = {"command": command} if name == OURS else {}
        emit("solve", name, content | line(name, readings, arguments.threshold))


if __name__ == "__main__":
    main()
