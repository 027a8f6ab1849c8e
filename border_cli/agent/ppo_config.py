"""Settings of proximal policy optimization. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from border_cli.agent.learner_config import Augmentation, LearnerConfig
from border_cli.settings.base import setting
from border_cli.settings.networks import Activation
from border_cli.settings.schedule import ENV_STEPS, Scheduled


@dataclass(kw_only=True)
class PpoConfig(LearnerConfig):
    """Proximal policy optimization (Schulman et al. 2017). The defaults are those of
    Stable-Baselines3; conf/agent/a2c.yaml is a variant of it."""

    on_policy: ClassVar[bool] = True
    gives_priorities: ClassVar[bool] = False
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "MultiDiscrete", "Box")

    batch_size: int = setting(64, "transitions per minibatch", low=1, takes_memory=True)
    hidden: list[int] = setting([64, 64], "units of each hidden layer", low=1, takes_memory=True)
    activation: Activation = setting(Activation.tanh, "activation function of the hidden layers")
    learning_rate: Scheduled = setting(
        3e-4,
        "learning rate; a schedule without steps spans the run. It changes between rollouts",
        low=0,
        counter=ENV_STEPS,
        may_change=True,
    )
    adam_epsilon: float = setting(1e-5, "Adam epsilon", above=0)
    max_grad_norm: float | None = setting(
        0.5, "clips the norm of the gradient of all networks; null: no clipping", above=0
    )
    gae_lambda: float = setting(
        0.95,
        "lambda of generalised advantage estimation (Schulman et al. 2016): 0: one-step errors, "
        "1: whole returns",
        low=0,
        high=1,
    )
    clip_range: Scheduled = setting(
        0.2,
        "range around 1 beyond which the ratio of probabilities gains nothing; a schedule without "
        "steps spans the run",
        above=0,
        counter=ENV_STEPS,
    )
    value_clip_range: float | None = setting(
        None,
        "range around the old values beyond which the value loss gains nothing, in units of the "
        "(normalised) return; null: not clipped",
        above=0,
    )
    normalize_advantage: bool = setting(
        True, "gives the advantages of each minibatch mean 0 and deviation 1"
    )
    ent_coef: float = setting(0.0, "weight of the entropy bonus", low=0)
    value_coef: float = setting(0.5, "weight of the value loss", low=0)
    target_kl: float | None = setting(
        None,
        "drops the rest of a rollout once its approximate KL divergence exceeds 1.5 times this; "
        "null: never",
        above=0,
    )
    share_network: bool | None = setting(
        None,
        "one network gives logits and value; false: each has its own; null: one where there are "
        "images or a network of your own",
    )
    orthogonal_init: bool = setting(
        True, "orthogonal initial weights with small ones for the policy's last layer"
    )
    log_std_init: float = setting(
        0.0, "initial logarithm of the standard deviation of each action of a Box"
    )
    clip_reward: float = setting(
        10.0, "largest absolute value of a reward normalised by normalize_reward", above=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augment != Augmentation.none:
            self.refuse("augment", str(self.augment), "must be none with agent=ppo")
        if not self.normalize_reward:
            self.refuse_beside(["clip_reward"], "needs agent.normalize_reward=true")
