"""Settings of actor-critic agents. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from border_cli.agent.learner_config import LearnerConfig
from border_cli.settings.base import setting
from border_cli.settings.schedule import ENV_STEPS, UPDATES, Scheduled

if TYPE_CHECKING:
    from border_cli.core.spaces import Space
    from border_cli.nn.architecture import Architecture


class ActorCritics(StrEnum):
    """Reduction of the critics' values in the actor's objective."""

    min = "min"
    mean = "mean"


class Noise(StrEnum):
    """Exploration noise, uncorrelated or correlated over successive steps."""

    gaussian = "gaussian"
    ornstein_uhlenbeck = "ornstein_uhlenbeck"


@dataclass(kw_only=True)
class ActorCriticConfig(LearnerConfig):
    """Settings common to all agents with an actor and an ensemble of critics."""

    batch_size: int = setting(256, "transitions per update", low=1)
    learning_rate: Scheduled = setting(
        3e-4, "learning rate of the actor", above=0, counter=UPDATES, may_change=True
    )
    critic_learning_rate: Scheduled = setting(
        None,
        "learning rate of the critics; null means learning_rate",
        above=0,
        counter=UPDATES,
        nullable=True,
        may_change=True,
    )
    max_grad_norm: float | None = setting(
        None, "clips the norm of each gradient to this value; null disables clipping", above=0
    )
    actor_hidden: list[int] | None = setting(
        None, "units per hidden layer of the actor; null means hidden", low=1, takes_memory=True
    )
    critic_hidden: list[int] | None = setting(
        None,
        "units per hidden layer of the critics, and of V in iql; null means hidden",
        low=1,
        takes_memory=True,
    )
    num_critics: int = setting(
        2, "number of critics; targets use their minimum", low=1, takes_memory=True
    )
    tau: float = setting(
        0.005,
        "Polyak averaging: target = tau * online + (1 - tau) * target; 1 copies the weights",
        above=0,
        high=1,
    )
    critic_layer_norm: bool = setting(
        False, "applies layer normalisation to the critics; layer_norm applies it to all networks"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_layer_norm and self.layer_norm:
            self.refuse("critic_layer_norm", True, "has no effect with agent.layer_norm=true")

    def architecture(self, observation: Space) -> Architecture:
        """Returns the architecture of the actor.

        `LearnedCritics` replaces the sizes and layer normalisation for the critics.
        """
        base = super().architecture(observation)
        return base if self.actor_hidden is None else replace(base, hidden=tuple(self.actor_hidden))

    @property
    def critic_sizes(self) -> tuple[int, ...]:
        """Units per hidden layer of the critics."""
        return tuple(self.hidden if self.critic_hidden is None else self.critic_hidden)


@dataclass(kw_only=True)
class SoftConfig(ActorCriticConfig):
    """Settings common to all agents that maximise entropy as well as reward."""

    actions: ClassVar[tuple[str, ...]] = ("Box",)

    ent_coef: float | None = setting(
        None, "entropy coefficient, in units of reward; null means learned", low=0
    )
    ent_coef_init: float = setting(1.0, "initial value of a learned ent_coef", above=0)
    ent_coef_learning_rate: Scheduled = setting(
        None,
        "Adam learning rate of a learned ent_coef; null means learning_rate",
        above=0,
        counter=UPDATES,
        nullable=True,
        may_change=True,
    )
    target_entropy: float | None = setting(
        None,
        "target entropy of a learned ent_coef, in nats, for actions scaled to [-1, 1]; null "
        "means minus the number of action dimensions",
    )
    reward_scale: float = setting(1.0, "factor applied to rewards", above=0)
    policy_delay: int = setting(1, "critic updates per update of the actor and ent_coef", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ent_coef is not None:
            learned = ("ent_coef_init", "ent_coef_learning_rate", "target_entropy")
            self.refuse_beside(learned, "needs a learned ent_coef (agent.ent_coef=null)")


@dataclass(kw_only=True)
class SacConfig(SoftConfig):
    """Soft actor-critic (SAC); conf/agent/redq.yaml and conf/agent/droq.yaml are variants."""

    subset: int | None = setting(
        None,
        "number of critics drawn at random, whose minimum is the target; null means all",
        low=1,
    )
    actor_critics: ActorCritics = setting(
        ActorCritics.min, "whether the actor maximises the minimum or the mean of all critics"
    )
    dropout: float = setting(
        0.0, "dropout probability in the hidden layers of the critics", low=0, high=0.9
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset is not None and self.subset > self.num_critics:
            allowed = f"must be at most agent.num_critics ({self.num_critics})"
            self.refuse("subset", self.subset, allowed)


@dataclass(kw_only=True)
class DiscreteSacConfig(SoftConfig):
    """Soft actor-critic for discrete actions."""

    actions: ClassVar[tuple[str, ...]] = ("Discrete", "MultiDiscrete")

    target_entropy: float | None = setting(
        None,
        "target entropy of a learned ent_coef, in nats; null means target_entropy_scale times "
        "the maximum entropy",
    )
    target_entropy_scale: float = setting(
        0.3,
        "target entropy of a learned ent_coef as a fraction of the maximum, the entropy of a "
        "uniform policy; 0.98 in the paper, which is close to uniform",
        low=0,
        high=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ent_coef is not None:
            allowed = "needs a learned ent_coef (agent.ent_coef=null)"
            self.refuse_beside(["target_entropy_scale"], allowed)
        if self.target_entropy is not None:
            self.refuse_beside(["target_entropy_scale"], "needs agent.target_entropy=null")


@dataclass(kw_only=True)
class TqcConfig(SoftConfig):
    """Truncated quantile critics (TQC)."""

    num_critics: int = setting(5, "number of critics; the target pools their quantiles", low=1)
    num_quantiles: int = setting(25, "number of quantiles per critic", low=1, takes_memory=True)
    dropped_quantiles: int = setting(
        2,
        "quantiles per critic dropped from the target, largest first, to avoid overestimation",
        low=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropped_quantiles >= self.num_quantiles:
            allowed = f"must be below agent.num_quantiles ({self.num_quantiles})"
            self.refuse("dropped_quantiles", self.dropped_quantiles, allowed)


@dataclass(kw_only=True)
class CqlConfig(SoftConfig):
    """Conservative Q-learning (CQL) for continuous actions.

    The learning rates are those of the authors' code.
    """

    learning_rate: Scheduled = setting(1e-4, "learning rate of the actor", above=0, counter=UPDATES)
    critic_learning_rate: Scheduled = setting(
        3e-4,
        "learning rate of the critics; null means learning_rate",
        above=0,
        counter=UPDATES,
        nullable=True,
    )
    conservative_weight: float = setting(
        5.0,
        "weight of the conservative gap (soft maximum of Q over all actions minus Q of the data) "
        "relative to half the squared TD error (2.5 corresponds to 5 in the authors' code, which "
        "does not halve it); with conservative_gap, the initial value of the learned weight",
        low=0,
    )
    conservative_gap: float | None = setting(
        None,
        "target of the gap, in units of reward; the weight is learned, and grows while the gap "
        "is above the target; null means a fixed weight",
    )
    sampled_actions: int = setting(
        10,
        "actions sampled per transition from each of three sources: uniform, the actor in s and "
        "the actor in s'",
        low=1,
    )
    backup_entropy: bool = setting(False, "adds the entropy in s' to the targets, as in SAC")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conservative_gap is not None and self.conservative_weight == 0:
            self.refuse("conservative_weight", 0, "must be above 0 with agent.conservative_gap")


@dataclass(kw_only=True)
class Td3Config(ActorCriticConfig):
    """Twin delayed deep deterministic policy gradient (TD3), or DDPG with conf/agent/ddpg.yaml.

    The defaults are those of the authors' code, whose layer sizes and rates differ from the paper.
    """

    actions: ClassVar[tuple[str, ...]] = ("Box",)
    exploration_settings: ClassVar[tuple[str, ...]] = ("noise", "noise_std")

    policy_delay: int = setting(2, "critic updates per update of the actor and all targets", low=1)
    target_noise: float = setting(
        0.2,
        "standard deviation of the noise on target actions scaled to [-1, 1]; 0 disables it",
        low=0,
    )
    target_noise_clip: float = setting(
        0.5, "maximum absolute value of the noise on target actions", above=0
    )
    noise: Noise = setting(
        Noise.gaussian,
        "exploration noise: gaussian, or ornstein_uhlenbeck, which is correlated over the steps "
        "of an episode",
    )
    noise_std: Scheduled = setting(
        0.1,
        "standard deviation of the noise drawn at each step, for actions scaled to [-1, 1]",
        low=0,
        counter=ENV_STEPS,
    )
    final_bound: float | None = setting(
        None,
        "initialises the last layers uniformly within plus or minus this value; null means the "
        "initialisation of the other layers",
        above=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_noise == 0:
            self.refuse_beside(["target_noise_clip"], "needs agent.target_noise above 0")
        if self.noise_std == 0:
            self.refuse_beside(["noise"], "needs agent.noise_std above 0 (or leave it gaussian)")


@dataclass(kw_only=True)
class Td3BcConfig(Td3Config):
    """TD3 with behaviour cloning."""

    alpha: float = setting(
        2.5,
        "weight of Q, normalised by its mean absolute value, relative to behaviour cloning",
        above=0,
    )


@dataclass(kw_only=True)
class AwacConfig(ActorCriticConfig):
    """Advantage-weighted actor-critic."""

    actions: ClassVar[tuple[str, ...]] = ("Discrete", "MultiDiscrete", "Box")

    inv_lambda: float = setting(
        3.0,
        "weights a transition by exp(inv_lambda * advantage); 1 / lambda in AWAC, the inverse "
        "temperature beta in IQL; 0 is plain behaviour cloning",
        low=0,
    )
    exp_adv_max: float = setting(100.0, "maximum weight of a transition", above=0)
    adv_softmax: bool = setting(
        False, "weights by a softmax over the batch instead of clipping weights at exp_adv_max"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adv_softmax:
            self.refuse_beside(
                ["exp_adv_max"], "needs agent.adv_softmax=false: a softmax is not clipped"
            )


@dataclass(kw_only=True)
class IqlConfig(AwacConfig):
    """Implicit Q-learning, with the paper's defaults for MuJoCo."""

    expectile: float = setting(
        0.7,
        "expectile of Q(s, a) over the actions in the data; 0.5 is the mean, values close to 1 "
        "approach the maximum",
        above=0,
    )
    value_learning_rate: Scheduled = setting(
        None,
        "learning rate of V(s); null means learning_rate",
        above=0,
        counter=UPDATES,
        nullable=True,
        may_change=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expectile >= 1:
            self.refuse("expectile", self.expectile, "must be below 1")
