"""What a run will need of memory at most, beside what its process holds already.

Counted from settings, before anything is allocated. What no setting tells was measured, on Linux
with Python 3.11 and torch 2.13.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.process import MESSAGES_PER_RING
from border_cli.actor_manager.thread import MESSAGES_PER_ACTOR
from border_cli.agent.action_space import name_of
from border_cli.core.config import RunConfig, StartMethod
from border_cli.core.machine import size, thread_nbytes
from border_cli.core.rows import storage_nbytes
from border_cli.core.spaces import EnvSpec, row_nbytes, transition_nbytes
from border_cli.core.words import counted
from border_cli.dataset.episodes import GROUP, GROUP_NBYTES
from border_cli.needs.disk import rows_per_save
from border_cli.needs.sizes import AgentSizes, Need, ReplaySizes, encoded_nbytes
from border_cli.offline import SETTING, dataset_of
from border_cli.parts import (
    actor_manager_config,
    evaluates_in_background,
    num_actors,
    torch_threads,
)
from border_cli.registry import ACTOR_MANAGERS
from border_cli.replay_buffer.frozen import ASIDE_NBYTES

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
