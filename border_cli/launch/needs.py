"""Memory that the runs of a command need at most, held against what there is.

Counted from settings and from an agent without contents, before anything is allocated. What no
setting tells was measured, on Linux with Python 3.11 and torch 2.13.

Memory is that of replay buffer, channel, processes, agent and copies for a checkpoint; it is
compared with the machine, its cgroups and limits. `settings.setting(takes_memory=True)` marks the
settings that memory depends on, and every message about memory names them. Only an agent's
constructor determines its size, so the dry build runs it under `nn/unfilled.py`; `border-eval` and
`load_policy` do the same before they build.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from border_cli.actor_manager.config import ProcessConfig, RayConfig
from border_cli.actor_manager.process import MESSAGES_PER_RING
from border_cli.actor_manager.ray import ring_rows
from border_cli.actor_manager.thread import MESSAGES_PER_ACTOR
from border_cli.agent.action_space import name_of
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.config import RunConfig, StartMethod
from border_cli.core.errors import ConfigError
from border_cli.core.interfaces import Agent
from border_cli.core.machine import Room, memory_for, memory_rooms
from border_cli.core.rows import storage_nbytes
from border_cli.core.spaces import (
    BoxSpace,
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    Space,
    row_nbytes,
    transition_nbytes,
)
from border_cli.core.words import counted, size
from border_cli.dataset.recorded_episodes import GROUP, GROUP_NBYTES
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.offline_data import SETTING, dataset_size
from border_cli.nn.unfilled import Unfilled
from border_cli.registry import REPLAY_BUFFERS
from border_cli.replay_buffer.config import HindsightConfig, Normalize, PrioritizedConfig
from border_cli.replay_buffer.frames import frame_ring_nbytes, frame_row_nbytes, stores_frames
from border_cli.replay_buffer.hindsight import LINKS_NBYTES, SAVED_LINKS_NBYTES
from border_cli.replay_buffer.sum_tree import FANOUT, TOP
from border_cli.replay_buffer.uniform import RingReplayBuffer

MIB = 2**20

# From here on to the end of a run on CartPole: 27 MB, of which the recorders' imports are most.
PROGRAM_NBYTES = 48 * MIB
OWN_THREADS = 2  # the watchdog, and the one that writes checkpoints

ENV_NBYTES = 128 * 1024  # CartPole 4 kB, LunarLander 103 kB

# What a process adds, pages that it shares with others not counted: 8 MB with CartPole, 14 with
# LunarLander; one that was spawned shares next to nothing. The fork server and Python's resource
# tracker add 21 MB once, with the pages that all share.
WORKER_NBYTES = 16 * MIB
SPAWNED_NBYTES = 48 * MIB
SERVER_NBYTES = 32 * MIB
# With torch, for agents that act through it: 150 MB once, which processes of a fork server share,
# and 7 MB in each.
TORCH_NBYTES = 192 * MIB
TORCH_WORKER_NBYTES = 12 * MIB

BROKER_NBYTES = 96 * MIB  # the process that speaks with Ray
RAY_NBYTES = 320 * MIB  # a Ray of our own, with the broker
RAY_WORKER_NBYTES = 80 * MIB  # a process of Ray, before it acts
GATHERED_NBYTES = 1024  # Python's objects around each transition that an actor collects
COPIES_NBYTES = 64 * MIB  # of transitions that are copied on their way to the disk
# What malloc keeps of what was freed, as a share of all that comes and goes. With frames of 84x84x4
# bytes, where 340 MiB come and go, 470 to 600 MiB were held; with CartPole next to nothing.
KEPT_FREE = 0.75
WIDE = 100_000  # numbers of an observation or an action, which make a layer large by themselves
PRIORITY_NBYTES = 8  # float64

CAPACITY = "replay_buffer.capacity"
MENTIONED = 0.02  # of all that is needed; what is less is listed without its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that a run needs, at most."""

    what: str
    nbytes: int  # of all processes together
    settings: Mapping[str, object] = field(default_factory=dict)  # that it follows from
    elsewhere: int = 0  # of these bytes, in child processes

    @property
    def because(self) -> str:
        """Its settings as they are typed."""
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


Parts: TypeAlias = list[tuple[Need, int]]  # with the bytes that count


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSizes:
    """How large an agent is."""

    parameters: int  # that actors get
    weights: int  # bytes of these
    state: int  # bytes of a checkpoint of it: with targets, optimiser and all
    units: int  # that have a bias: what a row becomes on its way through the networks
    on_host: bool  # computes in this machine's memory, not in a GPU's
    acts_in_torch: bool = False  # so that processes that act need torch


