"""The experiments that port entries of the RL Zoo and CleanRL have the settings of these entries.

An entry is written in the terms of its program and translated before it is compared with the
experiment. Sources: rl-baselines3-zoo 22e3ff2, Stable-Baselines3 e05d2db and CleanRL fe8d8a0. What
an entry does not set has the program's default; the other settings must have our defaults.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.ported_settings import differing

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "from_sb3.md"

Entry = dict[str, Any]
SB3: Entry = {
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "gamma": 0.99,
    "batch_size": 256,
    "tau": 0.005,
    "train_freq": 1,
    "gradient_steps": 1,
    "net_arch": [256, 256],
}
DQN: Entry = SB3 | {
    "learning_rate": 1e-4,
    "batch_size": 32,
    "tau": 1.0,
    "train_freq": 4,
    "target_update_interval": 10_000,
    "exploration_fraction": 0.1,
    "exploration_initial_eps": 1.0,
    "exploration_final_eps": 0.05,
    "max_grad_norm": 10.0,
    "loss": "huber",
    "net_arch": [64, 64],
}
SAC: Entry = SB3 | {"learning_rate": 3e-4}
TD3: Entry = SB3 | {
    "learning_rate": 1e-3,
    "policy_delay": 2,
    "target_policy_noise": 0.2,
    "target_noise_clip": 0.5,
    "net_arch": [400, 300],
}


def shared(entry: Entry) -> dict[str, Any]:
    """Returns the settings of all three algorithms; `gradient_steps=-1` means one per env step."""
    steps = entry["gradient_steps"]
    return {
        "actor_manager.num_actors": 1,
        "agent.batch_size": entry["batch_size"],
        "agent.gamma": entry["gamma"],
        "agent.hidden": entry["net_arch"],
        "agent.learning_rate": entry["learning_rate"],
        "agent.tau": entry["tau"],
        "replay_buffer.capacity": entry["buffer_size"],
        "step_processor.n_steps": 1,
        "trainer.max_env_steps": entry["n_timesteps"],
        "trainer.max_opt_steps": None,
        "trainer.warmup_period": entry["learning_starts"],
        "trainer.samples_per_opt_step": 1.0 if steps == -1 else entry["train_freq"] / steps,
    }


def dqn(entry: Entry) -> dict[str, Any]:
    """Returns the settings of DQN; the target is copied at most once per `train_freq` env steps."""
    settings = shared(entry)
    apart = max(entry["target_update_interval"], entry["train_freq"])
    return settings | {
        "agent.double": False,
        "agent.epsilon": {
            "initial": entry["exploration_initial_eps"],
            "final": entry["exploration_final_eps"],
            "kind": "linear",
            "steps": round(entry["exploration_fraction"] * entry["n_timesteps"]),
        },
        "agent.loss": entry["loss"],
        "agent.max_grad_norm": entry["max_grad_norm"],
        "agent.target_interval": round(apart / settings["trainer.samples_per_opt_step"]),
    }


def sac(entry: Entry) -> dict[str, Any]:
    """Returns the settings of SAC; "auto" is null here, and the entropy coefficient starts at 1."""
    auto = {"agent.ent_coef": None, "agent.ent_coef_init": 1.0, "agent.target_entropy": None}
    return shared(entry) | auto | {"agent.max_grad_norm": None, "agent.num_critics": 2}


def td3(entry: Entry) -> dict[str, Any]:
    return shared(entry) | {
        "agent.max_grad_norm": None,
        "agent.noise": "gaussian",
        "agent.noise_std": entry["noise_std"],
        "agent.num_critics": 2,
        "agent.policy_delay": entry["policy_delay"],
        "agent.target_noise": entry["target_policy_noise"],
        "agent.target_noise_clip": entry["target_noise_clip"],
    }


def evaluated(every: int, episodes: int) -> dict[str, Any]:
    return {"trainer.eval_interval_env_steps": every, "evaluator.num_episodes": episodes}


ZOO = evaluated(25_000, 5)  # --eval-freq, --eval-episodes
CLEANRL = evaluated(50_000, 10)  # --save-model evaluates 10 episodes at the end

ENTRIES: dict[str, dict[str, Any]] = {
    "dqn_cartpole_zoo": ZOO
    | {"env.id": "CartPole-v1"}
    | dqn(
        DQN
        | {
            "n_timesteps": 50_000,
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "net_arch": [256, 256],
        }
    ),
    "dqn_lunarlander_zoo": ZOO
    | {"env.id": "LunarLander-v3"}
    | dqn(
        DQN
        | {
            "n_timesteps": 100_000,
            "learning_rate": 6.3e-4,
            "batch_size": 128,
            "buffer_size": 50_000,
            "learning_starts": 0,
            "target_update_interval": 250,
            "train_freq": 4,
            "gradient_steps": -1,
            "exploration_fraction": 0.12,
            "exploration_final_eps": 0.1,
            "net_arch": [256, 256],
        }
    ),
    "sac_pendulum_zoo": ZOO
    | {"env.id": "Pendulum-v1"}
    | sac(SAC | {"n_timesteps": 20_000, "learning_rate": 1e-3}),
    "td3_pendulum_zoo": ZOO
    | {"env.id": "Pendulum-v1"}
    | td3(
        TD3
        | {
            "n_timesteps": 20_000,
            "gamma": 0.98,
            "buffer_size": 200_000,
            "learning_starts": 10_000,
            "noise_std": 0.1,
        }
    ),
    "dqn_cartpole_cleanrl": CLEANRL
    | {"env.id": "CartPole-v1"}
    | dqn(
        {
            "n_timesteps": 500_000,
            "learning_rate": 2.5e-4,
            "buffer_size": 10_000,
            "gamma": 0.99,
            "tau": 1.0,
            "target_update_interval": 500,
            "batch_size": 128,
            "exploration_initial_eps": 1.0,
            "exploration_final_eps": 0.05,
            "exploration_fraction": 0.5,
            "learning_starts": 10_000,
            "train_freq": 10,
            "gradient_steps": 1,
            "net_arch": [120, 84],
            "loss": "mse",
            "max_grad_norm": None,
        }
    ),
    "sac_hopper_cleanrl": CLEANRL
    | {"env.id": "Hopper-v4"}
    | sac(SAC | {"n_timesteps": 1_000_000, "learning_starts": 5_000})
    | {
        "agent.critic_learning_rate": 1e-3,  # q_lr
        "agent.ent_coef_learning_rate": 1e-3,  # q_lr as well
        "agent.policy_delay": 1,  # policy_frequency=2 makes two updates every second step
    },
    "td3_hopper_cleanrl": CLEANRL
    | {"env.id": "Hopper-v4"}
    | td3(
        TD3
        | {
            "n_timesteps": 1_000_000,
            "learning_rate": 3e-4,
            "learning_starts": 25_000,
            "noise_std": 0.1,
            "net_arch": [256, 256],
        }
    ),
}


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ENTRIES)
def test_an_experiment_has_all_settings_of_the_entry_that_it_ports(name: str) -> None:
    assert differing([f"experiment={name}"], "sync", ENTRIES[name]) == {}


def test_the_page_names_these_experiments_and_no_others() -> None:
    named = re.findall(r"`experiment=(\w+)", text())
    assert sorted(set(named)) == sorted(ENTRIES)


def test_the_overrides_of_the_page_take_away_what_is_not_of_stable_baselines3() -> None:
    block = re.search(r"border-train (agent=dqn env=cartpole '~tuned'.*?) …", text(), re.S)
    assert block
    theirs = {
        "env.id": "CartPole-v1",
        "actor_manager.num_actors": 1,
        "step_processor.n_steps": 1,
        "agent.double": False,
    }
    typed = shlex.split(block.group(1).replace("\\\n", ""))
    assert differing(typed, "sync", theirs) == {}
