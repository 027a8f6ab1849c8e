"""The header of a run: what will run, and where each choice comes from."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from border_cli import __version__
from border_cli.agent.action_space import format_space
from border_cli.config.describe import format_setting
from border_cli.config.job import Job, Source
from border_cli.config.tuned import tuned_files
from border_cli.core.interfaces import Agent, Evaluator
from border_cli.core.output import FILE_ONLY
from border_cli.core.spaces import GOALS, DictSpace, EnvSpec, Space
from border_cli.env.config import GymConfig
from border_cli.evaluator.config import LOCAL, EpisodesConfig
from border_cli.launch.build import backend_lines, encoders_of, normalizing_wrappers
from border_cli.launch.effective import EffectiveSettings
from border_cli.launch.run import Run, restored_line
from border_cli.recorder import terminal
from border_cli.registry import STEP_PROCESSORS, TRAINERS
from border_cli.replay_buffer.config import HindsightConfig, RolloutConfig, rows_of_share
from border_cli.settings.run import ReplayRatioConfig
from border_cli.step_processor.config import MULTI_STEP, ONE_STEP
from border_cli.system.machine import available_cores
from border_cli.words import pluralize

log = logging.getLogger(__name__)

CONF = Path(str(files("border_cli.conf")))


def print_header(console: Console, run: Run) -> None:
    """Prints and logs what will run, where each choice comes from, and warnings about doubtful
    settings; only logs it if quiet."""
    lines = header_lines(run.job, run.effective, run.spec, run.agent, run.evaluator)
    if run.newest is not None:
        checkpoint = f"the checkpoint at {pluralize(run.newest.opt_steps, 'update')}"
        lines.append(("resumed from", f"{checkpoint}; {restored_line(run.effective, run.newest)}"))
    if run.changed:
        lines.append(("changed", "\n".join(run.changed)))
    if not run.job.config.quiet:
        terminal.header(console, lines)
    for key, value in lines:
        log.info("%s: %s", key, value.replace("\n", "; "), extra=FILE_ONLY)
    for doubt in doubts(run.effective, run.job.overrides):
        log.warning("%s", doubt)


def header_lines(
    job: Job, effective: EffectiveSettings, spec: EnvSpec, agent: Agent, evaluator: Evaluator
) -> list[tuple[str, str]]:
    """Returns the header lines of a run or of a dry run, as key and value."""
    config = job.config
    threads = f"{pluralize(effective.torch_threads, 'thread')} (agent.num_threads)"
    cores = pluralize(available_cores(), "core")
    return [
        ("border_cli", f"{__version__}   {config.name}   seed {config.seed}"),
        *choice_lines(job),
        ("env", f"{spec.id}, observes {_space(spec.observation)}, acts {_space(spec.action)}"),
        *([("left out", f"observation {', '.join(spec.left_out)}")] if spec.left_out else []),
        *_goal_lines(effective, spec),
        *_generator_lines(effective, spec),
        *_vectorization_lines(effective),
        *encoders_of(agent),
        ("trainer", trainer_line(effective)),
        *schedule_lines(effective),
        ("actors", actors_line(effective)),
        ("device", f"{agent.device_name}, {threads}, {cores}"),
        *backend_lines(agent),
        *_data_lines(effective),
        ("evaluation", f"{evaluator.describe()}{_where(effective, spec)}"),
        *_other_env_lines(effective),
        ("run directory", str(job.folder)),
    ]


def choice_lines(job: Job) -> list[tuple[str, str]]:
    """Returns the config choices: those from a user's files with the file, others on one line."""
    sources = job.sources
    chosen = [_rename_step_processor(s, job) for s in sources if s.group not in ("tuned", "config")]
    custom = [source for source in chosen if not Path(source.file).is_relative_to(CONF)]
    grouped: dict[str, list[str]] = {}
    for source in sorted(chosen, key=lambda source: source.group not in ("agent", "env")):
        if source not in custom:
            grouped.setdefault(source.group, []).append(source.choice)
    words = [f"{group}={','.join(choices)}" for group, choices in grouped.items()]
    lines = [("choices", " ".join(words))] if words else []
    agent = next((source.choice for source in chosen if source.group == "agent"), None)
    if agent is not None:  # None for saved settings
        of_pair = [source for source in sources if source.choice.startswith(f"{agent}_")]
        none = [] if of_pair else ["none for this agent and env"]
        lines.append(("tuned values", "\n".join([*tuned_files(sources), *none])))
    return [*lines, *((source.group, f"{source.choice} from {source.file}") for source in custom)]


def _rename_step_processor(source: Source, job: Job) -> Source:
    """Names the step processor by what it does: settings may turn one option into the other."""
    option = job.config.step_processor.option
    is_ours = source.choice in (ONE_STEP, MULTI_STEP) and source.group == STEP_PROCESSORS.group
    return source._replace(choice=option) if option and is_ours else source


def _space(space: Space) -> str:
    if isinstance(space, DictSpace):
        return ", ".join(f"{key}: {format_space(part)}" for key, part in space.spaces.items())
    return format_space(space)


def _goal_lines(effective: EffectiveSettings, spec: EnvSpec) -> list[tuple[str, str]]:
    """Suggests hindsight replay for an environment with goals that is learned without it."""
    parts = spec.observation.spaces if isinstance(spec.observation, DictSpace) else {}
    buffer = effective.config.replay_buffer
    if not parts.keys() >= {*GOALS} or buffer.on_policy or isinstance(buffer, HindsightConfig):
        return []
    return [("goals", "replay_buffer=hindsight also learns from the goals that were reached")]


