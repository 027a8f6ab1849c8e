"""The RL Zoo's search for DQN on Acrobot: its best score so far, by seconds and by env steps.

    python -m benchmarks.zoo_search FOLDER [--trials 30] [--env-steps 50000] [--processes 2]

Needs `pip install "border-cli[bench]"`. The Zoo's script runs in processes that share a storage,
with its own sampler and pruner (TPE, median, ten trials before either), one run per trial and no
seed, since it gives none. Its objective is the last evaluation. The space, and what it is here:

| Zoo | range | here |
| --- | --- | --- |
| `learning_rate` | 1e-5 to 1e-2, log | `agent.learning_rate` |
| `one_minus_gamma` | 1e-3 to 0.1, log | `agent.gamma` |
| `batch_size_pow` | 4 to 8 | `agent.batch_size`, 16 to 256 |
| `tau` | 1e-3 to 0.1, log | `agent.tau` |
| `train_freq` | 1, 2, 4, 8 | `trainer.samples_per_opt_step` |
| `exploration_fraction` | 0.02 to 0.5, log | `agent.epsilon.steps`, as a share of the budget |
| `exploration_final_eps` | 0.01 to 0.2, log | `agent.epsilon.final` |
| `n_steps` | 1, 3, 5 | `step_processor.n_steps` |
| `width` | 64, 128, 256 | `agent.hidden`, two layers |

Fixed in both: Huber loss, Adam, gradient norm clipped at 10, 1,000 random steps, a buffer of 50,000
transitions; here that takes `~tuned agent.double=false replay_buffer.capacity=50_000
trainer.warmup_period=1_000`. Stable-Baselines3 acts and learns in turns on one thread.

The line has every trial, and the curve: where a trial had the best objective so far, the seconds
from the start of the first trial and the env steps of all trials (without evaluations) until it
ended, and `score`: the mean return of its last model over 100 fresh episodes. `fresh` are scores of
models trained with the winner's values and fresh seeds.
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
LAST = "last_model.zip"  # of a trial, beside the Zoo's best_model.zip


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
        with (folder / f"process_{number}.txt").open("w") as said:
            own = [*command, "--seed", str(number)]  # of the sampler: with one both would ask alike
            running.append(subprocess.Popen(own, stdout=said, stderr=subprocess.STDOUT))
    failed = [each.args for each in running if each.wait()]
    if failed:
        sys.exit(f"failed, see {folder}/process_*.txt: {failed}")


def trials_of(folder: Path) -> list[FrozenTrial]:
    """All trials, in the order in which they ended."""
    storage = JournalStorage(JournalFileBackend(f"{folder}/study.log"))
    trials = optuna.load_study(study_name=STUDY, storage=storage).get_trials(deepcopy=False)
    return sorted((each for each in trials if each.datetime_complete), key=_ended)


def described(trials: list[FrozenTrial]) -> list[dict[str, Any]]:
    """Every trial: when it ended, what it had cost and reported."""
    began = min(map(_started, trials))
    return [
        {
            "number": each.number,
            "state": each.state.name.lower(),
            "ended_s": round((_ended(each) - began).total_seconds(), 1),
            "env_steps": _env_steps(each),
            "objective": each.value,
            "params": each.params,
        }
        for each in trials
    ]


def curve(trials: list[FrozenTrial], folder: Path) -> list[dict[str, Any]]:
    """Every trial that had the best objective so far, and how good its last model is."""
    began, best, found = min(map(_started, trials)), float("-inf"), []
    for each in trials:
        if each.state != TrialState.COMPLETE or each.value <= best:
            continue
        best, end = each.value, _ended(each)
        model = str(folder / f"trial_{each.number}" / LAST)
        point = {
            "number": each.number,
            "since_s": round((end - began).total_seconds(), 1),
            "env_steps": round(sum(_env_steps(other) * _share(other, end) for other in trials)),
            "objective": best,
            **call("benchmarks.zoo_script:judge", model=model, seed=each.number),
        }
        found.append(point)
    return found


def fresh(params: dict[str, Any], arguments: argparse.Namespace) -> list[float]:
    """Scores of models trained with these values and fresh seeds."""

    def _retrain(seed: int) -> float:
        values = {"params": params, "env_steps": arguments.env_steps, "seed": seed}
        return float(call("benchmarks.zoo_script:retrain", **values)["score"])

    with ThreadPoolExecutor(arguments.processes) as pool:
        return list(pool.map(_retrain, range(arguments.fresh_seeds)))


def _share(trial: FrozenTrial, moment: datetime) -> float:
    """How much of a trial was done at a moment, as if it ran at one speed."""
    done = (moment - _started(trial)) / (_ended(trial) - _started(trial))
    return min(1.0, max(0.0, done))


def _env_steps(trial: FrozenTrial) -> int:
    return int(trial.user_attrs.get("env_steps", 0))  # 0: ended by an error


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
    parser.add_argument("folder", type=Path, help="an empty one, or a new one")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--env-steps", type=int, default=50_000, help="of each trial")
    parser.add_argument("--evaluations", type=int, default=10, help="of each trial")
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
        "trials": described(trials),
        "curve": curve(trials, folder),
    }
    say(f"{len(trials)} trials have ended; the winner is trained again")
    winner = max(trials, key=lambda each: (each.state == TrialState.COMPLETE, each.value or 0.0))
    emit("zoo_search", "dqn_acrobot", {**line, "fresh": fresh(winner.params, arguments)})


if __name__ == "__main__":
    main()
