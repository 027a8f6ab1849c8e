"""What a run learns from a data set: found, held against the environment, turned into rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.config import EvaluatorConfig, RunConfig
from border_cli.core.errors import BorderError, CheckpointError, ConfigError
from border_cli.core.interfaces import StepProcessor
from border_cli.core.replay import ReplayBuffer
from border_cli.core.seeding import Branch, generator
from border_cli.core.spaces import (
    BoxSpace,
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
    Space,
)
from border_cli.core.types import Array, Transitions, leaves
from border_cli.dataset.episodes import Checksum, RecordedEpisode, grouped, side_by_side
from border_cli.dataset.local import counts_of, reference_scores, refuse_unknown
from border_cli.dataset.reading import RawEpisode, Recording
from border_cli.registry import REPLAY_BUFFERS, STEP_PROCESSORS, TRAINERS
from border_cli.replay_buffer.config import DatasetConfig

SETTING = "replay_buffer.dataset"


@dataclass(frozen=True, slots=True)
class DatasetSize:
    """How large the data set of a run is."""

    id: str
    episodes: int
    steps: int


def dataset_of(config: RunConfig) -> str | None:
    """The id of the data set that a run learns from; None where it has none."""
    settings = config.replay_buffer
    return settings.dataset if isinstance(settings, DatasetConfig) else None


def dataset_size(config: RunConfig) -> DatasetSize | None:
    """What the data set of a run says of itself; None where it has none."""
    dataset = dataset_of(config)
    return None if dataset is None else DatasetSize(dataset, *counts_of(dataset))


def is_offline(config: RunConfig) -> bool:
    """Whether no actor samples: the data set is all there is."""
    offline: bool = TRAINERS.load(config.trainer).offline
    return offline


def rehearse_dataset(config: RunConfig, spec: EnvSpec) -> None:
    """Raises ConfigError where the data set is missing, or not one of this environment.

    Where a run shall go on, the data set that it had is missing: CheckpointError.
    """
    if is_offline(config) and not isinstance(config.replay_buffer, DatasetConfig):
        chosen = REPLAY_BUFFERS.entry_of(config.replay_buffer).name
        raise ConfigError(
            f"trainer=offline needs replay_buffer=dataset, which it chooses by itself, got {chosen}"
        )
    if not isinstance(config.replay_buffer, DatasetConfig):
        return
    try:
        dataset = refuse_unknown(SETTING, config.replay_buffer.dataset)
        counts_of(dataset)
        refuse_other_spaces(Recording(dataset), spec)
    except ConfigError as error:
        if config.resume is None or config.replay_buffer.dataset is None:
            raise
        raise CheckpointError(f"the run cannot go on without its data set: {error}") from error


def refuse_other_spaces(recording: Recording, spec: EnvSpec) -> None:
    """Raises ConfigError where observations or actions are not those of the environment."""
    # Not at the top: Gymnasium takes its time, and other runs need none of this.
    from border_cli.env.recorded import spaces_of

    name = f"the data set {recording.id}"
    observation, action = spaces_of(recording.observation_space, recording.action_space, name)
    for what, theirs, ours in (
        ("observations", observation, spec.observation),
        ("actions", action, spec.action),
    ):
        if _form(theirs) != _form(ours):
            raise ConfigError(
                f"{SETTING}={recording.id} has {what} {_form(theirs)}, those of "
                f"env.id={spec.id} are {_form(ours)}"
            )


def _form(space: Space) -> str:
    """What must be equal of two spaces; bounds may differ, which nobody stores."""
    match space:
        case DictSpace(spaces=parts):
            return "{" + ", ".join(f"{key}: {_form(parts[key])}" for key in sorted(parts)) + "}"
        case BoxSpace(shape=shape, dtype=dtype):
            return f"{dtype} {list(shape)}"
        case DiscreteSpace(n=n):
            return f"one of {n}"
        case MultiDiscreteSpace(nvec=nvec):
            return f"one each of {list(nvec)}"


def build_replay_buffer(config: RunConfig, spec: EnvSpec) -> ReplayBuffer:
    """The replay buffer, with the rows of its data set if it has one; large memory."""
    rng = generator(config.seed, Branch.REPLAY_BUFFER)
    settings = config.replay_buffer
    if not isinstance(settings, DatasetConfig):
        buffer: ReplayBuffer = REPLAY_BUFFERS.build(settings, spec=spec, rng=rng)
        return buffer
    dataset = refuse_unknown(SETTING, settings.dataset)
    checksum = Checksum()
    buffer = REPLAY_BUFFERS.build(
        settings,
        spec=spec,
        rng=rng,
        steps=counts_of(dataset)[1],
        rows=_rows(config, Recording(dataset), spec, checksum),
        checksum=checksum,
        grows=not is_offline(config),
    )
    return buffer


def _rows(
    config: RunConfig, recording: Recording, spec: EnvSpec, checksum: Checksum
) -> Iterator[Transitions]:
    """All rows of a data set, as the run's own step processor makes them."""
    make: type[Any] = STEP_PROCESSORS.load(config.step_processor)
    episodes = checksum.of_each(_episodes(recording, spec))
    for group in grouped(episodes, spec):
        processor: StepProcessor = make(
            config.step_processor, gamma=config.agent.gamma, num_envs=len(group)
        )
        for step in side_by_side(group, spec):
            rows = processor.process(step)
            if len(rows):
                yield rows