def _generator_lines(effective: EffectiveSettings, spec: EnvSpec) -> list[tuple[str, str]]:
    """Returns a line on the reproducibility of the env's global random draws, if there are any."""
    if not spec.own_generators:
        return []
    draws = "reset(seed=…) is not enough: the env draws from random or np.random"
    if effective.backend == "thread" and not effective.reproducible:
        return [
            ("generators", f"{draws}, which actor threads share; runs and scores do not repeat")
        ]
    return [("generators", f"{draws}; each env has states of its own, seeded with each episode")]


def _vectorization_lines(effective: EffectiveSettings) -> list[tuple[str, str]]:
    """Returns a line on environments that may not be resumed exactly due to their settings."""
    env = effective.env
    if isinstance(env, GymConfig) and not env.exact_resume:
        return [("vectorization", f"{env.vectorization}; a resume may begin new episodes")]
    return []


def trainer_line(effective: EffectiveSettings) -> str:
    """Returns the trainer, its replay ratio and its limits."""
    trainer, buffer = effective.config.trainer, effective.config.replay_buffer
    rollout = buffer.n_steps * effective.num_envs if isinstance(buffer, RolloutConfig) else 1
    env_steps = trainer.max_env_steps and math.ceil(trainer.max_env_steps / rollout) * rollout
    limits = {
        "updates": trainer.max_opt_steps,
        "env steps": None if trainer.offline else env_steps,
        "s": trainer.max_time_s,
    }
    until = [f"{value:,} {what}" for what, value in limits.items() if value is not None]
    if trainer.stop_at_score is not None:
        until.append(f"score {trainer.stop_at_score:g}")
    if trainer.patience is not None:
        until.append(f"{pluralize(trainer.patience, 'evaluation')} without a new best")
    sampling = "from the data set only"
    if isinstance(buffer, RolloutConfig):
        epochs = pluralize(buffer.n_epochs, "epoch")
        sampling = f"rollouts of {rollout:,} env steps, {epochs} each"
    elif isinstance(trainer, ReplayRatioConfig):
        ratio = trainer.samples_per_opt_step
        sampling = "free-running" if ratio is None else f"{pluralize(ratio, 'sample')} per update"
    return f"{TRAINERS.entry_of(trainer).name}, {sampling}, until {' or '.join(until)}"


def schedule_lines(effective: EffectiveSettings) -> list[tuple[str, str]]:
    """Returns the settings that change during the run, if there are any."""
    lines = []
    for name, (counter, schedule) in effective.schedules.items():
        steps = "the run" if schedule.steps is None else f"{schedule.steps:,} {counter}"
        lines.append(f"{name} {schedule} over {steps}")
    return [("schedules", "\n".join(lines))] if lines else []


def actors_line(effective: EffectiveSettings) -> str:
    """Returns the number and kind of actors, and whether the run is bit-reproducible."""
    if effective.config.trainer.offline:
        return "none; bit-reproducible on a CPU"
    num_actors, most_actors = effective.config.actor_manager.num_actors, effective.num_actors
    prefix = "" if num_actors == most_actors else "at most "
    text = f"{prefix}{most_actors} x {effective.env.num_envs} env, {effective.backend}"
    if effective.actors.in_learner_thread:
        return f"{text}, in turn in the learner's thread; bit-reproducible on a CPU"
    if effective.in_lockstep:
        repeats = "bit-reproducible on a CPU" if effective.reproducible else "not bit-reproducible"
        return f"{text}, in lockstep with the learner; {repeats}"
    return f"{text}, n_buffer {effective.actors.n_buffer}; not bit-reproducible"


def _data_lines(effective: EffectiveSettings) -> list[tuple[str, str]]:
    """Returns a description of the data set, if there is one."""
    buffer, batch_size = effective.config.replay_buffer, effective.config.agent.batch_size
    if buffer.dataset is None:
        return []
    from border_cli.dataset.store import counts_of

    episodes, steps = counts_of(buffer.dataset)
    text = f"{pluralize(episodes, 'episode')}, {pluralize(steps, 'step')}"
    if buffer.dataset_share is not None:
        rows = rows_of_share(buffer.dataset_share, batch_size)
        text += f", {rows} of the {batch_size} transitions of each batch"
    return [("data set", f"{buffer.dataset}, {text}")]


def _other_env_lines(effective: EffectiveSettings) -> list[tuple[str, str]]:
    """Returns the settings in which the evaluation environment differs from the training
    environment."""
    trains, evaluates = effective.config.env, effective.evaluation_env
    lines = [
        f"env.{name}={format_setting(getattr(evaluates, name))}, in training "
        f"{format_setting(getattr(trains, name))}"
        for name in effective.config.evaluator.env
        if getattr(evaluates, name) != getattr(trains, name)
    ]
    return [("evaluated in", "\n".join(lines))] if lines else []


def _where(effective: EffectiveSettings, spec: EnvSpec) -> str:
    if effective.evaluates_in_background(spec):
        evaluator = effective.config.evaluator
        if isinstance(evaluator, EpisodesConfig) and evaluator.where != LOCAL:
            return f", in the background (evaluator.where={evaluator.where})"
        return ", in the background"
    return ""


def doubts(effective: EffectiveSettings, overrides: Sequence[str] = ()) -> list[str]:
    """Returns warnings about settings that are allowed but probably not intended."""
    typed = {override.lstrip("+").partition("=")[0] for override in overrides}
    is_synchronous = effective.config.trainer.synchronous
    ignored = [
        f"{name} has no effect with trainer=sync, whose actors always have the newest weights and "
        "send every step"
        for name in ("trainer.sync_interval", "actor_manager.n_buffer")
        if is_synchronous and name in typed
    ]
    return ignored + [
        f"the statistics of env.wrappers={name} differ between actors and evaluation and are not "
        f"saved with the model; use {setting}=true instead"
        for name, setting in normalizing_wrappers(effective).items()
    ]
