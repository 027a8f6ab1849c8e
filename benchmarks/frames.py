"""Memory of stacked images whose frames are stored once, and the time to push and sample them.

    python -m benchmarks.frames [--rows 200000] [--stored 30000] [--batch 32] [--repeats 2000]

Prints one JSON object. Resident memory is measured with `rows` transitions of Atari's four-frame
stacks from 8 environments and scaled to a million transitions; next to it is the estimate of the
memory check before a run. A replay buffer with `stored` transitions of whole stacks is filled in
the same process, and the two buffers are pushed to and sampled from in turn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks.table import emit
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Transitions
from border_cli.replay_buffer.config import UniformConfig
from border_cli.replay_buffer.frames import FrameRing
from border_cli.replay_buffer.uniform import UniformReplayBuffer

MILLION = 1_000_000
SHAPE = (4, 84, 84)
ENVS = 8
EPISODE_STEPS = 1_000
LOW, HIGH = np.zeros(SHAPE, np.uint8), np.full(SHAPE, 255, np.uint8)
SPEC = EnvSpec(
    id="ALE/Pong-v5",
    observation=BoxSpace(SHAPE, "uint8", LOW, HIGH),
    action=DiscreteSpace(6),
    max_episode_steps=None,
    stacked=True,
)


def messages(rng: np.random.Generator, steps: int = 3) -> Iterator[Transitions]:
    """Yields the transitions of `steps` steps of all environments, indefinitely."""
    stacks = np.zeros((ENVS, *SHAPE), np.uint8)
    step = 0
    while True:
        parts = []
        for _ in range(steps):
            frame = rng.integers(0, 256, (ENVS, 1, *SHAPE[1:]), np.uint8)
            next_stacks = np.concatenate([stacks[:, 1:], frame], axis=1)
            parts.append((stacks, next_stacks))
            step += 1
            starting = np.arange(ENVS) == step % EPISODE_STEPS  # episodes end at different times
            first = np.repeat(frame, SHAPE[0], axis=1)
            stacks = np.where(starting[:, None, None, None], first, next_stacks)
        obs, next_obs = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        count = len(obs)
        yield Transitions(
            obs=obs,
            action=rng.integers(0, 6, count),
            reward=np.zeros(count, np.float32),
            discount=np.full(count, 0.99, np.float32),
            next_obs=next_obs,
        )


def buffer_of(capacity: int, *, frames: bool) -> UniformReplayBuffer:
    config = UniformConfig(capacity=capacity, frames=frames)
    return UniformReplayBuffer(config, spec=SPEC, rng=np.random.default_rng(1))


def fill(buffer: UniformReplayBuffer, stream: Iterator[Transitions]) -> None:
    while buffer.ring.pushed < buffer.capacity:
        buffer.push(next(stream))


def measure(rows: int, stored: int, batch: int, repeats: int) -> dict[str, Any]:
    stream = messages(np.random.default_rng(0))
    process = psutil.Process()
    next(stream)
    before = process.memory_info().rss
    frames = buffer_of(rows, frames=True)
    fill(frames, stream)
    resident = (process.memory_info().rss - before) * MILLION / rows
    stacks = buffer_of(stored, frames=False)
    fill(stacks, stream)

    times: dict[str, list[float]] = {}

    def timed(name: str, call: Any, *arguments: Any) -> None:
        began = time.perf_counter_ns()
        call(*arguments)
        times.setdefault(name, []).append((time.perf_counter_ns() - began) / 1e3)

    buffers = [("frames", frames), ("stacks", stacks)]
    for _ in range(repeats):
        for name, sampled in buffers:  # the same pushes precede both: equal caches
            message = next(stream)  # pushed to both, so that neither misses steps
            for pushed_name, pushed in buffers:
                timed(f"push_{pushed_name}", pushed.push, message)
            timed(f"sample_{name}", sampled.sample, batch)
        buffers.reverse()
    medians = {name: median(values) for name, values in times.items()}
    return {
        "rows": rows,
        "stored_stacks": stored,
        "batch": batch,
        "message_rows": len(message),
        "resident_gb_of_a_million": round(resident / 1e9, 3),
        "counted_gb_of_a_million": round(FrameRing.row_nbytes(SPEC) * MILLION / 1e9, 3),
        **{f"{name}_us": round(value, 1) for name, value in medians.items()},
        "sample_ratio": round(medians["sample_frames"] / medians["sample_stacks"], 2),
        "push_ratio": round(medians["push_frames"] / medians["push_stacks"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=200_000, help="transitions as frames (default: 200000)"
    )
    parser.add_argument(
        "--stored", type=int, default=30_000, help="transitions as whole stacks (default: 30000)"
    )
    parser.add_argument("--batch", type=int, default=32, help="batch size (default: 32)")
    parser.add_argument("--repeats", type=int, default=2_000, help="rounds (default: 2000)")
    emit("frames", "memory_push_and_sample", measure(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
