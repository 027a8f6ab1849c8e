"""The header of a run: what is about to run, and where each choice came from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from border_cli import __version__
from border_cli.config.interpolation import ANY_ENV
from border_cli.config.job import Source
from border_cli.config.tuned import tuned_files
from border_cli.core.config import EnvConfig, TrainerConfig
from border_cli.core.output import FILE_ONLY
from border_cli.core.spaces import EnvSpec, transition_nbytes
from border_cli.core.words import counted
from border_cli.launch.build import encoders_of, normalizing_wrappers
from border_cli.launch.effective import EffectiveSettings, dataset_size
from border_cli.launch.needs import row_nbytes
from border_cli.launch.run import Run
from border_cli.recorder import terminal
from border_cli.registry import AGENTS, TRAINERS

log = logging.getLogger(__name__)

CONF = Path(str(files("border_cli.conf")))


def print_header(console: Console, run: Run) -> None:
    """Prints what is about to run, where each choice came from, and what is probably not meant; in
    the log also if quiet."""
    effective, config = run.effective, run.job.config
    lines = [
        ("border_cli", f"{__version__}   {config.name}   seed {config.seed}"),
        *choice_lines(run.job.sources),
        *encoders_of(run.agent),
        ("trainer", trainer_line(effective)),
        ("actors", actors_line(effective)),
        ("device", run.agent.device_name),
        *run.matmul,
        ("threads", effective.threads_line()),
        *dataset_lines(effective),
        ("memory", _memory_line(effective, run.spec)),
        ("evaluation", run.evaluation),
        ("run directory", str(run.job.folder)),
        *_resume_lines(run),
    ]
    if not config.quiet:
        terminal.header(console, lines)
    for key, value in lines:
        log.info("%s: %s", key, value.replace("\n", "; "), extra=FILE_ONLY)
    for doubt in doubts(effective):
        log.warning("%s", doubt)


def _resume_lines(run: Run) -> list[tuple[str, str]]:
    """The checkpoint that a run is resumed from, and the settings that changed."""
    if run.newest is None:
        return []
    place = f"the checkpoint at {counted(run.newest.opt_steps, 'update')}"
    lines = [("resumed from", f"{place}; {run.restored}")]
    return [*lines, ("changed", "\n".join(run.changed))] if run.changed else lines


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
    agent = next((each.choice for each in sources if each.group == "agent"), None)
    if agent is not None:  # saved settings choose none
        found = [each for each in sources if each.group == "tuned"]
        of_env = any(each.choice.startswith(f"{agent}_") for each in found)
        none = [] if of_env else [f"none for this {'env' if found else 'agent and env'}"]
        tuned = [*tuned_files(sources), *none]
        lines.append(("tuned values", "\n".join(tuned)))
    return [*lines, *theirs]


def _choice(group: str, names: list[str]) -> str:
    return f"{group}={names[0]}" if len(names) == 1 else f"{group}=[{','.join(names)}]"


def _is_ours(file: str) -> bool:
    return Path(file).is_relative_to(CONF)


def dataset_lines(effective: EffectiveSettings) -> list[tuple[str, str]]:
    """The data set that the run learns from, if there is one."""
    found = dataset_size(effective)
    if found is None:
        return []
    size = f"{counted(found.episodes, 'episode')}, {counted(found.steps, 'step')}"
    return [("data set", f"{found.id}, {size}")]


def trainer_line(effective: EffectiveSettings) -> str:
    """The trainer, its replay ratio and its limits."""
    trainer = effective.config.trainer
    limits = [
        f"{value:,} {what}"
        for value, what in (
            (trainer.max_opt_steps, "updates"),
            (trainer.max_env_steps if effective.has_actors else None, "env steps"),
            (trainer.max_time_s, "s"),
        )
        if value is not None
    ]
    if trainer.stop_at_score is not None:
        limits.append(_enough(trainer))
    name, until = TRAINERS.entry_of(trainer).name, f"until {' or '.join(limits)}"
    if not effective.has_actors:
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


def actors_line(effective: EffectiveSettings) -> str:
    """How many actors of which kind there are, and whether the run is bit-reproducible."""
    if not effective.has_actors:
        return "none; bit-reproducible on a CPU"
    config, actors = effective.config, effective.actors
    text = f"{_count(effective)} x {config.env.num_envs} env, {effective.backend}"
    if config.env.num_envs > 1 and effective.env != config.env:
        text += ", env.vectorization=sync to be bit-reproducible"
    if actors is not config.actor_manager:
        return f"{text} (trainer=sync), n_buffer 1, newest weights; bit-reproducible on a CPU"
    exact = "bit-reproducible on a CPU" if effective.in_learner_thread else "not bit-reproducible"
    return f"{text}, n_buffer {actors.n_buffer}; {exact}"


def _count(effective: EffectiveSettings) -> str:
    """The number of actors; `auto` with the most that there may be."""
    asked = effective.config.actor_manager.num_actors
    fixed = asked == effective.num_actors
    return f"{asked}" if fixed else f"{asked} (at most {effective.num_actors})"


def _memory_line(effective: EffectiveSettings, spec: EnvSpec) -> str:
    row, learned = transition_nbytes(spec), dataset_size(effective)
    stored = row_nbytes(effective, spec) or row
    known = ""
    if learned is not None:
        known = f"data set {counted(learned.steps, 'transition')}, {_size(learned.steps * stored)}"
    if not effective.has_actors:
        return known
    actors, capacity = effective.actors, effective.config.replay_buffer.capacity
    in_flight = 3 * effective.num_actors * max(actors.n_buffer, effective.env.num_envs)
    return (
        f"{known}{'; ' if known else ''}"
        f"replay buffer {counted(capacity, 'transition')}, {_size(capacity * stored)}; "
        f"in flight at most {counted(in_flight, 'transition')}, {_size(in_flight * row)}"
    )


def _size(nbytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB"


def doubts(effective: EffectiveSettings) -> list[str]:
    """What is allowed and probably not meant."""
    wrappers = [
        f"the statistics of env.wrappers={name} differ between actors and evaluation and are not "
        f"saved with the model; use {setting}=true instead"
        for name, setting in normalizing_wrappers(effective).items()
    ]
    imitates = AGENTS.entry_of(effective.config.agent).name == "bc" and effective.has_actors
    cloned = ["agent=bc imitates its own actions without trainer=offline"] if imitates else []
    return [*_bare_id(effective.config.env), *wrappers, *cloned]


def _bare_id(env: EnvConfig) -> list[str]:
    """What an id that is typed misses where a shipped preset has the same."""
    if env.option != ANY_ENV:
        return []
    presets = [
        f"env={file.stem}"
        for file in sorted(Path(CONF, "env").glob("*.yaml"))
        if f"id: {env.id}" in file.read_text(encoding="utf-8").split("\n")
    ]
    told = f"env.id={env.id} takes no tuned values and is listed apart from its preset, "
    return [told + " or ".join(presets)] if presets else []
