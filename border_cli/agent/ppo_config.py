"""Settings of proximal policy optimization (PPO). Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from border_cli.agent.learner_config import Augmentation, LearnerConfig
from border_cli.settings.base import setting
from border_cli.settings.networks import Activation
from border_cli.settings.schedule import ENV_STEPS, Scheduled


class OnPolicyExploration(StrEnum):
    """Exploration strategies of on-policy agents."""

    independent = "independent"
    gsde = "gsde"


@dataclass(kw_only=True)
class PpoConfig(LearnerConfig):
    """Proximal policy optimization (Schulman et al. 2017), with the defaults of Stable-Baselines3
    except for normalisation. conf/agent/a2c.yaml is a variant."""

    on_policy: ClassVar[bool] = True
    numpy_networks: ClassVar[bool] = True
    gives_priorities: ClassVar[bool] = False
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "MultiDiscrete", "Box")

    batch_size: int = setting(64, "transitions per minibatch", low=1, takes_memory=True)
    hidden: list[int] = setting([64, 64], "units per hidden layer", low=1, takes_memory=True)
    activation: Activation = setting(Activation.tanh, "activation function of the hidden layers")
    learning_rate: Scheduled = setting(
        3e-4,
        "learning rate; a schedule without steps spans the run and is updated between rollouts",
        low=0,
        counter=ENV_STEPS,
        may_change=True,
    )
    adam_epsilon: float = setting(1e-5, "Adam epsilon", above=0)
    normalize_obs: bool | None = setting(
        None,
        "standardises float observations with running statistics, which are saved with the "
        "model; null means true if there are floats and no built-in convolutions",
    )
    normalize_reward: bool = setting(
        True,
        "divides rewards by the standard deviation of the running discounted return, which is "
        "saved with the model",
    )
    max_grad_norm: float | None = setting(
        0.5, "clips the global gradient norm of all networks; null disables clipping", above=0
    )
    gae_lambda: float = setting(
        0.95,
        "lambda of generalised advantage estimation (Schulman et al. 2016); 0 uses one-step TD "
        "errors, 1 uses full returns",
        low=0,
        high=1,
    )
    clip_range: Scheduled = setting(
        0.2,
        "clip range of the probability ratio around 1; a schedule without steps spans the run",
        above=0,
        counter=ENV_STEPS,
    )
    value_clip_range: float | None = setting(
        None,
        "clip range of values around those of the rollout, in units of the (normalised) return; "
        "null disables clipping",
        above=0,
    )
    normalize_advantage: bool = setting(
        True, "normalises the advantages of each minibatch to mean 0 and standard deviation 1"
    )
    ent_coef: float = setting(0.0, "weight of the entropy bonus", low=0)
    value_coef: float = setting(0.5, "weight of the value loss", low=0)
    target_kl: float | None = setting(
        None,
        "skips the remaining updates of a rollout once the approximate KL divergence exceeds 1.5 "
        "times this value; null disables this",
        above=0,
    )
    share_network: bool | None = setting(
        None,
        "whether policy and value share one network; null means true for images and custom "
        "networks, and false otherwise",
    )
    orthogonal_init: bool = setting(
        True, "initialises weights orthogonally, with small ones in the policy's last layer"
    )
    exploration: OnPolicyExploration = setting(
        OnPolicyExploration.independent,
        "independent samples the actions of different steps independently. gsde, for a Box, adds a "
        "random linear function of the policy's last hidden layer: generalised state-dependent "
        "exploration (Raffin, Kober and Stulp 2021)",
    )
    sample_freq: int | None = setting(
        None,
        "steps between random functions of gsde; null samples one per rollout and environment",
        low=1,
    )
    log_std_init: float = setting(
        0.0,
        "initial log standard deviation of each action dimension of a Box, or with gsde of the "
        "weights of the random functions",
    )
    clip_reward: float = setting(
        10.0, "clips rewards normalised by normalize_reward to this absolute value", above=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augment != Augmentation.none:
            self.refuse("augment", str(self.augment), "must be none with agent=ppo")
        if self.exploration != OnPolicyExploration.gsde:
            self.refuse_beside(["sample_freq"], "must be null unless agent.exploration=gsde")
        if not self.normalize_reward:
            self.refuse_beside(["clip_reward"], "needs agent.normalize_reward=true")
