"""What a run needs of memory and disk at most, against what there is, before it begins."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.process import MESSAGES_PER_RING
from border_cli.actor_manager.thread import MESSAGES_PER_ACTOR
from border_cli.agent.action_space import name_of
from border_cli.agent.learner_config import LearnerConfig
from border_cli.core.config import RunConfig, StartMethod
from border_cli.core.errors import ConfigError
from border_cli.core.interfaces import Agent
from border_cli.core.machine import (
    Room,
    address_rooms,
    free_disk,
    memory_for,
    memory_rooms,
    thread_nbytes,
)
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
from border_cli.core.threads import available_cores
from border_cli.core.words import counted, size
from border_cli.dataset.recorded_episodes import GROUP, GROUP_NBYTES
from border_cli.launch.build import (
    actor_manager_config,
    evaluates_in_background,
    num_actors,
    slack,
    torch_threads,
)
from border_cli.launch.offline_data import SETTING, dataset_of, dataset_size
from border_cli.nn.unfilled import Unfilled
from border_cli.registry import ACTOR_MANAGERS, REPLAY_BUFFERS
from border_cli.replay_buffer.config import Normalize, PrioritizedConfig
from border_cli.replay_buffer.frozen_rows import ASIDE_NBYTES
from border_cli.replay_buffer.sum_tree import FANOUT, TOP
from border_cli.replay_buffer.uniform import RingReplayBuffer

PRIORITY_NBYTES = 8  # float64

MIB = 2**20

# From here on to the end of a run on CartPole: 27 MB, of which the recorders' imports are most.
PROGRAM_NBYTES = 48 * MIB
PROGRAM_RESERVED = 96 * MIB  # the same in address space: 77 MB, without its threads
OWN_THREADS = 2  # the watchdog, and the one that writes checkpoints

ENV_NBYTES = 128 * 1024  # CartPole 4 kB, LunarLander 103 kB

# What a process adds, pages that it shares with others not counted: 8 MB with CartPole, 14 with
# LunarLander; one that was spawned shares next to nothing. The fork server and Python's resource
# tracker add 21 MB once, with the pages that all share.
WORKER_NBYTES = 16 * MIB
SPAWNED_NBYTES = 48 * MIB
SERVER_NBYTES = 32 * MIB

GATHERED_NBYTES = 1024  # Python's objects around each row that waits in a proxy
# What malloc keeps of what was freed, as a share of all that comes and goes. With frames of 84x84x4
# bytes, where 340 MiB come and go, 470 to 600 MiB were held; with CartPole next to nothing.
KEPT_FREE = 0.75
WIDE = 100_000  # numbers of an observation or an action, which make a layer large by themselves
PIECE_NBYTES = 32 * MIB  # of rows that are copied at a time on their way to the disk

STATE_NBYTES = 128 * 1024  # counters, generators, actors and manifest of a checkpoint
ROW_OF_METRICS_NBYTES = 2_500  # up to 1,300 as JSON and 1,100 as events of TensorBoard
LOGS_NBYTES = 2**20
MOST_BEST = 3  # best models at once: being written, the best, and the one before it

Parts: TypeAlias = "list[tuple[Need, int]]"  # with their bytes

CAPACITY = "replay_buffer.capacity"
MENTIONED = 0.02  # of all that is needed; what is less goes without its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that a run needs, at most."""

    what: str
    nbytes: int  # in memory, of all processes together; or on the disk
    settings: Mapping[str, object] = field(default_factory=dict)  # that it follows from
    reserved: int = 0  # bytes of the learner's address space, used or not

    @property
    def because(self) -> str:
        """Its settings as they are typed."""
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSizes:
    """How large an agent is."""

    parameters: int  # that actors get
    weights: int  # bytes of these
    state: int  # bytes of a checkpoint of it: with targets, optimiser and all
    units: int  # that have a bias: what a row becomes on its way through the networks
    on_host: bool  # computes in this machine's memory, not in a GPU's


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
    """How large the replay buffer is; all 0 where it is of a kind that nobody can tell of."""

    capacity: int  # rows that actors can add
    dataset: int = 0  # rows of a data set, which stay
    row: int  # bytes of one row as it is stored
    trees: int  # bytes of the priorities and the sums over them
    priorities: int  # bytes of the priorities alone, as a checkpoint holds them

    @property
    def nbytes(self) -> int:
        return (self.dataset + self.capacity) * self.row + self.trees


