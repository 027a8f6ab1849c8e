"""What a run will take of its disk at most."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

from border_cli.core.config import RunConfig
from border_cli.core.words import size
from border_cli.needs.sizes import AgentSizes, Need, ReplaySizes
from border_cli.parts import evaluates_in_background, slack

STATE_NBYTES = 128 * 1024  # counters, generators, actors and manifest of a checkpoint
ROW_OF_METRICS_NBYTES = 2_500  # up to 1,300 as JSON and 1,100 as events of TensorBoard
LOGS_NBYTES = 2**20
MOST_BEST = 3  # best models at once: being written, the best, and the one before it


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
    judged = agent.state if evaluates_in_background(config) else 0
    needs.append(
        Need(
            what="the agent",
            nbytes=checkpoints * (state + judged) + (MOST_BEST + _milestones(config)) * state,
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
