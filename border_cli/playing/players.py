"""The agents that play in a recording: models of a run and random actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from border_cli.api import load_agent
from border_cli.core.interfaces import Agent
from border_cli.core.types import PAST_SCHEDULES, Snapshot
from border_cli.errors import ConfigError
from border_cli.launch.build import env_factory
from border_cli.launch.effective import EffectiveSettings
from border_cli.registry import AGENTS
from border_cli.settings.run import RunConfig

RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """An agent that plays a given number of episodes or steps."""

    name: str  # best, latest, an update number, or random
    amount: int
    unit: str  # "episodes" or "steps"
    agent: Agent
    snapshot: Snapshot  # weights used for acting


def build_players(
    run_dir: Path,
    effective: EffectiveSettings,
    policies: Mapping[str, float],
    amount: int,
    unit: str,
    *,
    trust: bool,
    config: RunConfig | None,
) -> list[Player]:
    """Builds a player per policy and splits `amount` by weight. Raises ConfigError if a policy
    would get no episodes or steps. `config` replaces the saved settings."""
    parts = dict(zip(policies, split_amount(amount, [*policies.values()]), strict=True))
    empty = [name for name, part in parts.items() if not part]
    if empty:
        raise ConfigError(f"{unit}={amount} leaves none for {', '.join(empty)}")
    result = []
    for name, part in parts.items():
        if name == RANDOM:
            agent, env_steps = random_agent(effective), 0
        else:
            _, agent, counters = load_agent(run_dir, name, config=config, trust=trust)
            settings = effective.config
            past_schedules = settings.init_from is not None or settings.trainer.offline
            env_steps = PAST_SCHEDULES if past_schedules else int(counters["env_steps"])
        result.append(
            Player(
                name=name,
                amount=part,
                unit=unit,
                agent=agent,
                snapshot=agent.snapshot(env_steps=env_steps),  # env_steps determines exploration
            )
        )
    return result


def random_agent(effective: EffectiveSettings) -> Agent:
    config = effective.config
    random = AGENTS.entry(RANDOM).config_type(gamma=config.agent.gamma)
    agent: Agent = AGENTS.build(
        random, spec=env_factory(effective).spec, device=config.device, seed=config.seed
    )
    return agent


def split_amount(amount: int, weights: Sequence[float]) -> list[int]:
    """Splits `amount` by weight. The first parts get the remainder."""
    parts = [int(amount * weight / math.fsum(weights)) for weight in weights]
    remainder = amount - sum(parts)
    return [part + (i < remainder) for i, part in enumerate(parts)]