def _episodes(recording: Recording, spec: EnvSpec) -> Iterator[RecordedEpisode]:
    from border_cli.env.recorded import action_rows, observation_rows

    for raw in recording.episodes():
        if not len(raw.rewards):
            continue
        obs = observation_rows(recording.observation_space, raw.observations)
        if isinstance(obs, dict):
            assert isinstance(spec.observation, DictSpace)
            obs = {key: obs[key] for key in spec.observation.spaces}  # in the order of the env
        episode = RecordedEpisode(
            obs=obs,
            action=action_rows(recording.action_space, raw.actions),
            reward=np.asarray(raw.rewards, np.float32),
            terminated=np.asarray(raw.terminations, np.bool_),
            truncated=np.asarray(raw.truncations, np.bool_),
        )
        _refuse_damaged(recording.id, raw, episode, spec)
        yield episode


def _refuse_damaged(dataset: str, raw: RawEpisode, episode: RecordedEpisode, spec: EnvSpec) -> None:
    where = f"data set {dataset}, episode {raw.number}"
    steps = len(episode)
    columns = {
        "observations": (episode.obs, steps + 1),
        "actions": (episode.action, steps),
        "terminations": (episode.terminated, steps),
        "truncations": (episode.truncated, steps),
        "rewards": (episode.reward, steps),
    }
    for name, (column, expected) in columns.items():
        for leaf in leaves(column):
            if len(leaf) != expected:
                raise ConfigError(f"{where} has {len(leaf)} {name} for {steps} rewards")
            _refuse_not_finite(f"{where}, {name}", leaf)
    _refuse_outside(f"{where}, actions", episode.action, spec.action)


def _refuse_not_finite(where: str, leaf: NDArray[Any]) -> None:
    if leaf.dtype.kind != "f":
        return
    bad = ~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [T]
    if bad.any():
        step = int(bad.argmax())
        raise ConfigError(f"{where}: step {step} is not finite: {leaf[step].tolist()}")


def _refuse_outside(where: str, action: Array, space: LeafSpace) -> None:
    """Choices that do not exist would be found by torch alone, in words of its own."""
    if isinstance(space, BoxSpace):
        return
    most = np.array(space.n if isinstance(space, DiscreteSpace) else space.nvec)
    assert isinstance(action, np.ndarray)
    if (action < 0).any() or (action >= most).any():
        raise ConfigError(
            f"{where} lie between {action.min()} and {action.max()}, allowed are 0 to "
            f"{(most - 1).tolist()}"
        )


def evaluator_config(config: RunConfig) -> EvaluatorConfig:
    """The evaluator's settings as they are in effect: with the data set's reference scores, where
    it has some and the settings have none."""
    settings = config.evaluator
    dataset = dataset_of(config)
    if settings.ref_min_score is not None or dataset is None:
        return settings
    try:
        found = reference_scores(dataset)
    except BorderError:  # the model can be judged without
        found = None
    if found is None:
        return settings
    return replace(settings, ref_min_score=found[0], ref_max_score=found[1])
