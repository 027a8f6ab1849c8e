"""Runs on stacked images: every frame is stored once, with equal results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stacked import STACK

from border_cli.api import resume, train
from border_cli.checks.needs import row_nbytes
from border_cli.config.compose import compose
from border_cli.core.state import load_state
from border_cli.env.config import GymConfig
from border_cli.errors import ConfigError
from border_cli.launch.build import build_replay_buffer, env_factory
from border_cli.launch.effective import effective_settings
from border_cli.recorder.read import read_metrics
from border_cli.replay_buffer.frames import FrameRing
from border_cli.settings.run import RunConfig
from tests.support.saved_states import same

UPDATES = 30
COLOURED = {"ReshapeObservation": {"shape": [12, 12, 1]}}  # adds a channel axis


def config_of(run_dir: Path, *more: str) -> RunConfig:
    config = compose(
        *("agent=dqn", "env.id=stacked:Falling-v0", "~tuned", "agent.hidden=[8]", "seed=3"),
        *(
            "agent.batch_size=8",
            "agent.num_threads=1",
            "replay_buffer.capacity=90",
            "trainer=sync",
        ),
        *(f"trainer.max_opt_steps={UPDATES}", "trainer.warmup_period=30", "env.num_envs=2"),
        *("trainer.samples_per_opt_step=4", "trainer.eval_interval=15", "quiet=true"),
        *("trainer.record_interval=5", "trainer.save_interval=10", "evaluator.num_episodes=1"),
        *("recorder=jsonl", "env.probe=false", f"run_dir={run_dir}", *more),
    )
    config.env.wrappers = STACK
    return config


def outcome(run_dir: Path) -> Any:
    """Returns the weights and the metrics of a run, without times."""
    *_, newest = sorted((run_dir / "checkpoints").glob("0*"))
    rows = [
        {name: value for name, value in row.items() if name.startswith(("train/", "eval/"))}
        for row in read_metrics(run_dir / "metrics.jsonl")
    ]
    return load_state(newest / "agent.npz"), rows


def nbytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("buffer", ["uniform", pytest.param("prioritized", marks=pytest.mark.slow)])
def test_a_run_is_the_same_to_the_bit_also_stopped_and_resumed(tmp_path: Path, buffer: str) -> None:
    kind = f"replay_buffer={buffer}"
    whole, frames, halves = (tmp_path / name for name in ("whole", "frames", "halves"))
    train(config_of(whole, kind, "replay_buffer.frames=false"))
    train(config_of(frames, kind))
    assert same(outcome(whole), outcome(frames))
    train(config_of(halves, kind, f"trainer.max_opt_steps={UPDATES // 2}"))
    resume(halves, f"trainer.max_opt_steps={UPDATES}")
    assert same(outcome(whole), outcome(halves))
    rows = Path("checkpoints") / "replay"
    assert nbytes_in(frames / rows) < nbytes_in(whole / rows) / 2


def test_a_run_is_the_same_to_the_bit_whether_or_not_its_frames_have_channels(
    tmp_path: Path,
) -> None:
    grey, coloured = (config_of(tmp_path / name) for name in ("grey", "coloured"))
    assert isinstance(coloured.env, GymConfig)
    coloured.env.wrappers = [COLOURED, *STACK]
    train(grey)
    train(coloured)
    assert same(outcome(tmp_path / "grey"), outcome(tmp_path / "coloured"))


def test_the_replay_buffer_is_as_large_as_the_check_before_the_run_says(tmp_path: Path) -> None:
    """A frame takes 144 + 16 bytes; a row takes 32 for its slots and 16 for the rest."""
    for more, row in (([], 208), (["replay_buffer.frames=false"], 1168)):
        effective = effective_settings(config_of(tmp_path, *more))
        spec = env_factory(effective).spec
        buffer = build_replay_buffer(effective, spec)
        assert (row_nbytes(effective, spec), buffer.nbytes) == (row, 90 * row)
        assert isinstance(buffer.ring, FrameRing) == (not more)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrappers", "stacked"),
    [
        ([], False),
        (STACK, True),
        ([COLOURED, *STACK], True),
        ([*STACK, {"TimeLimit": {"max_episode_steps": 5}}], True),
        ([{"FrameStackObservation": {"stack_size": 1}}], False),
    ],
)
def test_stacked_images_are_known_by_their_wrapper(
    tmp_path: Path, wrappers: list[Any], stacked: bool
) -> None:
    config = config_of(tmp_path)
    assert isinstance(config.env, GymConfig)
    config.env.wrappers = wrappers
    assert env_factory(effective_settings(config)).spec.stacked == stacked


def test_frame_storage_without_stacked_images_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path / "run", "replay_buffer=frames")
    assert config.replay_buffer.frames is True  # type: ignore[attr-defined]
    assert isinstance(config.env, GymConfig)
    config.env.wrappers = []
    with pytest.raises(ConfigError, match=r"needs stacked images.*uint8 \[12, 12\]"):
        train(config)
    assert not (tmp_path / "run").exists()
