"""The lines that a job prints before it runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from border_cli import __version__
from border_cli.config.compose import Source
from border_cli.config.tuned import tuned_files, values_of_another_pair
from border_cli.core.config import RunConfig, TrainerConfig
from border_cli.core.output import FILE_ONLY
from border_cli.core.spaces import EnvSpec, transition_nbytes
from border_cli.core.words import counted
from border_cli.launch.build import (
    actor_manager_config,
    env_config,
    normalizing_wrappers,
    thread_budget,
)
from border_cli.launch.offline_data import dataset_size
from border_cli.launch.training import Started
from border_cli.recorder import terminal
from border_cli.registry import ACTOR_MANAGERS, AGENTS, TRAINERS

if TYPE_CHECKING:
    from border_cli.cli.job import JobContext

log = logging.getLogger(__name__)

CONF = Path(str(files("border_cli.conf")))


def print_header(
    console: Console, config: RunConfig, context: JobContext, started: Started
) -> None:
    """Prints what is about to run and where each choice came from; in the log also if quiet."""
    lines = [
        ("border_cli", f"{__version__}   {config.name}   seed {config.seed}"),
        *choice_lines(context.sources),
        *started.encoders,
        ("trainer", trainer_line(config)),
        ("actors", actors_line(config)),
        ("device", started.device_name),
        ("threads", thread_budget(config, started.spec)),
        *dataset_lines(config),
        ("memory", _memory_line(config, started.spec)),
        ("evaluation", started.evaluation),
        ("run directory", str(context.run_dir)),
        *_resume_lines(context, started),
    ]
    if not config.quiet:
        terminal.header(console, lines)
    for key, value in lines:
        log.info("%s: %s", key, value.replace("\n", "; "), extra=FILE_ONLY)


def _resume_lines(context: JobContext, started: Started) -> list[tuple[str, str]]:
    """The checkpoint that a run is resumed from, and the settings that changed."""
    if started.resumed_opt_steps is None:
        return []
    place = f"the checkpoint at {counted(started.resumed_opt_steps, 'update')}"
    lines = [("resumed from", f"{place}; {started.restored}")]
    changed = context.continuation.changed if context.continuation else ()
    return [*lines, ("changed", "\n".join(changed))] if changed else lines


def choice_lines(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """Every choice; those from files of the user with their file, the others together."""
    choices: dict[str, list[str]] = {}
    theirs = []
    for each in sources:
        if each.group != "tuned" and not _is_ours(each.file):
            theirs.append((each.group, f"{each.choice} from {each.file}"))
        elif each.group not in ("tuned", "config"):
            choices.setdefault(each.group, []).append(each.choice)
    first = ("agent", "env", "experiment")
    named = [_choice(group, choices[group]) for group in first if group in choices]
    rest = [_choice(group, names) for group, names in choices.items() if group not in first]
    shown = "\n".join(" ".join(line) for line in (named, rest[:3], rest[3:]) if line)
    lines = [("choices", shown)] if shown else []
    if any(each.group == "agent" for each in sources):  # saved settings choose none
        tuned = tuned_files(sources) or ["none for this agent and env"]
        lines.append(("tuned values", "\n".join(tuned)))
    return [*lines, *theirs]


def doubts(config: RunConfig, sources: Sequence[Source]) -> list[str]:
    """What is allowed and probably not meant."""
    chosen = {each.group: each.choice for each in sources}
    pairs = [
        f"tuned={pair} was tuned for another pair than agent={chosen.get('agent')} "
        f"env={chosen.get('env')}"
        for pair in values_of_another_pair(sources)
    ]
    wrappers = [
        f"the statistics of env.wrappers={name} differ between actors and evaluation and are not "
        f"saved with the model; use {setting}=true instead"
        for name, setting in normalizing_wrappers(config).items()
    ]
    imitates = AGENTS.entry_of(config.agent).name == "bc" and not config.trainer.offline
    cloned = ["agent=bc imitates its own actions without trainer=offline"] if imitates else []
    return [*pairs, *wrappers, *cloned]


def _choice(group: str, names: list[str]) -> str:
    return f"{group}={names[0]}" if len(names) == 1 else f"{group}=[{','.join(names)}]"


def _is_ours(file: str) -> bool:
    return Path(file).is_relative_to(CONF)


def dataset_lines(config: RunConfig) -> list[tuple[str, str]]:
    """The data set that the run learns from, if there is one."""
    found = dataset_size(config)
    if found is None:
        return []
    size = f"{counted(found.episodes, 'episode')}, {counted(found.steps, 'step')}"
    return [("data set", f"{found.id}, {size}")]


def trainer_line(config: RunConfig) -> str:
    """The trainer, its replay ratio and its limits."""
    trainer = config.trainer
    limits = [
        f"{value:,} {what}"
        for value, what in (
            (trainer.max_opt_steps, "updates"),
            (None if trainer.offline else trainer.max_env_steps, "env steps"),
            (trainer.max_time_s, "s"),
        )
        if value is not None
    ]
    if trainer.stop_at_score is not None:
        limits.append(_enough(trainer))
    name, until = TRAINERS.entry_of(trainer).name, f"until {' or '.join(limits)}"
    if trainer.offline:
        return f"{name}, from the data set only, {until}"
    ratio = trainer.samples_per_opt_step
    pace = "free-running"
    if ratio is not None:
        pace = f"{counted(ratio, 'sample')} per update"
    return f"{name}, {pace}, {until}"


def _enough(trainer: TrainerConfig) -> str:
    """The score that ends the run, and how often it has to be reached."""
    text = f"score {trainer.stop_at_score:g}"
    if trainer.stop_evals > 1:
        text += f" in {trainer.stop_evals} evaluations in a row"
    if trainer.stop_confirmations:
        text += ", confirmed on other episodes"
    return text


def actors_line(config: RunConfig) -> str:
    """How many actors of which kind there are, and whether the run is bit-reproducible."""
    if config.trainer.offline:
        return "none; bit-reproducible on a CPU"
    actors = actor_manager_config(config)
    name = ACTOR_MANAGERS.entry_of(actors).name
    text = f"{actors.num_actors} x {config.env.num_envs} env, {name}"
    if config.env.num_envs > 1 and env_config(config) != config.env:
        text += ", env.vectorization=sync to be bit-reproducible"
    if actors is not config.actor_manager:
        return f"{text} (trainer=sync), n_buffer 1, newest weights; bit-reproducible on a CPU"
    repeats = "bit-reproducible on a CPU" if name == "serial" else "not bit-reproducible"
    return f"{text}, n_buffer {actors.n_buffer}; {repeats}"


def _memory_line(config: RunConfig, spec: EnvSpec) -> str:
    row, learned = transition_nbytes(spec), dataset_size(config)
    known = ""
    if learned is not None:
        known = f"data set {counted(learned.steps, 'transition')}, {_size(learned.steps * row)}"
    if config.trainer.offline:
        return known
    actors = actor_manager_config(config)
    in_flight = 3 * actors.num_actors * max(actors.n_buffer, config.env.num_envs)
    return (
        f"{known}{'; ' if known else ''}"
        f"replay buffer {counted(config.replay_buffer.capacity, 'transition')}, "
        f"{_size(config.replay_buffer.capacity * row)}; "
        f"in flight at most {counted(in_flight, 'transition')}, {_size(in_flight * row)}"
    )


def _size(nbytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB"