def sizes_of(effective: EffectiveSettings, agent: Agent) -> AgentSizes:
    """Raises ConfigError where not even a copy of its weights fits into memory."""
    what = "the agent's weights and a copy of them do not fit in memory"
    config = effective.config.agent
    with memory_for(what, config.taking_memory(), ConfigError):
        sizes = agent_sizes(agent)
    if isinstance(config, LearnerConfig) and config.optimizer != "adam":
        # Its averages exist from the first step on: two of each weight, most of which are in the
        # state once for themselves and once for a target.
        sizes = replace(sizes, state=2 * sizes.state + sizes.weights)
    return sizes


def agent_sizes(agent: Agent) -> AgentSizes:
    """Counted from copies of its weights and state, which take no memory."""
    with Unfilled():
        arrays = agent.snapshot().arrays.values()
        state = _nbytes(agent.state_dict())
    return AgentSizes(
        parameters=sum(each.size for each in arrays),
        weights=sum(each.nbytes for each in arrays),
        state=state,
        units=sum(each.size for each in arrays if each.ndim == 1),
        on_host=not agent.device_name.startswith("cuda"),
        acts_in_torch=isinstance(agent, TorchAgent) and agent.architecture.acts_in_torch,
    )


def _nbytes(state: Any) -> int:
    """Bytes of all tensors and arrays of a state."""
    if isinstance(state, Mapping):
        return sum(_nbytes(each) for each in state.values())
    if isinstance(state, list | tuple):
        return sum(_nbytes(each) for each in state)
    return int(getattr(state, "nbytes", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySizes:
    """How large the replay buffer is; all 0 where it is a user's, whose size is unknown."""

    capacity: int  # transitions that actors can add
    dataset: int = 0  # transitions of a data set, which stay
    row: int  # bytes of one transition as it is stored
    trees: int  # bytes of the priorities and the sums over them, or of the episodes
    margin: int = 0  # bytes for frames beyond one for each transition
    shares_frames: bool = False  # each frame of stacked images is stored once
    priorities: int  # bytes of the priorities alone, or the episodes, as a checkpoint copies them

    @property
    def nbytes(self) -> int:
        return (self.dataset + self.capacity) * self.row + self.margin + self.trees


def replay_sizes(effective: EffectiveSettings, spec: EnvSpec) -> ReplaySizes:
    """Of the buffer these settings choose; nothing is allocated."""
    settings = effective.config.replay_buffer
    known = issubclass(REPLAY_BUFFERS.load(settings), RingReplayBuffer)
    trees = saved = 0
    if known and isinstance(settings, PrioritizedConfig):
        trees = tree_nbytes(settings.capacity) * (1 + (settings.normalize == Normalize.buffer))
        saved = settings.capacity * PRIORITY_NBYTES
    if known and isinstance(settings, HindsightConfig):
        trees, saved = settings.capacity * LINKS_NBYTES, settings.capacity * SAVED_LINKS_NBYTES
    learned = dataset_size(effective)
    dataset = learned.steps if learned else 0
    capacity = settings.capacity if effective.has_actors else 0
    row, margin = storage_nbytes(spec, 1) if known else 0, 0
    shares_frames = known and stores_frames(settings, spec)
    if shares_frames:
        row = frame_row_nbytes(spec)
        margin = frame_ring_nbytes(spec, dataset + capacity) - (dataset + capacity) * row
    return ReplaySizes(
        capacity=capacity,
        dataset=dataset,
        row=row,
        margin=max(0, margin),
        shares_frames=shares_frames,
        trees=trees,
        priorities=saved,
    )


def tree_nbytes(capacity: int) -> int:
    """Bytes of a `BlockTree`: the leaves, and levels of whole blocks above them."""
    nodes, held = capacity, 0
    while nodes > TOP:
        nodes = -(-nodes // FANOUT)
        held += nodes * FANOUT
    return (held + nodes) * PRIORITY_NBYTES


def encoded_nbytes(space: Space) -> int:
    """Bytes of one observation as networks take it: float32, choices one-hot."""
    if isinstance(space, DictSpace):
        return sum(encoded_nbytes(part) for part in space.spaces.values())
    if isinstance(space, BoxSpace):
        return 4 * math.prod(space.shape)
    return 4 * (space.n if isinstance(space, DiscreteSpace) else sum(space.nvec))


def memory_needs(
    effective: EffectiveSettings, spec: EnvSpec, *, agent: AgentSizes, replay: ReplaySizes
) -> list[Need]:
    """Everything that is allocated from the start of the run on, besides what the process holds."""
    acting = [_in_flight(effective, spec), _actors(effective, spec, agent)]
    passing = [
        *(acting if effective.has_actors else []),
        _agent(effective.config, spec, agent),
        _evaluation(effective, spec, agent, background=effective.evaluates_in_background(spec)),
        _saving(effective.config, agent, replay),
    ]
    kept = int(KEPT_FREE * sum(each.nbytes - each.elsewhere for each in passing))
    stored = [
        *_dataset(effective, replay),
        *([_replay_buffer(replay)] if replay.capacity else []),
    ]
    overhead = Need(what="allocator overhead", nbytes=kept)
    return [*stored, *passing, overhead, _program(effective)]


def loading_needs(effective: EffectiveSettings, agent: AgentSizes) -> list[Need]:
    """A saved model that shall act: the agent, its file while it is read, and two copies."""
    nbytes = 2 * agent.state + 2 * agent.weights
    settings = effective.config.agent.taking_memory()
    return [Need(what="the saved agent", nbytes=nbytes, settings=settings)]


def playing_needs(effective: EffectiveSettings, spec: EnvSpec, agent: AgentSizes) -> list[Need]:
    """The episodes of one evaluation in parallel in this process."""
    return [_evaluation(effective, spec, agent, background=False)]


def _dataset(effective: EffectiveSettings, replay: ReplaySizes) -> list[Need]:
    """The transitions of a data set, and what reading them takes."""
    if effective.dataset is None:
        return []
    rows = replay.dataset * replay.row
    nbytes = rows + 2 * min(GROUP_NBYTES, GROUP * rows)  # the episodes read last, and these padded
    described = f"{effective.dataset}, {replay.dataset} transitions of {size(replay.row)}"
    return [Need(what="data set", nbytes=nbytes, settings={SETTING: described})]


def _replay_buffer(replay: ReplaySizes) -> Need:
    return Need(
        what="replay buffer" if replay.row else "replay buffer (unknown size)",
        nbytes=replay.capacity * replay.row + replay.margin + replay.trees,
        settings={CAPACITY: f"{replay.capacity} transitions of {size(replay.row)}"},
    )


def _in_flight(effective: EffectiveSettings, spec: EnvSpec) -> Need:
    """Transitions between the environments and the replay buffer."""
    actors = effective.actors
    gathered = max(actors.n_buffer, effective.env.num_envs)  # transitions in one message
    row = transition_nbytes(spec)
    collected = effective.num_actors * gathered * (row + GATHERED_NBYTES)
    if isinstance(actors, ProcessConfig):
        shared = effective.num_actors * storage_nbytes(spec, MESSAGES_PER_RING * actors.n_buffer)
        elsewhere = collected
    elif isinstance(actors, RayConfig):
        shared = elsewhere = storage_nbytes(spec, ring_rows(actors, spec))
        collected = shared  # as much may be in calls that return
    else:
        # As many again as wait are in the learner's hands, and one is being joined.
        waiting = 2 * MESSAGES_PER_ACTOR + 1
        shared = effective.num_actors * waiting * gathered * row
        elsewhere = 0
    return Need(
        what="transitions in flight",
        nbytes=shared + collected,
        elsewhere=elsewhere,
        settings={
            "actor_manager.n_buffer": actors.n_buffer,
            "actor_manager.num_actors": effective.num_actors,
        },
    )


def _actors(effective: EffectiveSettings, spec: EnvSpec, agent: AgentSizes) -> Need:
    """Processes, environments, and every actor's own copy of the weights."""
    actors, num_envs = effective.actors, effective.env.num_envs
    # the copy it acts with, and the next one
    each = num_envs * _environment(spec, agent) + 2 * agent.weights
    server = 0
    if isinstance(actors, ProcessConfig):
        spawned = actors.start_method == StartMethod.spawn
        each += SPAWNED_NBYTES if spawned else WORKER_NBYTES
        server = SERVER_NBYTES
        if agent.acts_in_torch:
            each += TORCH_NBYTES if spawned else TORCH_WORKER_NBYTES
            server += TORCH_NBYTES
    here = effective.num_actors
    if isinstance(actors, RayConfig):
        each += RAY_WORKER_NBYTES + agent.acts_in_torch * TORCH_NBYTES
        server = RAY_NBYTES if actors.address is None else BROKER_NBYTES
        here = here if actors.address is None else 0
    nbytes = here * each + server
    return Need(
        what=f"{counted(effective.num_actors, 'actor')}, {effective.backend}",
        nbytes=nbytes,
        elsewhere=nbytes if isinstance(actors, ProcessConfig | RayConfig) else 0,
        settings={"actor_manager.num_actors": effective.num_actors, "env.num_envs": num_envs},
    )


def _environment(spec: EnvSpec, agent: AgentSizes) -> int:
    """Its own memory, and what acting on its observations takes."""
    obs = row_nbytes(spec.observation)
    return ENV_NBYTES + 4 * obs + 2 * encoded_nbytes(spec.observation) + 8 * agent.units


def _agent(config: RunConfig, spec: EnvSpec, agent: AgentSizes) -> Need:
    """Parameters, targets, optimiser; snapshots; the batch on its way through the networks."""
    batch = config.agent.batch_size * storage_nbytes(spec, 1)
    nbytes = batch + 4 * agent.weights  # snapshots: the newest, the next, and two to share
    if agent.on_host:
        # Both observations as numbers, together with the copy that joins them; of the units the
        # values of three passes and their gradients.
        per_row = 4 * encoded_nbytes(spec.observation) + 6 * 4 * agent.units
        nbytes += agent.state + agent.weights + config.agent.batch_size * per_row
    settings = config.agent.taking_memory() | _interface(spec)
    return Need(what="agent", nbytes=nbytes, settings=settings)


def _interface(spec: EnvSpec) -> dict[str, Any]:
    """The environment, where it is what makes the first or the last layer large."""
    numbers = encoded_nbytes(spec.observation) // 4
    if max(numbers, encoded_nbytes(spec.action) // 4) < WIDE:
        return {}
    described = f"{spec.id}, {numbers:,} numbers per observation, actions {name_of(spec.action)}"
    return {"env.id": described}


def _evaluation(
    effective: EffectiveSettings, spec: EnvSpec, agent: AgentSizes, *, background: bool
) -> Need:
    trainer, num_episodes = effective.config.trainer, effective.config.evaluator.num_episodes
    confirms = trainer.stop_at_score is not None and trainer.stop_confirmations > 0
    nbytes = (1 + confirms) * num_episodes * _environment(spec, agent) + 2 * agent.weights
    if background:
        nbytes += WORKER_NBYTES + SERVER_NBYTES + (TORCH_NBYTES if agent.acts_in_torch else 0)
    return Need(
        what="evaluation",
        nbytes=nbytes,
        elsewhere=nbytes if background else 0,
        settings={"evaluator.num_episodes": num_episodes},
    )


def _saving(config: RunConfig, agent: AgentSizes, replay: ReplaySizes) -> Need:
    """A checkpoint and the best model while they are written: copies, and the bytes of a file. The
    files of the best model stay in memory."""
    nbytes = 6 * agent.state
    if config.checkpoint.replay_buffer:
        nbytes += COPIES_NBYTES + replay.priorities
    return Need(
        what="checkpoints being written",
        nbytes=nbytes,
        settings={"checkpoint.replay_buffer": str(config.checkpoint.replay_buffer).lower()},
    )


def _program(effective: EffectiveSettings) -> Need:
    acting = effective.num_actors  # users' own managers are taken to be like `thread`
    if effective.in_learner_thread:
        acting = 0
    elif isinstance(effective.actors, ProcessConfig | RayConfig):
        acting = 1  # one supervisor for all processes
    threads = OWN_THREADS + acting + effective.torch_threads - 1
    return Need(
        what=f"the program and {threads} threads",
        nbytes=PROGRAM_NBYTES,
        settings={"actor_manager.num_actors": acting} if acting > 1 else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNeeds:
    """What one run that shall begin needs."""

    effective: EffectiveSettings
    spec: EnvSpec
    agent: AgentSizes
    name: str = "the run"

    @property
    def memory(self) -> list[Need]:
        """What it needs of memory at most, besides what this process holds."""
        replay = replay_sizes(self.effective, self.spec)
        return memory_needs(self.effective, self.spec, agent=self.agent, replay=replay)

    @property
    def memory_nbytes(self) -> int:
        """Of all processes together."""
        return sum(each.nbytes for each in self.memory)

    @property
    def learner_nbytes(self) -> int:
        """Of the learner's process."""
        return sum(each.nbytes - each.elsewhere for each in self.memory)

    def of(self, effective: EffectiveSettings, name: str) -> RunNeeds:
        """Those of another run with the same components."""
        return replace(self, effective=effective, name=name)

    def with_capacity(self, capacity: int) -> RunNeeds:
        """The same with a replay buffer of at most so many transitions."""
        config = self.effective.config
        smaller = min(capacity, config.replay_buffer.capacity)
        replay_buffer = replace(config.replay_buffer, capacity=smaller)
        effective = effective_settings(replace(config, replay_buffer=replay_buffer))
        return replace(self, effective=effective)


def run_needs(
    effective: EffectiveSettings, built: tuple[EnvSpec, Agent], name: str = "the run"
) -> RunNeeds:
    """Counts what the dry build made; it need not be kept."""
    spec, agent = built
    return RunNeeds(effective=effective, spec=spec, agent=sizes_of(effective, agent), name=name)


def refuse_unmet(runs: Sequence[RunNeeds], *, memory: Sequence[Room] | None = None) -> None:
    """Raises ConfigError where memory is too small for these runs, one after another.

    `memory` is what there is; by default this machine's.
    """
    if not runs:
        return
    rooms = memory_rooms() if memory is None else memory
    largest = max(runs, key=lambda each: each.memory_nbytes)
    _refuse_memory(largest, [each for each in rooms if not each.of_process], _everywhere)
    largest = max(runs, key=lambda each: each.learner_nbytes)
    _refuse_memory(largest, [each for each in rooms if each.of_process], _here)


def refuse_no_room(name: str, needs: Sequence[Need]) -> None:
    """The same for what is no run: `name` is what needs the memory of this process."""
    _refuse_parts(name, [(each, each.nbytes) for each in needs], memory_rooms())


def _everywhere(need: Need) -> int:
    return need.nbytes


def _here(need: Need) -> int:
    """Its bytes in this process, to which `ulimit` applies."""
    return need.nbytes - need.elsewhere


def _refuse_memory(run: RunNeeds, rooms: Sequence[Room], counted_of: Callable[[Need], int]) -> None:
    def fitting(room: Room) -> int | None:
        def enough(capacity: int) -> bool:
            return sum(map(counted_of, run.with_capacity(capacity).memory)) <= room.nbytes

        return _fitting([run], enough)

    _refuse_parts(run.name, [(each, counted_of(each)) for each in run.memory], rooms, fitting)


def _refuse_parts(
    name: str,
    parts: Parts,
    rooms: Sequence[Room],
    fitting: Callable[[Room], int | None] = lambda _: None,
) -> None:
    """`fitting` gives the capacity of the replay buffer with which a room would do."""
    if not rooms:
        return
    room = min(rooms, key=lambda each: each.nbytes)
    needed = sum(nbytes for _, nbytes in parts)
    if needed <= room.nbytes:
        return
    raise ConfigError(
        f"{name} needs {size(needed)} of memory, but {size(room.nbytes)} is available "
        f"({room.limit}): {_listed(parts)}. To reduce it: {_smaller(parts, fitting(room))}"
    )


def _large(parts: Parts) -> Parts:
    """Those that count, by their size."""
    least = MENTIONED * sum(nbytes for _, nbytes in parts)
    return sorted((each for each in parts if each[1] >= least), key=lambda each: -each[1])


def _listed(parts: Parts) -> str:
    """The parts by their size; the small ones together."""
    large = _large(parts)
    parts_listed = [
        f"{need.what} {size(nbytes)}" + (f" ({need.because})" if need.settings else "")
        for need, nbytes in large
    ]
    rest = sum(nbytes for _, nbytes in parts) - sum(nbytes for _, nbytes in large)
    return ", ".join([*parts_listed, f"other {size(rest)}"] if rest else parts_listed)


def _smaller(parts: Parts, capacity: int | None) -> str:
    """A capacity that would do, and the settings behind the parts that count."""
    found = [each for need, _ in _large(parts) for each in need.settings.items()]
    names = [f"{name}=false" if value == "true" else name for name, value in found]
    if capacity is not None:
        names = [each for each in names if each != CAPACITY]
        names.insert(0, f"{CAPACITY}={capacity}")
    return ", ".join(dict.fromkeys(names))


def _fitting(runs: Sequence[RunNeeds], enough: Callable[[int], bool]) -> int | None:
    """The largest capacity that is enough, in two digits; None where none is allowed and enough."""
    low = max(each.effective.config.trainer.warmup_period for each in runs)
    low, high = max(1, low), max(each.effective.config.replay_buffer.capacity for each in runs)
    if low > high or not enough(low):
        return None
    least = low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    step = int(10 ** max(0, len(str(low)) - 2))
    return max(least, low // step * step)
