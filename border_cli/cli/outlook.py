"""What a run would do, in words: the lines of a dry run."""

from __future__ import annotations

from border_cli import __version__
from border_cli.cli.header import (
    actors_line,
    choice_lines,
    dataset_lines,
    doubts,
    trainer_line,
)
from border_cli.config.compose import Job
from border_cli.core.config import RunConfig
from border_cli.core.interfaces import Agent
from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, EnvSpec, Space
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.words import size
from border_cli.launch.build import (
    build_evaluator,
    encoders_of,
    evaluates_in_background,
    thread_budget,
)
from border_cli.launch.needs import (
    Plan,
    checkpoints_made,
    evaluations,
    metric_rows,
    most_rows,
    opt_steps,
)
from border_cli.registry import AGENTS, RECORDERS


def outlook(job: Job, plan: Plan, agent: Agent) -> list[tuple[str, str]]:
    """Everything that a run would do, as key and value."""
    config, kind = job.config, AGENTS.entry_of(job.config.agent).name
    return [
        ("border_cli", f"{__version__}   {config.name}   seed {config.seed}"),
        *choice_lines(job.sources),
        ("env", _env_line(plan.spec)),
        ("agent", f"{kind}, {plan.agent.parameters:,} parameters, batch {config.agent.batch_size}"),
        *encoders_of(agent),
        ("trainer", trainer_line(config)),
        ("actors", actors_line(config)),
        *dataset_lines(config),
        ("device", agent.device_name),
        ("threads", thread_budget(config, plan.spec)),
        ("budget", _budget_line(config)),
        ("evaluation", _evaluation_line(config)),
        ("metrics", _metrics_line(config)),
        ("checkpoints", _checkpoints_line(config)),
        ("run directory", directory_line(plan)),
        *[("warning", each) for each in doubts(config, job.sources)],
    ]


def directory_line(plan: Plan) -> str:
    """Where a run would be written, and what is there."""
    return f"{plan.run_dir}" + (f", which already has {size(plan.held)}" if plan.held else "")


def _env_line(spec: EnvSpec) -> str:
    limit = spec.max_episode_steps
    ends = f"at most {limit:,} steps" if limit is not None else "no step limit"
    return f"{spec.id}, observes {_space(spec.observation)}, acts {_space(spec.action)}, {ends}"


def _space(space: Space) -> str:
    if isinstance(space, DictSpace):
        return ", ".join(f"{key}: {_space(part)}" for key, part in space.spaces.items())
    if isinstance(space, BoxSpace):
        return f"{space.dtype} [{', '.join(map(str, space.shape))}]"
    if isinstance(space, DiscreteSpace):
        return f"one of {space.n}"
    return f"one each of [{', '.join(map(str, space.nvec))}]"


def _budget_line(config: RunConfig) -> str:
    updates, samples = opt_steps(config), most_rows(config)
    parts = [
        f"{updates:,} updates" if updates is not None else "no limit on updates",
    ]
    if not config.trainer.offline:
        parts.append(f"at most {samples:,} samples" if samples else "no limit on samples")
    if not config.trainer.offline and config.trainer.max_env_steps is not None:
        parts.append(f"{config.trainer.max_env_steps:,} env steps")
    if config.trainer.max_time_s is not None:
        parts.append(f"{config.trainer.max_time_s:,g} s")
    return ", ".join(parts)


def _evaluation_line(config: RunConfig) -> str:
    evaluator = build_evaluator(config, stop=StopFlag(), heartbeat=Heartbeat("evaluation"))
    line = evaluator.describe()
    evaluator.close()
    beside = ", in a separate process" if evaluates_in_background(config) else ""
    return f"{_times(evaluations(config), config.trainer.eval_interval)}: {line}{beside}"


def _metrics_line(config: RunConfig) -> str:
    kinds = [RECORDERS.entry_of(each).name for each in config.recorder.values()]
    rows = _times(metric_rows(config), config.trainer.record_interval)
    return f"{rows}; {', '.join(kinds) or 'no recorder'}"


def _checkpoints_line(config: RunConfig) -> str:
    made = _times(checkpoints_made(config), config.trainer.save_interval)
    if config.trainer.save_every_s is not None:
        made += f", and every {config.trainer.save_every_s:g} s"
    rows = f"{'with' if config.checkpoint.replay_buffer else 'without'} the replay buffer"
    if config.trainer.offline:
        rows = "without the data set"
    interval = config.checkpoint.milestone_interval
    also = f", and one every {interval:,} updates permanently" if interval else ""
    return f"{made}; keeps the newest {config.checkpoint.keep}{also}, {rows}"


def _times(count: int | None, interval: int) -> str:
    """`8, every 125 updates`; those of the end are among them."""
    if not interval:
        return "1, at the end"
    known = f"{count:,}, " if count is not None else ""
    return f"{known}every {interval:,} updates"
