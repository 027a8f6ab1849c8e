"""An estimate of the memory that a run needs, compared with the free memory before allocation.

It includes the transitions of actors and of a data set, and the networks with their copies. A tenth
of the free memory is reserved for everything else: environments, batches, messages, processes. The
memory of a replay buffer without `row_nbytes`, or of an agent that is not a `LearningAgent`, is
unknown and counts as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from border_cli.agent.learning_agent import LearningAgent
from border_cli.core.interfaces import Agent
from border_cli.core.spaces import EnvSpec
from border_cli.errors import ConfigError
from border_cli.launch.effective import DATASET, EffectiveSettings
from border_cli.nn.parameter_limit import PARAMETER_NBYTES
from border_cli.registry import REPLAY_BUFFERS
from border_cli.replay_buffer.config import RolloutConfig
from border_cli.system.machine import free_memory
from border_cli.words import size

USABLE = 0.9  # fraction of the free memory
LARGE_ROW = 60_000  # bytes: two stacks of four grey Atari images have 56,448


class MemoryPart(NamedTuple):
    """One component of the estimate."""

    what: str
    nbytes: int
    because: str  # settings that determine the size


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The memory that a run needs, part by part."""

    name: str  # name of the run, for messages
    parts: Sequence[MemoryPart]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


def agent_part(effective: EffectiveSettings, agent: Agent) -> MemoryPart:
    """Estimates the memory of an agent and its copies from the number of its parameters."""
    count = agent.num_parameters if isinstance(agent, LearningAgent) else 0
    settings = {"parameters": f"{count:,}", **effective.config.agent.taking_memory()}
    because = ", ".join(f"{name}={value}" for name, value in settings.items())
    return MemoryPart("agent", PARAMETER_NBYTES * count, because)


def row_nbytes(effective: EffectiveSettings, spec: EnvSpec) -> int:
    """Returns the bytes of one transition in the replay buffer; 0 if unknown."""
    settings = effective.config.replay_buffer
    extras = effective.extras(spec)
    return int(REPLAY_BUFFERS.load(settings).row_nbytes(settings, spec, extras))


def training_needs(effective: EffectiveSettings, spec: EnvSpec, agent: Agent, name: str) -> Needs:
    """Estimates the memory of the transitions and networks of a run."""
    parts, row, buffer = [], row_nbytes(effective, spec), effective.config.replay_buffer
    if buffer.dataset is not None:
        from border_cli.dataset.store import counts_of

        _, steps = counts_of(buffer.dataset)
        because = f"{DATASET}={buffer.dataset}, {steps} transitions of {size(row)}"
        parts.append(MemoryPart("data set", steps * row, because))
    if not effective.config.trainer.offline:
        rows, setting = buffer.capacity, "capacity"
        if isinstance(buffer, RolloutConfig):
            # Twice, because the agent gets a copy of the rollout.
            rows, setting = 2 * buffer.n_steps * effective.num_envs, "n_steps"
        because = f"replay_buffer.{setting}={rows} transitions of {size(row)}"
        if row > LARGE_ROW:
            because += "; env.resize=[84,84] and env.grayscale=true make images smaller"
        parts.append(MemoryPart("replay buffer", rows * row, because))
    return Needs(name=name, parts=[*parts, agent_part(effective, agent)])


def refuse_unmet(needs: Sequence[Needs]) -> None:
    """Raises ConfigError if the largest of these needs exceeds the usable memory. By default, a
    sweep runs only as many jobs at once as fit."""
    free = free_memory()
    largest = max(needs, key=lambda need: need.nbytes, default=None)
    if largest is None or largest.nbytes <= USABLE * free:
        return
    listed = ", ".join(
        f"{part.what} {size(part.nbytes)} ({part.because})" for part in largest.parts
    )
    raise ConfigError(
        f"{largest.name} needs {size(largest.nbytes)} of memory, but {size(free)} is "
        f"available, and a tenth of it is reserved: {listed}. Smaller values of these settings "
        "need less"
    )