def replay_sizes(config: RunConfig, spec: EnvSpec) -> ReplaySizes:
    """Of the buffer these settings choose; nothing is allocated."""
    settings = config.replay_buffer
    known = issubclass(REPLAY_BUFFERS.load(settings), RingReplayBuffer)
    trees = 0
    if known and isinstance(settings, PrioritizedConfig):
        trees = tree_nbytes(settings.capacity) * (1 + (settings.normalize == Normalize.buffer))
    learned = dataset_size(config)
    return ReplaySizes(
        capacity=0 if config.trainer.offline else settings.capacity,
        dataset=learned.steps if learned else 0,
        row=storage_nbytes(spec, 1) if known else 0,
        trees=trees,
        priorities=settings.capacity * PRIORITY_NBYTES if trees else 0,
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


def disk_needs(config: RunConfig, *, agent: AgentSizes, replay: ReplaySizes) -> list[Need]:
    """Checkpoints, best models, metrics."""
    # While one is written, the oldest is not yet gone.
    checkpoints = config.checkpoint.keep + 1
    needs = []
    if config.checkpoint.replay_buffer and replay.row and replay.capacity:
        rows = rows_on_disk(config, replay.capacity)
        needs.append(
            Need(
                what=f"replay buffer, {rows:,} transitions",
                nbytes=rows * replay.row + checkpoints * replay.priorities,
                settings={
                    "replay_buffer.capacity": (
                        f"{replay.capacity} transitions of {size(replay.row)}"
                    ),
                    "checkpoint.replay_buffer": "true",
                    "checkpoint.keep": config.checkpoint.keep,
                },
            )
        )
    state = agent.state + STATE_NBYTES
    interval = config.checkpoint.milestone_interval
    milestones = {"checkpoint.milestone_interval": interval} if interval else {}
    needs.append(
        Need(
            what="the agent",
            nbytes=(checkpoints + MOST_BEST + _milestones(config)) * state,
            settings={"checkpoint.keep": config.checkpoint.keep} | milestones,
        )
    )
    metrics = (metric_rows(config) or 0) + (evaluations(config) or 0)
    needs.append(
        Need(
            what="metrics and logs",
            nbytes=metrics * ROW_OF_METRICS_NBYTES + LOGS_NBYTES,
            settings={"trainer.record_interval": config.trainer.record_interval},
        )
    )
    return needs


def most_rows(config: RunConfig) -> int | None:
    """Rows that the whole run can push; None where nothing limits them."""
    if config.trainer.offline:
        return 0
    trainer, limits = config.trainer, []
    if trainer.max_env_steps is not None:
        limits.append(trainer.max_env_steps)
    if trainer.max_opt_steps is not None and trainer.samples_per_opt_step is not None:
        learned = math.ceil(trainer.max_opt_steps * trainer.samples_per_opt_step)
        limits.append(trainer.warmup_period + learned)
    # What actors are ahead comes on top, as does a round of environments that step together.
    ahead = slack(config) + config.actor_manager.num_actors * config.env.num_envs
    return min(limits) + ahead if limits else None


def rows_per_save(config: RunConfig, capacity: int) -> int:
    """Rows that one checkpoint writes at most."""
    trainer = config.trainer
    ratio, interval = trainer.samples_per_opt_step, trainer.save_interval
    if interval == 0 and trainer.save_every_s is None:
        return 0  # the end of the run alone saves
    if interval == 0 or ratio is None:
        return capacity  # nobody knows how many come in between
    return min(capacity, math.ceil(interval * ratio))


def rows_on_disk(config: RunConfig, capacity: int) -> int:
    """Rows in all chunks at once: those that the oldest checkpoint names, and all later ones.

    A chunk stays as long as one of its rows is named, hence one interval more.
    """
    most = most_rows(config)
    named = capacity + (config.checkpoint.keep + 1) * rows_per_save(config, capacity)
    return named if most is None else min(most, named)


def evaluations(config: RunConfig) -> int | None:
    """Evaluations of the whole run, that of its end included; None where nothing limits them."""
    return _times(config, config.trainer.eval_interval)


def metric_rows(config: RunConfig) -> int | None:
    """Rows of metrics at most; None where nothing limits them."""
    return _times(config, config.trainer.record_interval)


def checkpoints_made(config: RunConfig) -> int | None:
    """Checkpoints of the whole run by `save_interval`, that of its end included."""
    return _times(config, config.trainer.save_interval)


def opt_steps(config: RunConfig) -> int | None:
    """Optimisation steps of the whole run; None where nothing limits them."""
    trainer, limits = config.trainer, []
    if trainer.max_opt_steps is not None:
        limits.append(trainer.max_opt_steps)
    ratio = None if config.trainer.offline else trainer.samples_per_opt_step
    if trainer.max_env_steps is not None and ratio is not None:
        learned = max(0, trainer.max_env_steps - trainer.warmup_period)
        limits.append(int(learned / ratio))
    return min(limits, default=None)


def _times(config: RunConfig, interval: int) -> int | None:
    """How often something happens: every so many optimisation steps, and at the end."""
    steps = opt_steps(config)
    if steps is None:
        return None
    return -(-steps // interval) if interval else 1


def _milestones(config: RunConfig) -> int:
    interval, steps = config.checkpoint.milestone_interval, opt_steps(config)
    return steps // interval if interval and steps else 0


def on_disk(run_dir: Path) -> int:
    """Bytes that an earlier attempt left in a run directory."""
    held, folders = 0, [run_dir]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:  # a file may go meanwhile
            for each in entries:
                if each.is_dir(follow_symlinks=False):
                    folders.append(Path(each.path))
                else:
                    held += each.stat(follow_symlinks=False).st_size
    return held


def memory_needs(
    config: RunConfig, spec: EnvSpec, *, agent: AgentSizes, replay: ReplaySizes, cores: int
) -> list[Need]:
    """Everything that is allocated from the start of the run on."""
    acting = [_under_way(config, spec), _actors(config, spec, agent)]
    passing = [
        *(acting if num_actors(config) else []),
        _agent(config, spec, agent),
        _evaluation(config, spec, agent),
        _saving(config, agent, replay),
    ]
    kept = int(KEPT_FREE * sum(min(each.nbytes, each.reserved) for each in passing))
    held = Need(what="allocator overhead", nbytes=kept, reserved=kept)
    rows = [*_dataset(config, replay), *([_replay_buffer(replay)] if replay.capacity else [])]
    return [*rows, *passing, held, _program(config, spec, cores)]


def loading_needs(config: RunConfig, agent: AgentSizes) -> list[Need]:
    """A saved model that shall act: the agent, its file while it is read, and two copies."""
    nbytes = 2 * agent.state + 2 * agent.weights
    settings = config.agent.taking_memory()
    return [Need(what="the saved agent", nbytes=nbytes, reserved=nbytes, settings=settings)]


def playing_needs(config: RunConfig, spec: EnvSpec, agent: AgentSizes) -> list[Need]:
    """The episodes of one evaluation, side by side in this process."""
    here = replace(config, evaluator=replace(config.evaluator, background=False))
    return [_evaluation(here, spec, agent)]


def _dataset(config: RunConfig, replay: ReplaySizes) -> list[Need]:
    """The rows of a data set, and what reading them takes."""
    dataset = dataset_of(config)
    if dataset is None:
        return []
    rows = replay.dataset * replay.row
    nbytes = rows + 2 * min(GROUP_NBYTES, GROUP * rows)  # the episodes read last, and these padded
    settings = {SETTING: f"{dataset}, {replay.dataset} transitions of {size(replay.row)}"}
    return [Need(what="data set", nbytes=nbytes, reserved=nbytes, settings=settings)]


def _replay_buffer(replay: ReplaySizes) -> Need:
    nbytes = replay.capacity * replay.row + replay.trees
    return Need(
        what="replay buffer" if replay.row else "replay buffer (unknown size)",
        nbytes=nbytes,
        reserved=nbytes,
        settings={"replay_buffer.capacity": f"{replay.capacity} transitions of {size(replay.row)}"},
    )


def _under_way(config: RunConfig, spec: EnvSpec) -> Need:
    """Rows between the environments and the replay buffer."""
    actors = actor_manager_config(config)
    gathered = max(actors.n_buffer, config.env.num_envs)  # rows, in one message
    row = transition_nbytes(spec)
    proxies = actors.num_actors * gathered * (row + GATHERED_NBYTES)
    if isinstance(actors, ProcessConfig):
        shared = actors.num_actors * storage_nbytes(spec, MESSAGES_PER_RING * actors.n_buffer)
        nbytes, reserved = shared + proxies, shared
    else:
        # As many again as wait are in the learner's hands, and one is being joined.
        waiting = 2 * MESSAGES_PER_ACTOR + 1
        nbytes = reserved = actors.num_actors * waiting * gathered * row + proxies
    return Need(
        what="transitions in flight",
        nbytes=nbytes,
        reserved=reserved,
        settings={
            "actor_manager.n_buffer": actors.n_buffer,
            "actor_manager.num_actors": actors.num_actors,
        },
    )


def _actors(config: RunConfig, spec: EnvSpec, agent: AgentSizes) -> Need:
    """Processes, environments, and every actor's own copy of the weights."""
    actors = actor_manager_config(config)
    environments = config.env.num_envs * _environment(spec, agent)
    each = environments + 2 * agent.weights  # the copy it acts with, and the next one
    apart = isinstance(actors, ProcessConfig)
    server = 0
    if isinstance(actors, ProcessConfig):
        spawned = actors.start_method == StartMethod.spawn
        each += SPAWNED_NBYTES if spawned else WORKER_NBYTES
        server = SERVER_NBYTES
    kind = ACTOR_MANAGERS.entry_of(actors).name
    return Need(
        what=f"{counted(actors.num_actors, 'actor')}, {kind}",
        nbytes=actors.num_actors * each + server,
        reserved=0 if apart else actors.num_actors * each,
        settings={
            "actor_manager.num_actors": actors.num_actors,
            "env.num_envs": config.env.num_envs,
        },
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
        # Both observations as numbers, at once with the copy that joins them; of the units the
        # values of three passes and their gradients.
        per_row = 4 * encoded_nbytes(spec.observation) + 6 * 4 * agent.units
        nbytes += agent.state + agent.weights + config.agent.batch_size * per_row
    return Need(
        what="agent",
        nbytes=nbytes,
        reserved=nbytes,
        settings=config.agent.taking_memory() | _interface(spec),
    )


def _interface(spec: EnvSpec) -> dict[str, Any]:
    """The environment, where it is what makes the first or the last layer large."""
    numbers = encoded_nbytes(spec.observation) // 4
    if max(numbers, encoded_nbytes(spec.action) // 4) < WIDE:
        return {}
    told = f"{spec.id}, {numbers:,} numbers per observation, actions {name_of(spec.action)}"
    return {"env.id": told}


def _evaluation(config: RunConfig, spec: EnvSpec, agent: AgentSizes) -> Need:
    trainer = config.trainer
    confirms = trainer.stop_at_score is not None and trainer.stop_confirmations > 0
    environments = (1 + confirms) * config.evaluator.num_episodes
    nbytes = environments * _environment(spec, agent) + 2 * agent.weights
    reserved = nbytes
    if evaluates_in_background(config):
        nbytes, reserved = nbytes + WORKER_NBYTES + SERVER_NBYTES, 0
    return Need(
        what="evaluation",
        nbytes=nbytes,
        reserved=reserved,
        settings={"evaluator.num_episodes": config.evaluator.num_episodes},
    )


def _saving(config: RunConfig, agent: AgentSizes, replay: ReplaySizes) -> Need:
    """A checkpoint and the best model while they are written: copies, and the bytes of a file. The
    files of the best model stay in memory."""
    nbytes = 6 * agent.state
    if config.checkpoint.replay_buffer:
        nbytes += PIECE_NBYTES + replay.priorities + _aside(config, replay)
    return Need(
        what="checkpoints being written",
        nbytes=nbytes,
        reserved=nbytes,
        settings={"checkpoint.replay_buffer": str(config.checkpoint.replay_buffer).lower()},
    )


def _aside(config: RunConfig, replay: ReplaySizes) -> int:
    """Rows copied aside because they are overwritten before the disk has taken them.

    New rows lie in front of those just saved, so only with few saves this comes near.
    """
    rows = rows_per_save(config, replay.capacity)
    return min(ASIDE_NBYTES, rows * replay.row) if 2 * rows > replay.capacity else 0


def _program(config: RunConfig, spec: EnvSpec, cores: int) -> Need:
    actors = actor_manager_config(config)
    kind = ACTOR_MANAGERS.entry_of(actors).name
    # One supervisor for all processes; users' own managers are taken to be like `thread`.
    acting = {"serial": 0, "process": 1}.get(kind, num_actors(config))
    torch = torch_threads(config, spec)
    threads = OWN_THREADS + acting + torch - 1
    return Need(
        what=f"the program and {threads} threads",
        nbytes=PROGRAM_NBYTES,
        reserved=PROGRAM_RESERVED + thread_nbytes(threads, cores),
        settings={"actor_manager.num_actors": acting} if acting > 1 else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run that shall begin."""

    config: RunConfig
    run_dir: Path
    spec: EnvSpec
    agent: AgentSizes
    name: str = "the run"
    cores: int = 1
    held: int = 0  # bytes that are in its run directory already

    @property
    def memory(self) -> list[Need]:
        """What it needs of memory at most, beside what this process holds."""
        replay = replay_sizes(self.config, self.spec)
        return memory_needs(
            self.config, self.spec, agent=self.agent, replay=replay, cores=self.cores
        )

    @property
    def disk(self) -> list[Need]:
        """What its run directory takes at most."""
        replay = replay_sizes(self.config, self.spec)
        return disk_needs(self.config, agent=self.agent, replay=replay)

    @property
    def memory_nbytes(self) -> int:
        """Of all processes together."""
        return sum(each.nbytes for each in self.memory)

    @property
    def reserved_nbytes(self) -> int:
        """Of the learner's address space."""
        return sum(each.reserved for each in self.memory)

    @property
    def disk_nbytes(self) -> int:
        """Beside what is there already."""
        return max(0, sum(each.nbytes for each in self.disk) - self.held)

    def with_capacity(self, rows: int) -> Plan:
        """The same with a replay buffer of at most so many rows."""
        smaller = min(rows, self.config.replay_buffer.capacity)
        replay_buffer = replace(self.config.replay_buffer, capacity=smaller)
        return replace(self, config=replace(self.config, replay_buffer=replay_buffer))


def plan(
    config: RunConfig, run_dir: Path, built: tuple[EnvSpec, Agent], name: str = "the run"
) -> Plan:
    """Counts what was built for the rehearsal; it need not be kept."""
    spec, agent = built
    sizes = sizes_of(config, agent)
    return Plan(
        config=config,
        run_dir=run_dir,
        spec=spec,
        agent=sizes,
        name=name,
        cores=available_cores(),
        held=on_disk(run_dir) if config.resume is not None else 0,
    )


def sizes_of(config: RunConfig, agent: Agent) -> AgentSizes:
    """Raises ConfigError where not even a copy of its weights fits into memory."""
    what = "the agent's weights and a copy of them do not fit in memory"
    with memory_for(what, config.agent.taking_memory(), ConfigError):
        sizes = agent_sizes(agent)
    if isinstance(config.agent, LearnerConfig) and config.agent.optimizer != "adam":
        # Its averages exist from the first step on: two of each weight, most of which are in the
        # state once for themselves and once for a target.
        sizes = replace(sizes, state=2 * sizes.state + sizes.weights)
    return sizes


def refuse_unmet(
    plans: Sequence[Plan],
    *,
    memory: Sequence[Room] | None = None,
    addresses: Sequence[Room] | None = None,
    disk: Callable[[Path], Room] = free_disk,
) -> None:
    """Raises ConfigError where memory or disk are too small for these runs, one after another.

    `memory` and `addresses` are what there is; by default this machine's.
    """
    if not plans:
        return
    rooms = memory_rooms() if memory is None else memory
    _refuse_memory(max(plans, key=lambda each: each.memory_nbytes), rooms, "nbytes")
    rooms = address_rooms() if addresses is None else addresses
    _refuse_memory(max(plans, key=lambda each: each.reserved_nbytes), rooms, "reserved")
    _refuse_disk(plans, disk(plans[0].run_dir))


def refuse_no_room(name: str, needs: Sequence[Need]) -> None:
    """The same for what is no run: `name` is what needs the memory of this process."""
    _refuse_parts(name, [(each, each.nbytes) for each in needs], memory_rooms())
    _refuse_parts(name, [(each, each.reserved) for each in needs], address_rooms())


def _refuse_memory(plan: Plan, rooms: Sequence[Room], which: str) -> None:
    def fitting(room: Room) -> int | None:
        def enough(rows: int) -> bool:
            needs = plan.with_capacity(rows).memory
            return sum(int(getattr(each, which)) for each in needs) <= room.nbytes

        return _fitting([plan], enough)

    parts = [(each, int(getattr(each, which))) for each in plan.memory]
    _refuse_parts(plan.name, parts, rooms, fitting)


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


def _refuse_disk(plans: Sequence[Plan], room: Room) -> None:
    needed = sum(each.disk_nbytes for each in plans)
    if needed <= room.nbytes:
        return
    largest = max(plans, key=lambda each: each.disk_nbytes)
    parts = [(each, each.nbytes) for each in largest.disk]

    def enough(rows: int) -> bool:
        return sum(each.with_capacity(rows).disk_nbytes for each in plans) <= room.nbytes

    who, listed = largest.name, _listed(parts)
    if len(plans) > 1:
        who, listed = f"the sweep of {len(plans)} jobs", f"the largest is {largest.name}, {listed}"
    if any(each.held for each in plans):
        listed += f"; {size(sum(each.held for each in plans))} is already written"
    raise ConfigError(
        f"{who} writes up to {size(needed)}, but {size(room.nbytes)} is free ({room.limit}): "
        f"{listed}. To reduce it: {_smaller(parts, _fitting(plans, enough))}; or set run_dir to "
        "another disk"
    )


def _large(parts: Parts) -> Parts:
    """Those that count, by their size."""
    least = MENTIONED * sum(nbytes for _, nbytes in parts)
    return sorted((each for each in parts if each[1] >= least), key=lambda each: -each[1])


def _listed(parts: Parts) -> str:
    """The parts by their size; the small ones together."""
    large = _large(parts)
    said = [
        f"{need.what} {size(nbytes)}" + (f" ({need.because})" if need.settings else "")
        for need, nbytes in large
    ]
    rest = sum(nbytes for _, nbytes in parts) - sum(nbytes for _, nbytes in large)
    return ", ".join([*said, f"other {size(rest)}"] if rest else said)


def _smaller(parts: Parts, capacity: int | None) -> str:
    """A capacity that would do, and the settings behind the parts that count."""
    found = [each for need, _ in _large(parts) for each in need.settings.items()]
    names = [f"{name}=false" if value == "true" else name for name, value in found]
    if capacity is not None:
        names = [each for each in names if each != CAPACITY]
        names.insert(0, f"{CAPACITY}={capacity}")
    return ", ".join(dict.fromkeys(names))


def _fitting(plans: Sequence[Plan], enough: Callable[[int], bool]) -> int | None:
    """The largest capacity that is enough, in two digits; None where none is allowed and enough."""
    low = max(each.config.trainer.warmup_period for each in plans)
    low, high = max(1, low), max(each.config.replay_buffer.capacity for each in plans)
    if low > high or not enough(low):
        return None
    least = low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    step = int(10 ** max(0, len(str(low)) - 2))
    return max(least, low // step * step)
