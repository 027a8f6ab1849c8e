"""What a job prints before and after it runs: the header, the tables, the last lines."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from border_cli import __version__
from border_cli.config.compose import Source
from border_cli.config.interpolation import ANY_ENV
from border_cli.config.tuned import tuned_files
from border_cli.core.config import EnvConfig, TrainerConfig
from border_cli.core.interfaces import ActorStats
from border_cli.core.output import FILE_ONLY, MAX_FAILURES, TrainerStats
from border_cli.core.spaces import EnvSpec, transition_nbytes
from border_cli.core.timing import summed
from border_cli.core.words import counted, setting, shell_command, shortest
from border_cli.recorder import terminal
from border_cli.registry import AGENTS, TRAINERS
from border_cli.run.finding import resumable

if TYPE_CHECKING:
    from border_cli.cli.training_job import JobContext
    from border_cli.launch.effective import EffectiveSettings
    from border_cli.launch.training import Started

log = logging.getLogger(__name__)

CONF = Path(str(files("border_cli.conf")))
UNFINISHED = ("interrupted", "failed", "killed")


def print_header(
    console: Console,
    effective: EffectiveSettings,
    context: JobContext,
    started: Started,
    changed: Sequence[str],
) -> None:
    """Prints what is about to run and where each choice came from, and which settings `changed` in
    a run that is resumed; in the log also if quiet."""
    config = effective.config
    lines = [
        ("border_cli", f"{__version__}   {config.name}   seed {config.seed}"),
        *choice_lines(context.sources),
        *started.encoders,
        ("trainer", trainer_line(effective)),
        ("actors", actors_line(effective)),
        ("device", started.device_name),
        *started.matmul,
        ("threads", effective.threads_line()),
        *dataset_lines(effective),
        ("memory", _memory_line(effective, started.spec)),
        ("evaluation", started.evaluation),
        ("run directory", str(context.run_dir)),
        *_resume_lines(started, changed),
    ]
    if not config.quiet:
        terminal.header(console, lines)
    for key, value in lines:
        log.info("%s: %s", key, value.replace("\n", "; "), extra=FILE_ONLY)


def _resume_lines(started: Started, changed: Sequence[str]) -> list[tuple[str, str]]:
    """The checkpoint that a run is resumed from, and the settings that changed."""
    if started.resumed_opt_steps is None:
        return []
    place = f"the checkpoint at {counted(started.resumed_opt_steps, 'update')}"
    lines = [("resumed from", f"{place}; {started.restored}")]
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
    from border_cli.launch.effective import dataset_size

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
    from border_cli.launch.effective import dataset_size
    from border_cli.launch.needs import row_nbytes

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
    from border_cli.launch.build import normalizing_wrappers

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


def print_tables(
    console: Console,
    effective: EffectiveSettings,
    actor_stats: list[ActorStats],
    stats: TrainerStats,
) -> None:
    """The final statistics of actors and trainer, and where their time went."""
    samples = {"samples": stats.samples_total, "samples/s": stats.samples_per_sec}
    figures = {
        "updates": stats.opt_steps,
        **(samples if actor_stats else {}),  # there are no actors where a data set is all
        "updates/s": stats.opt_per_sec,
        "duration s": stats.duration_s,
    }
    terminal.stats_tables(console, actor_stats, figures)
    terminal.time_tree(
        console,
        stats.seconds,
        summed(each.seconds for each in actor_stats),
        in_learner_thread=effective.in_learner_thread,
        concurrent={f"writing {counted(stats.saves, 'checkpoint')}": stats.save_seconds},
    )


def print_closing(
    console: Console, run_dir: Path, facts: Mapping[str, Any], *, intact: bool = True
) -> None:
    """What went wrong on the way, the run directory, the best score and what to type next.

    `facts` are those of `run.json`. `intact`: its checkpoints may serve to resume it.
    """
    shown = shortest(run_dir)
    best = None
    if facts.get("best_score") is not None and facts.get("best_opt_steps") is not None:
        best = (facts["best_score"], facts["best_opt_steps"])
    warnings = [
        what.format(counted(facts[key], noun))
        for key, noun, what in (
            ("save_failures", "time", "a checkpoint could not be written {}"),
            ("saves_skipped", "checkpoint", "{} skipped, because another was still being written"),
            ("recorder_failures", "failure", "{} of recorders"),
        )
        if facts.get(key)
    ]
    warnings += [
        f"{recorder} was switched off after {MAX_FAILURES} failures in a row: {reason}"
        for recorder, reason in facts.get("recorders_switched_off", {}).items()
    ]
    quoted = shlex.quote(str(shown))
    saved = (run_dir / "best", run_dir / "checkpoints" / "latest")
    commands = []
    if any(each.exists() for each in saved):
        commands.append(f"{shell_command('border-eval')} {quoted}")
    if any(run_dir.glob("events.out.tfevents.*")):
        commands.append(f"{shell_command('tensorboard')} --logdir {quoted}")
    if intact and facts.get("status") in UNFINISHED and resumable(run_dir):
        commands.append(resume_run(run_dir))
    lines = [("bottleneck", facts["bottleneck"])] if facts.get("bottleneck") else []
    if facts.get("status") == "done":
        lines.append(("ended", facts["exit_reason"]))
    terminal.closing(console, shown, best, commands, lines=lines, warnings=warnings)


def result_line(run_dir: Path, facts: Mapping[str, Any]) -> str:
    """The only line that a quiet run prints on standard output. `facts` are those of `run.json`."""
    best, opt_steps = facts.get("best_score"), facts.get("best_opt_steps")
    if best is None or opt_steps is None:
        return f"no score: {shortest(run_dir)}"
    return f"best score {best:.10g} at {counted(opt_steps, 'update')}: {shortest(run_dir)}"


def resume_run(run_dir: Path) -> str:
    """The whole command that resumes a run."""
    resume = setting("resume", str(shortest(run_dir)))
    return f"{shell_command('border-train')} {shlex.quote(resume)}"


def resume_sweep(typed: Sequence[str], root: Path) -> str:
    """The command of a sweep once more, so that it runs only what is not done."""
    name, *words = typed
    rest = [each for each in words if not each.startswith("resume=")]
    if not any(each.startswith("run_dir=") for each in words):
        rest.append(setting("run_dir", str(shortest(root))))
    return " ".join([shell_command(name), *map(shlex.quote, [*rest, "resume=auto"])])
