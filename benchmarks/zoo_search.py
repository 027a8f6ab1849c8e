"""The RL Zoo's search for DQN on Acrobot: the best score over seconds and over env steps.

    python -m benchmarks.zoo_search FOLDER [--trials 30] [--env-steps 50000] [--processes 2]

Needs `pip install "border-cli[bench]"`. The Zoo's script runs in several processes that share a
storage, with its own sampler and pruner (TPE and median, both after ten trials), one run per trial
and no seed, because it sets none. Its objective is the last evaluation. The search space, in the
Zoo's names and in ours:

| Zoo | range | border_cli |
| --- | --- | --- |
| `learning_rate` | 1e-5 to 1e-2, log | `agent.learning_rate` |
| `one_minus_gamma` | 1e-3 to 0.1, log | `agent.gamma` |
| `batch_size_pow` | 4 to 8 | `agent.batch_size`, 16 to 256 |
| `tau` | 1e-3 to 0.1, log | `agent.tau` |
| `train_freq` | 1, 2, 4, 8 | `trainer.samples_per_opt_step` |
| `exploration_fraction` | 0.02 to 0.5, log | `agent.epsilon.steps`, as a fraction of the budget |
| `exploration_final_eps` | 0.01 to 0.2, log | `agent.epsilon.final` |
| `n_steps` | 1, 3, 5 | `step_processor.n_steps` |
| `width` | 64, 128, 256 | `agent.hidden`, two layers |

Fixed in both: Huber loss, Adam, gradient norm clipped at 10, 1,000 random steps, a buffer of 50,000
transitions; border_cli needs `~tuned agent.double=false replay_buffer.capacity=50_000
trainer.warmup_period=1_000` for this. Stable-Baselines3 alternates acting and learning on one
thread.

The output contains every trial and a curve. The curve has a point for each trial with the best
objective so far: the seconds from the start of the first trial until it ended, the env steps of all
trials until then (without evaluations), and `score`, the mean return of its last model over 100
fresh episodes. `fresh` contains scores of models trained with the winner's values and fresh seeds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from benchmarks.isolated import call
from benchmarks.machine import Others
from benchmarks.table import emit, say

STUDY = "zoo"
LAST = "last_model.zip"  # last model of a trial, next to the Zoo's best_model.zip


def search(folder: Path, arguments: argparse.Namespace) -> None:
    """Runs the Zoo's script in several processes until the study has all its trials."""
    command = [
        *(sys.executable, "-m", "benchmarks.zoo_script", "--algo", "dqn", "--env", "Acrobot-v1"),
        *("-optimize", "--sampler", "tpe", "--pruner", "median", "--study-name", STUDY),
        *("--storage", f"{folder}/study.log", "--max-total-trials", str(arguments.trials)),
        *("--n-timesteps", str(arguments.env_steps), "--n-evaluations", str(arguments.evaluations)),
        *("--eval-episodes", str(arguments.eval_episodes), "--optimization-log-path", str(folder)),
        *("--log-folder", f"{folder}/logs", "--uuid", "--no-optim-plots"),
        *("--num-threads", "1", "--device", "cpu"),
    ]
    running = []
    for number in range(arguments.processes):
        with (folder / f"process_{number}.txt").open("w") as log:
            seeded = [*command, "--seed", str(number)]  # else all sample the same values
            running.append(subprocess.Popen(seeded, stdout=log, stderr=subprocess.STDOUT))
    failed = [process.args for process in running if process.wait()]
    if failed:
        sys.exit(f"failed, see {folder}/process_*.txt: {failed}")


def trials_of(folder: Path) -> list[FrozenTrial]:
    """Returns all trials in the order in which they ended."""
    storage = JournalStorage(JournalFileBackend(f"{folder}/study.log"))
    trials = optuna.load_study(study_name=STUDY, storage=storage).get_trials(deepcopy=False)
    return sorted((trial for trial in trials if trial.datetime_complete), key=_ended)


def describe_trials(trials: list[FrozenTrial]) -> list[dict[str, Any]]:
    """Describes every trial: when it ended, its cost and its objective."""
    began = min(map(_started, trials))
    return [
        {
            "number": trial.number,
            "state": trial.state.name.lower(),
            "ended_s": round((_ended(trial) - began).total_seconds(), 1),
            "env_steps": _env_steps(trial),
            "objective": trial.value,
            "params": trial.params,
        }
        for trial in trials
    ]


def curve(trials: list[FrozenTrial], folder: Path) -> list[dict[str, Any]]:
    """Returns each trial with the best objective so far, and the score of its last model."""
    began, best, points = min(map(_started, trials)), float("-inf"), []
    for trial in trials:
        if trial.state != TrialState.COMPLETE or trial.value <= best:
            continue
        best, end = trial.value, _ended(trial)
        model = str(folder / f"trial_{trial.number}" / LAST)
        point = {
            "number": trial.number,
            "since_s": round((end - began).total_seconds(), 1),
            "env_steps": round(sum(_env_steps(other) * _share(other, end) for other in trials)),
            "objective": best,
            **call("benchmarks.zoo_script:judge", model=model, seed=trial.number),
        }
        points.append(point)
    return points


def fresh(params: dict[str, Any], arguments: argparse.Namespace) -> list[float]:
    """Returns the scores of models trained with these values and fresh seeds."""

    def _retrain(seed: int) -> float:
        values = {"params": params, "env_steps": arguments.env_steps, "seed": seed}
        return float(call("benchmarks.zoo_script:retrain", **values)["score"])

    with ThreadPoolExecutor(arguments.processes) as pool:
        return list(pool.map(_retrain, range(arguments.fresh_seeds)))


def _share(trial: FrozenTrial, moment: datetime) -> float:
    """Returns the fraction of a trial that was done at a time, assuming a constant speed."""
    done = (moment - _started(trial)) / (_ended(trial) - _started(trial))
    return min(1.0, max(0.0, done))


def _env_steps(trial: FrozenTrial) -> int:
    return int(trial.user_attrs.get("env_steps", 0))  # 0 if an error ended it


def _started(trial: FrozenTrial) -> datetime:
    assert trial.datetime_start is not None
    return trial.datetime_start


def _ended(trial: FrozenTrial) -> datetime:
    assert trial.datetime_complete is not None
    return trial.datetime_complete


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="an empty or new folder")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--env-steps", type=int, default=50_000, help="env steps per trial")
    parser.add_argument("--evaluations", type=int, default=10, help="evaluations per trial")
    parser.add_argument("--eval-episodes", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fresh-seeds", type=int, default=5)
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty")
    began_s = time.perf_counter()
    with Others() as others:
        search(folder, arguments)
    wall_s = time.perf_counter() - began_s
    trials = trials_of(folder)
    line = {
        "budget": {name: value for name, value in vars(arguments).items() if name != "folder"},
        "wall_s": wall_s,
        "other_cores": others.cores,
        "trials": describe_trials(trials),
        "curve": curve(trials, folder),
    }
    say(f"{len(trials)} trials have ended; training the winner again")
    winner = max(trials, key=lambda trial: (trial.state == TrialState.COMPLETE, trial.value or 0.0))
    emit("zoo_search", "dqn_acrobot", {**line, "fresh": fresh(winner.params, arguments)})


if __name__ == "__main__":
    main()
