"""A minimal run that saves and loads checkpoints: a number as weights, and a replay buffer."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from border_cli.core.interfaces import Evaluation
from border_cli.core.output import RunState
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.timing import MonotonicClock
from border_cli.core.types import Transitions
from border_cli.replay_buffer.config import PrioritizedConfig, UniformConfig
from border_cli.replay_buffer.prioritized import PrioritizedReplayBuffer
from border_cli.replay_buffer.uniform import RingReplayBuffer, UniformReplayBuffer
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.checkpoint_files import SaveState, VerifiedCheckpoint, read_checkpoint
from border_cli.run.finding import find_checkpoint, find_resumable
from border_cli.run.folders import CheckpointFolders
from border_cli.run.manifest import verify
from tests.support.spaces import numbered, numbers, pixels

SIDE = 20  # of an image; large enough that obs and next_obs get their own blocks


def spec_of(*, images: bool = False) -> EnvSpec:
    space = pixels(SIDE, SIDE, 3) if images else numbers(4)
    return EnvSpec(id="saves", observation=space, action=DiscreteSpace(9), max_episode_steps=None)


def rows(spec: EnvSpec, first: int, end: int) -> Transitions:
    """Returns rows with reward n, action n and observations filled with n (wrapped by dtype)."""
    count = np.arange(first, end)
    obs = numbered(spec.observation, count)
    return Transitions(
        obs=obs,
        action=count,
        reward=count.astype(np.float32),
        discount=np.ones(len(count), np.float32),
        next_obs=obs,
    )


class Disk:
    """A `SaveState` that writes the state's number as text, and then raises ENOSPC if `full`."""

    def __init__(self) -> None:
        self.full = False

    def __call__(self, state: Mapping[str, Any], path: Path) -> None:
        path.write_text(f"weights {state['n']}")
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


class SmallRun:
    """A run with a replay buffer and a checkpoint store, which waits for every save."""

    def __init__(
        self,
        run_dir: Path,
        *,
        keep: int = 3,
        capacity: int = 100,
        images: bool = False,
        prioritized: bool = False,
        milestone_interval: int = 0,
        replay_buffer: bool = True,
        save_state: SaveState | None = None,
        **settings: Any,
    ) -> None:
        self.run_dir = run_dir
        self.folder = run_dir / "checkpoints"
        self.disk = Disk()
        self.spec = spec_of(images=images)
        kind: Any = PrioritizedReplayBuffer if prioritized else UniformReplayBuffer
        config: Any = PrioritizedConfig if prioritized else UniformConfig
        self.buffer: RingReplayBuffer = kind(
            config(capacity=capacity), spec=self.spec, rng=np.random.default_rng(0)
        )
        folders = CheckpointFolders(
            run_dir,
            keep=keep,
            milestone_interval=milestone_interval,
            save_state=save_state or self.disk,
            **settings,
        )
        self.store = CheckpointStore(folders, replay_buffer=replay_buffer, clock=MonotonicClock())

    def push(self, count: int) -> None:
        first = self.buffer.ring.pushed
        self.buffer.push(rows(self.spec, first, first + count))

    def state(self, opt_steps: int, n: int | None = None, **more: Any) -> RunState:
        run = {"replay_buffer": self.buffer.state_dict(), "opt_steps": opt_steps, **more}
        return RunState(
            counters=counters(opt_steps),
            agent={"n": opt_steps if n is None else n},
            run=run,
            replay_buffer=self.buffer,
        )

    def save(self, opt_steps: int, n: int | None = None, push: int = 0, **more: Any) -> bool:
        """Saves a checkpoint; returns whether it was written."""
        self.push(push)
        written = self.store.report.written
        assert self.store.save(self.state(opt_steps, n, **more))
        assert self.store.wait(60)
        return self.store.report.written > written

    def save_best(self, opt_steps: int, score: float) -> None:
        self.store.save_best({"n": opt_steps}, counters(opt_steps), evaluation_of(score))
        assert self.store.wait(60)

    def resume(self, folder: Path | None = None) -> VerifiedCheckpoint:
        """Resumes from this checkpoint, or from the newest."""
        saved = read_checkpoint(folder or find_resumable(self.run_dir)[0])
        self.buffer.load_state_dict(saved.run["replay_buffer"])
        if saved.has_rows:
            saved.load_rows(self.buffer)
        self.store.continue_from(saved)
        return saved

    def weights(self, which: str) -> str:
        folder = find_checkpoint(self.run_dir, which)
        verify(folder)
        return (folder / "agent.npz").read_text()

    @property
    def numbers(self) -> list[int]:
        """The row numbers in the replay buffer, sorted."""
        stored = self.buffer.rows(np.arange(len(self.buffer)))
        assert isinstance(stored.obs, np.ndarray)
        expected = stored.reward.astype(stored.obs.dtype)
        assert (stored.obs.reshape(len(expected), -1) == expected[:, None]).all()
        assert stored.obs.tobytes() == np.ascontiguousarray(stored.next_obs).tobytes()
        return sorted(stored.reward.astype(int).tolist())

    @property
    def there(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name != "replay")

    @property
    def chunks(self) -> list[str]:
        """The row ranges of the chunk files, without their random tokens."""
        names = sorted(path.name for path in (self.folder / "replay").iterdir())
        return [
            f"{int(name.split('-')[1])}-{int(name.split('-')[2])}"
            if name.startswith("rows-")
            else name
            for name in names
        ]


def counters(opt_steps: int) -> dict[str, float]:
    others = {"env_steps": 7, "samples_total": 7, "out_of_bounds": 0, "time_s": 0.5}
    return {"opt_steps": opt_steps, **others}


def evaluation_of(score: float) -> Evaluation:
    return Evaluation(score=score, returns=(score,), lengths=(1,), metrics={"eval/return": score})
