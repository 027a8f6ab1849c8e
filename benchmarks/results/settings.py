"""All current settings of a row, and how they differ from the settings of a finished cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results.kinds import Peer, Recording, Row, Run
from benchmarks.results.rows import recording_of, run_of
from border_cli.agent.config import DqnConfig
from border_cli.config.compose import Composer
from border_cli.core.seeding import Branch, derived_seed
from border_cli.settings.run import RunConfig

# Settings that do not change what is learned.
APART = {"seed", "name", "run_dir", "resume", "dry_run", "quiet", "imports", "objective"}
APART |= {"recorder", "callback", "checkpoint", "sweep"}
# Settings without effect if no actor runs.
ACTING = ("actor_manager", "trainer.sync_interval")
ACTING += ("trainer.warmup_period", "trainer.samples_per_opt_step")
# Values with the same effect in these rows: null means one thread, and background evaluations only
# for large images, which no row with cells has.
SAME = [("agent.num_threads", 1, None), ("evaluator.background", False, None)]
UNKNOWN = object()  # marks a setting without default


class Setting(NamedTuple):
    """A value as stored in JSON, and the default of its field."""

    value: Any
    default: Any


Settings = dict[str, Setting]  # by path, such as agent.gamma


class Composed(NamedTuple):
    """The composed settings of a run of ours."""

    config: RunConfig
    tuned: str | None  # name of the last tuned file: that of the pair, if it exists


@cache
def compose_row(typed: tuple[str, ...]) -> Composed:
    """Composes the settings of a command line; raises ConfigError if it is invalid."""
    job = Composer().job(list(typed))
    files = [Path(source.file).stem for source in job.sources if source.group == "tuned"]
    return Composed(job.config, files[-1] if files else None)


def settings_of(row: Row) -> Settings:
    """Returns every setting on which the results of a row depend."""
    match row:
        case Run():
            config = compose_row(row.typed).config
            settings = dict(_flat(config))
            if config.trainer.offline:
                settings = {
                    path: setting
                    for path, setting in settings.items()
                    if not path.startswith(ACTING)
                }
            data = settings_of(recording_of(row.recording)) if row.recording else {}
            return settings | {f"data.{path}": setting for path, setting in data.items()}
        case Recording():
            run = settings_of(run_of(row.run))
            words = {"typed": Setting(list(row.typed), UNKNOWN)}
            return words | {f"run.{path}": setting for path, setting in run.items()}
        case Peer():
            task: dict[str, Any] = {"algorithm": row.algorithm, **peer_task(row, 0)}
            task |= peer_settings(row)
            seeds = ("seed", "evaluation_seed", "judging_seed")
            return {
                path: Setting(_as_json(setting), UNKNOWN)
                for path, setting in task.items()
                if path not in seeds
            }
    raise TypeError(f"there are no rows of {type(row)}")


def peer_task(row: Peer, seed: int) -> dict[str, Any]:
    """Returns environment, budget and evaluations of our row, for the peer."""
    config = compose_row(run_of(row.of).typed).config
    trainer, wrappers = config.trainer, getattr(config.env, "wrappers", [])
    return {
        "env_id": config.env.id,
        "env_kwargs": getattr(config.env, "kwargs", {}),
        **({"env_wrappers": wrappers} if wrappers else {}),
        "env_steps": trainer.max_env_steps,
        "eval_every": trainer.eval_interval_env_steps
        or int(trainer.eval_interval * (trainer.samples_per_opt_step or 1)),
        "eval_episodes": config.evaluator.num_episodes,
        "seed": seed,
        "evaluation_seed": derived_seed(seed, Branch.EVALUATION),
        "judging_seed": derived_seed(judging_seed(seed), Branch.EVALUATION),
    }


def peer_settings(row: Peer) -> dict[str, Any]:
    """Returns the settings of the row or of our DQN, with Stable-Baselines3's names."""
    if row.settings is not None:
        return dict(row.settings)
    ours = compose_row(run_of(row.of).typed).config
    agent = ours.agent
    assert isinstance(agent, DqnConfig)
    assert ours.trainer.max_env_steps is not None
    return {
        "learning_rate": agent.learning_rate,
        "batch_size": agent.batch_size,
        "buffer_size": ours.replay_buffer.capacity,
        "learning_starts": ours.trainer.warmup_period,
        "gamma": agent.gamma,
        "target_update_interval": agent.target_interval,
        "train_freq": 1,
        "gradient_steps": 1,
        "exploration_fraction": agent.epsilon["steps"] / ours.trainer.max_env_steps,
        "exploration_final_eps": agent.epsilon["final"],
    }


def judging_seed(seed: int) -> int:
    """Returns the seed of the fresh episodes, which no run uses."""
    return 10_000 + seed


def values(settings: Settings) -> dict[str, Any]:
    """Returns the values without the defaults, as a cell stores them."""
    return {path: setting.value for path, setting in settings.items()}


def differences(then: Mapping[str, Any], now: Settings) -> list[str]:
    """Describes the changes since a cell was finished. New settings with their default value do not
    count, nor do different values with the same effect."""
    changes = []
    then = _with_serial_actors(then)
    for path in sorted({*then, *now}):
        if path not in now:
            changes.append(f"{path} is gone")
        elif path not in then and now[path].value != now[path].default:
            changes.append(f"{path}={now[path].value} is new")
        elif path in then and not _same(path, then[path], now[path].value):
            changes.append(f"{path}: {then[path]} -> {now[path].value}")
    return changes


def _with_serial_actors(then: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces the thread manager of runs with trainer=sync, which always stepped their actors."""
    settings = dict(then)
    for run in ("", "run.", "data.run."):
        manager = f"{run}actor_manager"
        if (then.get(f"{run}trainer"), then.get(manager)) == ("SyncConfig", "ThreadConfig"):
            settings[manager] = "SerialConfig"
            del settings[f"{manager}.join_timeout_s"]
    return settings


def _same(path: str, then: Any, now: Any) -> bool:
    """Returns whether two values of a setting have the same effect."""
    name = path.removeprefix("data.").removeprefix("run.")
    return bool(then == now) or (name, then, now) in SAME


def _flat(node: Any, path: str = "") -> Iterator[tuple[str, Setting]]:
    """Yields the leaf settings of a dataclass."""
    for field in fields(node):
        value = getattr(node, field.name)
        if (not path and field.name in APART) or not field.compare:  # only a display name
            continue
        if is_dataclass(value):
            yield f"{path}{field.name}", Setting(type(value).__name__, UNKNOWN)
            yield from _flat(value, f"{path}{field.name}.")
            continue
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        default_value = UNKNOWN if default is MISSING else _as_json(default)
        yield f"{path}{field.name}", Setting(_as_json(value), default_value)


def _as_json(value: Any) -> Any:
    """Returns the value as it is read back from JSON."""
    return json.loads(json.dumps(value, default=str))
