"""Memory that a run keeps, counted before anything is allocated and held against what is free.

Counted are the transitions of actors and of a data set, and the networks with their copies. A tenth
of what is free stays for all else: environments, batches, messages, processes. What a replay buffer
of a user takes is unknown and counts for nothing. Only an agent's constructor determines its size,
so it is built under `nn/unfilled.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from border_cli.agent.learner_config import LearnerConfig
from border_cli.core.interfaces import Agent
from border_cli.core.spaces import EnvSpec
from border_cli.errors import ConfigError
from border_cli.launch.effective import DATASET, EffectiveSettings
from border_cli.nn.unfilled import Unfilled
from border_cli.registry import REPLAY_BUFFERS
from border_cli.system.machine import free_memory, memory_for
from border_cli.words import size

# Times the state of an agent: itself, gradients, snapshots, and the copies and files of a
# checkpoint and of the best model. DQN with two layers of 3,000 and of 6,000 units took 6.8.
TRAINED = 7
USABLE = 0.9  # of what is free


class Part(NamedTuple):
    """One thing that takes memory."""

    what: str
    nbytes: int
    settings: Mapping[str, object]  # with smaller ones it takes less

    @property
    def because(self) -> str:
        """Its settings as they are typed."""
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Memory that is needed, part by part."""

    name: str  # of what needs it
    parts: Sequence[Part]

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.parts)


def agent_part(effective: EffectiveSettings, agent: Agent) -> Part:
    """All that a run keeps of an agent, counted from a copy of its state, which takes no memory;
    raises ConfigError where there are not even addresses for it."""
    what = "the agent and a copy of it do not fit in memory"
    config = effective.config.agent
    settings = config.taking_memory()
    with memory_for(what, settings, ConfigError), Unfilled():
        parameters = sum(each.size for each in agent.snapshot().arrays.values())
        state = _nbytes(agent.state_dict())
    if isinstance(config, LearnerConfig) and config.optimizer != "adam":
        state *= 2  # the averages of torch's optimisers exist from the first update on
    return Part("agent", TRAINED * state, {"parameters": f"{parameters:,}", **settings})


def _nbytes(state: Any) -> int:
    """Bytes of all tensors and arrays of a state."""
    if isinstance(state, Mapping):
        return sum(_nbytes(each) for each in state.values())
    if isinstance(state, list | tuple):
        return sum(_nbytes(each) for each in state)
    return int(getattr(state, "nbytes", 0))


def row_nbytes(effective: EffectiveSettings, spec: EnvSpec) -> int:
    """Bytes of one transition in the replay buffer; 0 where nobody knows."""
    settings = effective.config.replay_buffer
    return int(REPLAY_BUFFERS.load(settings).row_nbytes(settings, spec))


def training_needs(
    effective: EffectiveSettings, spec: EnvSpec, agent: Agent, name: str = "the run"
) -> Needs:
    """Transitions and networks of a run that shall begin."""
    parts, row, buffer = [], row_nbytes(effective, spec), effective.config.replay_buffer
    if buffer.dataset is not None:
        from border_cli.dataset.store import counts_of

        _, steps = counts_of(buffer.dataset)
        described = f"{buffer.dataset}, {steps} transitions of {size(row)}"
        parts.append(Part("data set", steps * row, {DATASET: described}))
    if not effective.config.trainer.offline:
        described = f"{buffer.capacity} transitions of {size(row)}"
        parts.append(
            Part("replay buffer", buffer.capacity * row, {"replay_buffer.capacity": described})
        )
    return Needs(name=name, parts=[*parts, agent_part(effective, agent)])


def refuse_unmet(needs: Sequence[Needs], free: int | None = None) -> None:
    """Raises ConfigError where memory is too small for the largest of these, which are needed one
    after another; `free` are bytes, by default those of this machine."""
    largest = max(needs, key=lambda each: each.nbytes, default=None)
    if largest is None:
        return
    free = free_memory() if free is None else free
    if largest.nbytes <= USABLE * free:
        return
    listed = ", ".join(
        f"{each.what} {size(each.nbytes)} ({each.because})" for each in largest.parts
    )
    raise ConfigError(
        f"{largest.name} needs {size(largest.nbytes)} of memory, but {size(free)} is "
        f"available, of which a tenth stays for all else: {listed}. Smaller values "
        "of these settings need less"
    )
