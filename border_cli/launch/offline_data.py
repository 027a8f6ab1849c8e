"""The data set of a run: checks it against the environment and converts it into transitions.

Episodes become `Step`s as if up to 64 environments had played them in parallel. The run's own step
processor turns these into transitions, so that n-step returns, gamma, and bootstrapping at
truncations but not at terminations are handled in one place. An episode recorded without its end
counts as truncated. The dry build compares the spaces with those of the environment and checks the
first episode. Later, every episode is checked for gaps, non-finite values, and invalid observations
and actions. If the environment flattens its observations and the recorded ones are not flat, they
are flattened in the same way (`env/flattened.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from border_cli.core.interfaces import StepProcessor
from border_cli.core.returns import DiscountedReturns, Moments
from border_cli.core.spaces import DictSpace, EnvSpec
from border_cli.core.types import EPISODE, Step, Transitions
from border_cli.dataset.minari_files import MinariDataset
from border_cli.dataset.recorded_episodes import (
    Checksum,
    RecordedEpisode,
    group_episodes,
    parallel_steps,
    refuse_damaged,
    refuse_other_spaces,
)
from border_cli.dataset.store import counts_of, refuse_unknown
from border_cli.env.flattened import flat_space, flatten_observations, flattened_space
from border_cli.env.translate import action_rows, observation_rows, spaces_of
from border_cli.errors import BadStep, ConfigError
from border_cli.launch.effective import DATASET, EffectiveSettings
from border_cli.registry import STEP_PROCESSORS
from border_cli.replay_buffer.dataset import DatasetRows

OBSERVED = 4096  # steps per call of `observe_returns`
ObserveReturns: TypeAlias = Callable[[Moments], None]


def check_dataset(effective: EffectiveSettings, spec: EnvSpec) -> None:
    """Raises ConfigError if the data set is missing or does not match the environment."""
    recording = MinariDataset(refuse_unknown(DATASET, effective.config.replay_buffer.dataset))
    if extras := [name for name, _, _ in effective.extras(spec) if name != EPISODE]:
        raise ConfigError(
            f"{DATASET}={recording.id} has no column {' or '.join(extras)}, from which agent="
            f"{effective.config.agent.option} learns. Use replay_buffer=uniform"
        )
    inner = _inner_space(effective, recording)
    observed = recording.observation_space if inner is None else flat_space(inner)
    spaces = spaces_of(observed, recording.action_space, DATASET, recording.id)
    refuse_other_spaces(DATASET, recording.id, *spaces, spec)
    next(_episodes(recording, spec, inner), None)  # checks the first episode


def dataset_rows(
    effective: EffectiveSettings, spec: EnvSpec, observe_returns: ObserveReturns | None
) -> DatasetRows:
    """Returns the data set for the replay buffer: its transitions and metadata."""
    config, checksum = effective.config, Checksum()
    dataset = refuse_unknown(DATASET, config.replay_buffer.dataset)
    return DatasetRows(
        id=dataset,
        rows=dataset_transitions(
            effective, MinariDataset(dataset), spec, checksum, observe_returns
        ),
        steps=counts_of(dataset)[1],
        checksum=checksum,
        grows=not config.trainer.offline,
        share=config.replay_buffer.dataset_share,
    )


def dataset_transitions(
    effective: EffectiveSettings,
    recording: MinariDataset,
    spec: EnvSpec,
    checksum: Checksum,
    observe_returns: ObserveReturns | None,
) -> Iterator[Transitions]:
    """Yields all transitions of a data set, as processed by the run's own step processor."""
    config = effective.config
    processor_class: type[Any] = STEP_PROCESSORS.load(config.step_processor)
    inner = _inner_space(effective, recording)
    episodes = checksum.update_each(_episodes(recording, spec, inner))
    for group in group_episodes(episodes, spec):
        processor: StepProcessor = processor_class(
            config.step_processor, gamma=config.agent.gamma, num_envs=len(group)
        )
        steps = parallel_steps(group)
        if observe_returns is not None and config.agent.needs_returns:
            returns = DiscountedReturns(config.agent.gamma, len(group))
            steps = _report_returns(steps, returns, observe_returns)
        for step in steps:
            rows = processor.process(step)
            if len(rows):
                yield rows


def _report_returns(
    steps: Iterator[Step], returns: DiscountedReturns, observe_returns: ObserveReturns
) -> Iterator[Step]:
    """Yields the steps, and passes statistics of their running returns to `observe_returns`."""
    for count, step in enumerate(steps, 1):
        returns.update(step.reward, step.terminated | step.truncated, step.moved)
        if count % OBSERVED == 0:
            for moments in returns.take():
                observe_returns(moments)
        yield step
    for moments in returns.take():
        observe_returns(moments)


def _inner_space(effective: EffectiveSettings, recording: MinariDataset) -> Any:
    """Returns the space that the environment flattens, or None if observations are read as
    recorded."""
    name = f"{DATASET}={recording.id}"
    return flattened_space(effective.env, recording.observation_space, name)


def _episodes(recording: MinariDataset, spec: EnvSpec, inner: Any) -> Iterator[RecordedEpisode]:
    for number, raw in enumerate(recording.episodes()):
        if not len(raw.rewards):
            continue
        where = f"data set {recording.id}, episode {number}"
        try:
            if inner is None:
                obs = observation_rows(recording.observation_space, raw.observations)
            else:
                count = len(raw.rewards) + 1
                flat = flatten_observations(inner, raw.observations, count)
                obs = observation_rows(flat_space(inner), flat)
            action = action_rows(recording.action_space, raw.actions)
        except BadStep as error:
            raise ConfigError(f"{where}: {error}") from None
        if isinstance(obs, dict):
            assert isinstance(spec.observation, DictSpace)
            obs = {key: obs[key] for key in spec.observation.spaces}  # in the environment's order
        episode = RecordedEpisode(
            obs=obs,
            action=action,
            reward=np.asarray(raw.rewards, np.float32),
            terminated=np.asarray(raw.terminations, np.bool_),
            truncated=np.asarray(raw.truncations, np.bool_),
        )
        refuse_damaged(where, episode, spec)
        yield episode
