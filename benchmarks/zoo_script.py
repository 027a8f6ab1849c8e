"""Runs the RL Zoo's script with the search space of `zoo_search`; saves each trial's last model.

    python -m benchmarks.zoo_script --algo dqn --env Acrobot-v1 -optimize …

All arguments are the Zoo's. Two parts of the script are replaced: the sampling of a trial's values,
and the evaluation callback, which saves only the best model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from optuna import Trial
from rl_zoo3 import exp_manager
from rl_zoo3.callbacks import TrialEvalCallback
from rl_zoo3.hyperparams_opt import HYPERPARAMS_SAMPLER
from rl_zoo3.train import train
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from benchmarks.table import Reading
from benchmarks.zoo_search import LAST

ENV_ID = "Acrobot-v1"
EPISODES, ENVS = 100, 20
FIRST_FRESH_SEED = 1_000


def ask(trial: Trial, *_: Any) -> dict[str, Any]:
    """Samples the values of a trial; returns them as arguments of `DQN`."""
    trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True)
    trial.suggest_float("one_minus_gamma", 1e-3, 0.1, log=True)
    trial.suggest_int("batch_size_pow", 4, 8)
    trial.suggest_float("tau", 1e-3, 0.1, log=True)
    trial.suggest_categorical("train_freq", [1, 2, 4, 8])
    trial.suggest_float("exploration_fraction", 0.02, 0.5, log=True)
    trial.suggest_float("exploration_final_eps", 0.01, 0.2, log=True)
    trial.suggest_categorical("n_steps", [1, 3, 5])
    trial.suggest_categorical("width", [64, 128, 256])
    return arguments(trial.params)


def arguments(params: dict[str, Any]) -> dict[str, Any]:
    """Converts a trial's values to arguments of `DQN`; each update moves the target network."""
    values = dict(params)
    return {
        "gamma": 1 - values.pop("one_minus_gamma"),
        "batch_size": 2 ** values.pop("batch_size_pow"),
        "policy_kwargs": {"net_arch": [values.pop("width")] * 2},
        "gradient_steps": 1,
        "target_update_interval": values["train_freq"],  # env steps
        "learning_starts": 1_000,
        "buffer_size": 50_000,
        **values,
    }


class Evaluations(TrialEvalCallback):
    """The Zoo's evaluation callback; also saves a trial's last model and number of env steps."""

    def _on_training_end(self) -> None:
        self.trial.set_user_attr("env_steps", self.num_timesteps)
        self.model.save(Path(self.best_model_save_path) / LAST)


def judge(model: str, seed: int) -> Reading:
    """Returns the mean return of a saved model over fresh episodes."""
    return {"score": _score(DQN.load(model, device="cpu"), seed)}


def retrain(params: dict[str, Any], env_steps: int, seed: int) -> Reading:
    """Trains with a fresh seed; returns the last model's mean return over fresh episodes."""
    torch.set_num_threads(1)
    seed += FIRST_FRESH_SEED
    model = DQN("MlpPolicy", ENV_ID, seed=seed, device="cpu", **arguments(params))
    return {"score": _score(model.learn(env_steps), seed)}


def _score(model: DQN, seed: int) -> float:
    envs = make_vec_env(ENV_ID, n_envs=ENVS, seed=1_000_000 + 1_000 * seed)
    return float(evaluate_policy(model, envs, n_eval_episodes=EPISODES)[0])


def main() -> None:
    HYPERPARAMS_SAMPLER["dqn"] = ask
    exp_manager.TrialEvalCallback = Evaluations
    train()


if __name__ == "__main__":
    main()
