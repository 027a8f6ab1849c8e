"""Buffers of single frames return the same transitions as buffers of stacks, bit for bit."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from border_cli.core.rows import concatenate
from border_cli.core.types import Step, Transitions
from border_cli.errors import CheckpointError, ConfigError
from border_cli.replay_buffer.config import DatasetConfig, UniformConfig
from border_cli.replay_buffer.dataset import DatasetRows
from border_cli.replay_buffer.frame_store import reserved_frames
from border_cli.replay_buffer.frames import FrameRing
from border_cli.replay_buffer.uniform import UniformReplayBuffer, stores_frames
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep
from tests.support.buffers import buffer_of, copy_rows
from tests.support.case_sampling import sampled
from tests.support.spaces import pixels

DEPTH, FRAME = 4, (3, 6)
FIELDS = ("index", "weight", "obs", "action", "reward", "discount", "next_obs")


@pytest.fixture
def stack_spec(spec):
    return replace(spec, id="stacks", observation=pixels(DEPTH, *FRAME), stacked=True)


class Streams:
    """Actors whose environments stack random frames, and their messages in random order."""

    def __init__(self, rng, *, num_envs, n_steps, actors=2, same_frames=False):
        self.rng, self.num_envs = rng, num_envs
        self.colours = 3 if same_frames else 256
        processors = [NStep(NStepConfig(n_steps=n_steps), gamma=0.9, num_envs=num_envs)]
        processors += [NStep(NStepConfig(n_steps=n_steps), gamma=0.9, num_envs=num_envs)] * (
            actors > 1
        )
        self.actors = [
            (processor, [self.first_stack() for _ in range(num_envs)]) for processor in processors
        ]

    def frame(self):
        if self.colours < 256:  # frames repeat often
            return np.full(FRAME, self.rng.integers(self.colours), np.uint8)
        return self.rng.integers(0, 256, FRAME, np.uint8)

    def first_stack(self):
        frame = self.frame()
        before = np.zeros(FRAME, np.uint8) if self.rng.random() < 0.5 else frame
        return deque([before] * (DEPTH - 1) + [frame], maxlen=DEPTH)

    def message(self, most_steps):
        """Returns the rows of fewer than `most_steps` steps of a random actor."""
        processor, stacks = self.actors[self.rng.integers(len(self.actors))]
        parts = [self.step(processor, stacks) for _ in range(self.rng.integers(1, most_steps))]
        return concatenate(parts)

    def step(self, processor, stacks):
        count, rng = self.num_envs, self.rng
        obs = np.array(stacks)
        for stack in stacks:
            stack.append(self.frame())
        next_obs = np.array(stacks)
        ends = rng.random((2, count)) < 0.08
        for i in np.flatnonzero(ends.any(axis=0)):
            stacks[i] = self.first_stack()
        return processor.process(
            Step(
                obs=obs,
                action=rng.integers(0, 2, count),
                reward=rng.random(count).astype(np.float32),
                terminated=ends[0],
                truncated=ends[1] & ~ends[0],
                next_obs=next_obs,
                act_obs=np.array(stacks),
            )
        )


def require_same_samples(buffers, rng, batch_size=16):
    ours, theirs = (buffer.sample(batch_size) for buffer in buffers)
    for name in FIELDS:
        our_values, their_values = getattr(ours, name), getattr(theirs, name)
        assert our_values.dtype == their_values.dtype
        assert our_values.tobytes() == their_values.tobytes(), name
    error = rng.standard_cauchy(batch_size)
    for buffer in buffers:
        if buffer.uses_priorities:
            buffer.update_priorities(ours.index.copy(), error)


def resume_into(source, target, rng):
    """Restores `target` from the state and rows of `source`, in chunks of a random size."""
    target.load_state_dict(source.state_dict())
    copy_rows(source, target, int(rng.integers(1, 10_000)))
    return target


CASES = [
    (kind, num_envs, n_steps, seed)
    for kind in ("uniform", "batch", "buffer")
    for num_envs in (1, 8)
    for n_steps in (1, 3)
    for seed in range(8)
]


@pytest.mark.parametrize(("kind", "num_envs", "n_steps", "seed"), sampled(CASES, every=7))
def test_sampled_transitions_equal_those_of_whole_stacks(stack_spec, kind, num_envs, n_steps, seed):
    """Covers wrap-arounds, ends of episodes, several actors and resumes."""
    rng = np.random.default_rng([seed, num_envs, n_steps])
    streams = Streams(rng, num_envs=num_envs, n_steps=n_steps, same_frames=seed % 3 == 2)
    capacity = int(rng.choice([1, 7, 50, 130]))
    buffers = [buffer_of(kind, stack_spec, capacity, frames=frames) for frames in (None, False)]
    assert isinstance(buffers[0].ring, FrameRing)
    for count in range(25):
        message = streams.message(int(rng.choice([3, 12])))
        for buffer in buffers:
            buffer.push(message)
        if len(buffers[0]):
            require_same_samples(buffers, rng)
        if count % 8 == 7:
            empty = buffer_of(kind, stack_spec, capacity, frames=None, seed=5)
            buffers[0] = resume_into(buffers[0], empty, rng)
    everything = np.arange(len(buffers[1]))
    ours, theirs = (buffer.rows(everything) for buffer in buffers)
    assert ours.obs.tobytes() == theirs.obs.tobytes()
    assert ours.next_obs.tobytes() == theirs.next_obs.tobytes()


@pytest.mark.parametrize("n_steps", [1, 3])
def test_each_frame_is_stored_once_and_leaves_with_the_last_stack_that_has_it(stack_spec, n_steps):
    rng = np.random.default_rng(1)
    streams = Streams(rng, num_envs=2, n_steps=n_steps)
    buffer = buffer_of("uniform", stack_spec, 60, frames=None)
    for _ in range(60):
        buffer.push(streams.message(8))
    rows = buffer.rows(np.arange(60))
    stacks = np.concatenate([rows.obs, rows.next_obs]).reshape(-1, *FRAME)
    stored = buffer.ring._frames._used - len(buffer.ring._frames._free)
    assert stored == len(np.unique(stacks, axis=0))
    # every row adds a frame; every episode adds its first frame and possibly one of zeros
    assert stored < 60 * 1.5


def test_frames_that_share_a_key_are_told_apart(stack_spec):
    """Two 16-bit words of 2**15 have the same key as zeros, whatever the odd weights."""
    shape = (1, DEPTH, *FRAME)
    frames = np.zeros(shape, np.uint8)
    frames[0, 1, 0, 1] = frames[0, 1, 0, 3] = 128
    buffer = buffer_of("uniform", stack_spec, 5, frames=True)
    store = buffer.ring._frames
    words = frames.reshape(DEPTH, -1).view(store._word)
    keys = np.einsum("fw,w->f", words, store._weights << np.uint64(48))
    assert keys[0] == keys[1]
    store._weights <<= np.uint64(48)
    rows = Streams(np.random.default_rng(0), num_envs=1, n_steps=1).message(2)
    for _ in range(2):
        buffer.push(replace(rows, obs=frames, next_obs=frames[:, ::-1]))
    rows_read = buffer.rows(np.array([0, 1]))
    np.testing.assert_array_equal(rows_read.obs, np.repeat(frames, 2, axis=0))
    np.testing.assert_array_equal(rows_read.next_obs, np.repeat(frames[:, ::-1], 2, axis=0))


def test_stacks_that_share_nothing_are_stored_whole(stack_spec):
    """The stacks have more frames than memory is reserved for."""
    rng = np.random.default_rng(2)
    count = 200
    assert reserved_frames(count, DEPTH) < count * 2 * DEPTH
    buffers = [buffer_of("uniform", stack_spec, count, frames=frames) for frames in (True, False)]
    row = Streams(rng, num_envs=1, n_steps=1).message(2)
    rows = concatenate([row] * 70)
    for _ in range(5):
        obs, next_obs = rng.integers(0, 256, (2, 70, DEPTH, *FRAME), np.uint8)
        for buffer in buffers:
            buffer.push(replace(rows, obs=obs, next_obs=next_obs))
        require_same_samples(buffers, rng)


@pytest.mark.parametrize("seed", sampled([*range(40)], every=10))
def test_what_is_pushed_while_a_checkpoint_is_written_does_not_change_it(stack_spec, seed):
    rng = np.random.default_rng(seed)
    streams = Streams(rng, num_envs=2, n_steps=3)
    source, whole = (buffer_of("uniform", stack_spec, 50, frames=flag) for flag in (True, False))
    target = buffer_of("uniform", stack_spec, 50, frames=True)
    for _ in range(int(rng.integers(1, 20))):
        message = streams.message(8)
        source.push(message)
        whole.push(message)
    expected = whole.rows(np.arange(len(whole)))
    target.load_state_dict(source.state_dict())
    chunk_rows = int(rng.integers(5, 30))
    frozen = source.ring.freeze(0, chunk_nbytes=chunk_rows * source.freeze(0).row_nbytes)
    start = frozen.first
    while (chunk := frozen.take()) is not None:
        source.push(streams.message(2))
        target.load_rows(start, chunk)
        start += len(chunk[-1])
    loaded = target.rows(np.arange(len(target)))
    assert loaded.obs.tobytes() == expected.obs.tobytes()
    assert loaded.next_obs.tobytes() == expected.next_obs.tobytes()


def test_saved_frames_and_saved_stacks_are_not_interchangeable(stack_spec):
    rng = np.random.default_rng(3)
    message = Streams(rng, num_envs=2, n_steps=3).message(8)
    for frames, match in ((True, "the saved rows have types"), (False, "the saved frames are")):
        saved, other = (
            buffer_of("uniform", stack_spec, 70, frames=setting) for setting in (frames, not frames)
        )
        saved.push(message)
        with pytest.raises(CheckpointError, match=match):
            resume_into(saved, other, rng)


def test_rows_of_a_data_set_stay_and_those_of_actors_pass(stack_spec):
    rng = np.random.default_rng(4)
    streams = Streams(rng, num_envs=1, n_steps=1)
    fixed = concatenate([streams.message(12) for _ in range(10)])

    def make(frames):
        dataset = DatasetRows(
            id="a/b-v0", rows=[fixed], steps=len(fixed), checksum="x", grows=True, share=None
        )
        return UniformReplayBuffer(
            DatasetConfig(capacity=20, frames=frames),
            spec=stack_spec,
            rng=np.random.default_rng(0),
            dataset=dataset,
        )

    buffers = [make(None), make(False)]
    for count in range(30):
        message = streams.message(6)
        for buffer in buffers:
            buffer.push(message)
        require_same_samples(buffers, rng)
        if count == 20:
            buffers[0] = resume_into(buffers[0], make(None), rng)
    assert isinstance(buffers[0].ring, FrameRing)


def test_only_stacked_images_are_stored_as_frames(spec, stack_spec):
    assert stores_frames(UniformConfig(), stack_spec)
    assert not stores_frames(UniformConfig(frames=False), stack_spec)
    assert not stores_frames(UniformConfig(), replace(stack_spec, stacked=False))
    assert stores_frames(UniformConfig(frames=True), replace(stack_spec, stacked=False))
    with pytest.raises(
        ConfigError, match=r"replay_buffer.frames=true needs .*env.id=plain has float32 \[4\]"
    ):
        stores_frames(UniformConfig(frames=True), spec)


def test_a_transition_takes_the_bytes_of_its_slots_and_of_one_frame(stack_spec):
    # 2 x 4 slots of 4 bytes, action 8, reward and discount 4 each; frame 18 + 16 bytes
    assert FrameRing.row_nbytes(stack_spec) == 32 + 8 + 8 + 18 + 16


def one_step_rows(stacks):
    """The rows of an episode with these stacks. [T + 1, k, …]"""
    count = len(stacks) - 1
    zeros = np.zeros(count, np.float32)
    return Transitions(
        obs=stacks[:-1],
        action=np.zeros(count, np.int64),
        reward=zeros,
        discount=zeros,
        next_obs=stacks[1:],
    )


def saved_chunks(ring, first):
    frozen, chunks = ring.freeze(first), []
    while (arrays := frozen.take()) is not None:
        chunks.append((first, arrays))
        first += len(arrays[-1])
    return chunks


def test_an_older_state_is_restored_after_a_damaged_one_beside_a_data_set(stack_spec):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (90, *FRAME), np.uint8)
    stacks = np.stack([frames[i : i + 80] for i in range(DEPTH)], axis=1)  # one long episode
    rings = [FrameRing(stack_spec, 50, most_fixed=4) for _ in range(2)]
    for ring in rings:
        ring.store_fixed([one_step_rows(rng.integers(0, 256, (5, DEPTH, *FRAME), np.uint8))])
    ring, restored = rings
    chunks = []
    for first in (0, 20):
        ring.push(one_step_rows(stacks[first : first + 21]))
        chunks += saved_chunks(ring, first)
    older = ring.state
    ring.push(one_step_rows(stacks[40:76]))
    restored.restore(ring.state)
    restored.restore_rows(*chunks[1])  # the next chunk is damaged
    restored.restore(older)
    for chunk in chunks:
        restored.restore_rows(*chunk)
    sampled_rows = restored.gather(4 + np.arange(40))
    np.testing.assert_array_equal(sampled_rows.obs, stacks[:40])
    np.testing.assert_array_equal(sampled_rows.next_obs, stacks[1:41])


def test_frames_of_overwritten_rows_in_a_checkpoint_take_no_space(stack_spec):
    rng = np.random.default_rng(0)
    stacks = rng.integers(0, 256, (2, 90, DEPTH, *FRAME), np.uint8)  # no two frames are equal
    ring, restored = FrameRing(stack_spec, 50), FrameRing(stack_spec, 50)
    chunks = []
    for first, last in ((0, 50), (50, 90)):
        rows = one_step_rows(np.zeros((last - first + 1, DEPTH, *FRAME), np.uint8))
        ring.push(replace(rows, obs=stacks[0, first:last], next_obs=stacks[1, first:last]))
        chunks += saved_chunks(ring, first)
    restored.restore(ring.state)
    for chunk in chunks:
        restored.restore_rows(*chunk)
    index = np.arange(50)
    np.testing.assert_array_equal(restored.gather(index).obs, ring.gather(index).obs)
