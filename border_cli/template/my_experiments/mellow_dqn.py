"""DQN with a mellowmax instead of the maximum, which overestimates noisy values.

Asadi and Littman 2017, "An alternative softmax operator for reinforcement learning".
Deviation: Kim et al. 2019, "DeepMellow", have no target network; this agent has one unless
`agent.tau=1`.
"""

import math
from functools import partial
from typing import ClassVar

from border_cli.agent.dqn import Dqn
from border_cli.core.spaces import EnvSpec
from border_cli.nn.batch import TDLoss, TDResult, TensorBatch
from torch import Tensor

from my_experiments.config import MellowDqnConfig


def mellowmax(values: Tensor, omega: float) -> Tensor:
    """Returns log(mean(exp(omega x))) / omega over the actions. [B, num_actions] -> [B, 1]"""
    total = (omega * values).logsumexp(dim=1, keepdim=True)  # [B, 1]
    return (total - math.log(values.shape[1])) / omega


def mellow_td_loss(
    q: Tensor,
    q_next: Tensor,
    q_next_online: Tensor | None,
    batch: TensorBatch,
    *,
    omega: float,
    td_loss: TDLoss,
) -> TDResult:
    """Returns DQN's loss with the mellowmax as the only next value of a row, hence its maximum."""
    return td_loss(q, mellowmax(q_next, omega), q_next_online, batch)


class MellowDqn(Dqn):
    """DQN with `mellow_td_loss`."""

    name: ClassVar[str] = "mellow_dqn"
    config: MellowDqnConfig

    def __init__(self, config: MellowDqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.td_loss = partial(mellow_td_loss, omega=config.omega, td_loss=self.td_loss)
