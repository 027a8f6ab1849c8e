"""From a RunConfig to the objects of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from border_cli.core import threads
from border_cli.core.config import RunConfig
from border_cli.core.errors import BorderError, ConfigError
from border_cli.core.interfaces import ActorManager, Agent, EnvFactory, EvaluationRunner
from border_cli.core.machine import out_of_memory
from border_cli.core.output import Checkpoints
from border_cli.core.seeding import generator
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.core.timing import Clock
from border_cli.offline import build_replay_buffer, observe_stored, rehearse_dataset
from border_cli.parts import (
    actor_manager_config,
    build_actors,
    build_first_agent,
    countable_agent,
    memory_settings,
    num_actors,
    slack,
    torch_threads,
)
from border_cli.probe import Probes
from border_cli.registry import ACTOR_MANAGERS, TRAINERS
from border_cli.trainer.post_step import PostStep
from border_cli.trainer.recording import Recording
from border_cli.trainer.saving import Saving
from border_cli.trainer.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The objects of one run, built and not yet started."""

    agent: Agent
    actors: ActorManager
    judge: EvaluationRunner
    post_step: PostStep
    recording: Recording
    trainer: Trainer


def thread_budget(config: RunConfig, spec: EnvSpec) -> str:
    """Who computes with how many threads, as it is in effect now."""
    actors = actor_manager_config(config)
    return threads.thread_budget(
        torch=torch_threads(config, spec),
        blas=threads.blas_threads(),
        actors=num_actors(config),
        actor_manager=ACTOR_MANAGERS.entry_of(actors).name,
        cores=threads.available_cores(),
    )


def assemble(
    config: RunConfig,
    *,
    agent: Agent,
    factory: EnvFactory,
    judge: EvaluationRunner,
    recording: Recording,
    checkpoints: Checkpoints,
    clock: Clock,
    stop: StopFlag,
    save: SaveFlag,
    on_saved: Callable[[Mapping[str, float]], None],
) -> Assembly:
    """Builds the rest; nothing runs yet. Large memory is allocated here."""
    replay_buffer = build_replay_buffer(config, factory.spec, agent.observe_returns)
    observe_stored(agent, replay_buffer)
    actors = build_actors(config, agent, factory, clock)
    post_step = PostStep(
        config.trainer,
        agent=agent,
        replay_buffer=replay_buffer,
        actors=actors,
        judge=judge,
        checkpoints=checkpoints,
        saving=Saving(config.trainer, checkpoints, clock=clock, flag=save, on_saved=on_saved),
        recording=recording,
        clock=clock,
    )
    if config.init_from is not None:
        post_step.begin_trained()
    trainer: Trainer = TRAINERS.build(
        config.trainer,
        agent=agent,
        replay_buffer=replay_buffer,
        actors=actors,
        post_step=post_step,
        batch_size=config.agent.batch_size,
        slack=slack(config),
        observation=factory.spec.observation,
        stop=stop,
    )
    return Assembly(
        agent=agent,
        actors=actors,
        judge=judge,
        post_step=post_step,
        recording=recording,
        trainer=trainer,
    )


def rehearse(config: RunConfig, probes: Probes) -> tuple[EnvSpec, Agent] | None:
    """Tries the environments, builds what is cheap, and refuses most: agent and policies.

    Returns the agent and what it was built for, to be counted and dropped; None where they could
    not be built.

    Raises ConfigError for what only the components themselves can refuse, ProbeFailed where an
    environment failed as it was tried, and CheckpointError where `init_from` does not fit. Any
    other failure is left to the run, which reports it with its traceback.
    """
    try:
        spec = probes.training(config)
        rehearse_dataset(config, spec)
        probes.evaluation(config)
        if config.resume is None:
            agent = build_first_agent(config, spec, countable_agent)
        else:  # the weights that it began with may be long gone, and are not needed
            agent = countable_agent(config, spec)
        for exploration in _explorations(config):
            agent.policy_factory(generator(config.seed), exploration)
    except BorderError:
        raise
    except Exception as error:
        refused = out_of_memory(
            error, "the run does not fit in memory", memory_settings(config), ConfigError
        )
        if refused is not None:
            raise refused from error
        log.debug("the pre-flight check failed; the run will report the error", exc_info=True)
        return None
    return spec, agent


def _explorations(config: RunConfig) -> set[float | None]:
    """Those of the actors, each once: a million actors have few."""
    actors = range(num_actors(config))
    ends = [*actors[:1], *actors[-1:]]  # of ape_x, whose constants lie between two that are valid
    spread = config.actor_manager.exploration == "ape_x"
    return {config.actor_manager.exploration_of(i) for i in (ends if spread else actors)}
