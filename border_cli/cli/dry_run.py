"""`dry_run=true`: what a run would do and need; nothing is trained and no folder is made."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from border_cli import __version__
from border_cli.config.job import Job
from border_cli.core.interfaces import Agent
from border_cli.core.machine import free_memory
from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, EnvSpec, Space
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.words import size
from border_cli.launch.build import (
    build_agent,
    build_evaluator,
    encoders_of,
    env_factory,
    matmul_of_agent,
)
from border_cli.launch.dry_build import dry_build
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.header import (
    actors_line,
    choice_lines,
    dataset_lines,
    doubts,
    trainer_line,
)
from border_cli.launch.job import make_probes
from border_cli.launch.needs import Needs, agent_sizes, refuse_unmet, training_needs
from border_cli.launch.trying import job_names
from border_cli.recorder import terminal
from border_cli.registry import AGENTS, RECORDERS


def show(jobs: Sequence[Job]) -> None:
    """Prints all jobs; raises ConfigError where what they need is not there."""
    console, probes = terminal.make_console(), make_probes()
    needs = []
    for job, name in zip(jobs, job_names(jobs), strict=True):
        effective = effective_settings(job.config)
        built = dry_build(effective, probes)
        if built is None:  # now the error shows
            spec = env_factory(effective).spec
            built = spec, build_agent(effective, spec)
        spec, agent = built
        sizes = agent_sizes(effective, agent)
        needs.append(training_needs(effective, spec, sizes, name))
        if job.number is None:
            terminal.header(console, outlook(job, effective, spec, agent, sizes.parameters))
            _table(console, needs[-1])
        else:
            _show_job(console, job, needs[-1])
    if jobs[0].number is not None:
        largest = max(needs, key=lambda each: each.nbytes)
        terminal.say(console, f"{len(needs)} jobs; {largest.name} needs the most memory")
        _table(console, largest)
    refuse_unmet(needs)
    terminal.say(console, "dry run: nothing was run and nothing was written")


def _show_job(console: Console, job: Job, needs: Needs) -> None:
    memory = f"memory {size(needs.nbytes)}"
    terminal.say(console, needs.name)
    terminal.header(console, [("  needs", memory), ("  run directory", str(job.folder))])


def _table(console: Console, needs: Needs) -> None:
    """What is needed, with the settings behind it, and what there is."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("memory", no_wrap=True)
    table.add_column("at most", justify="right", no_wrap=True)
    table.add_column("from", overflow="fold")
    for each in needs.parts:
        table.add_row(each.what, size(each.nbytes), each.because)
    table.add_section()
    table.add_row("needed", size(needs.nbytes), "")
    table.add_row("available", size(free_memory()), "")
    console.print(table)


def outlook(
    job: Job, effective: EffectiveSettings, spec: EnvSpec, agent: Agent, parameters: int
) -> list[tuple[str, str]]:
    """Everything that a run would do, as key and value."""
    config, kind = job.config, AGENTS.entry_of(job.config.agent).name
    return [
        ("border_cli", f"{__version__}   {config.name}   seed {config.seed}"),
        *choice_lines(job.sources),
        ("env", _env_line(spec)),
        ("agent", f"{kind}, {parameters:,} parameters, batch {config.agent.batch_size}"),
        *encoders_of(agent),
        ("trainer", trainer_line(effective)),
        ("actors", actors_line(effective)),
        *dataset_lines(effective),
        ("device", agent.device_name),
        *matmul_of_agent(effective, agent),
        ("threads", effective.threads_line()),
        ("budget", _budget_line(effective)),
        ("evaluation", _evaluation_line(effective, spec)),
        ("metrics", _metrics_line(effective)),
        ("checkpoints", _checkpoints_line(effective)),
        ("run directory", str(job.folder)),
        *[("warning", each) for each in doubts(effective)],
    ]


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


def _budget_line(effective: EffectiveSettings) -> str:
    trainer, updates = effective.config.trainer, effective.most_updates
    samples = effective.most_samples
    parts = [
        f"{updates:,} updates" if updates is not None else "no limit on updates",
    ]
    if effective.has_actors:
        parts.append(f"at most {samples:,} samples" if samples else "no limit on samples")
        if trainer.max_env_steps is not None:
            parts.append(f"{trainer.max_env_steps:,} env steps")
    if trainer.max_time_s is not None:
        parts.append(f"{trainer.max_time_s:,g} s")
    return ", ".join(parts)


def _evaluation_line(effective: EffectiveSettings, spec: EnvSpec) -> str:
    evaluator = build_evaluator(effective, stop=StopFlag(), heartbeat=Heartbeat("evaluation"))
    line = evaluator.describe()
    evaluator.close()
    where = ", in a separate process" if effective.evaluates_in_background(spec) else ""
    return f"{_times(effective, effective.config.trainer.eval_interval)}: {line}{where}"


def _metrics_line(effective: EffectiveSettings) -> str:
    config = effective.config
    kinds = [RECORDERS.entry_of(each).name for each in config.recorder.values()]
    rows = _times(effective, config.trainer.record_interval)
    return f"{rows}; {', '.join(kinds) or 'no recorder'}"


def _checkpoints_line(effective: EffectiveSettings) -> str:
    config = effective.config
    made = _times(effective, config.trainer.save_interval)
    if config.trainer.save_every_s is not None:
        made += f", and every {config.trainer.save_every_s:g} s"
    rows = f"{'with' if config.checkpoint.replay_buffer else 'without'} the replay buffer"
    if not effective.has_actors:
        rows = "without the data set"
    interval = config.checkpoint.milestone_interval
    also = f", and one every {interval:,} updates permanently" if interval else ""
    return f"{made}; keeps the newest {config.checkpoint.keep}{also}, {rows}"


def _times(effective: EffectiveSettings, interval: int) -> str:
    """`8, every 125 updates`; those of the end are among them."""
    if not interval:
        return "1, at the end"
    count = effective.times(interval)
    known = f"{count:,}, " if count is not None else ""
    return f"{known}every {interval:,} updates"
