"""All settings of a row as they are now, and how they differ from those a cell was made with."""

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

# What does not change what is learned.
APART = {"seed", "name", "run_dir", "resume", "dry_run", "quiet", "imports", "objective"}
APART |= {"recorder", "callback", "checkpoint", "sweep"}
# What does nothing where no actor runs.
ACTING = ("actor_manager", "trainer.sync_interval")
ACTING += ("trainer.warmup_period", "trainer.samples_per_opt_step")
# Values that mean the same here: the number of threads that null stands for, and evaluations beside
# training where large images are observed, which no row with cells has.
SAME = [("agent.num_threads", 1, None), ("evaluator.background", False, None)]
UNKNOWN = object()  # the default of a setting that has none


class Setting(NamedTuple):
    """A value as JSON has it, and the default of its field."""

    value: Any
    default: Any


Settings = dict[str, Setting]  # by path, such as agent.gamma


class Composed(NamedTuple):
    """A run of ours, composed."""

    config: RunConfig
    tuned: str | None  # the name of the tuned file; of several the last, that of the pair


@cache
def composed(typed: tuple[str, ...]) -> Composed:
    """The settings that these words give; raises ConfigError where there are none such."""
    job = Composer().job(list(typed))
    files = [Path(source.file).stem for source in job.sources if source.group == "tuned"]
    return Composed(job.config, files[-1] if files else None)


def settings_of(row: Row) -> Settings:
    """Every setting that the results of a row depend on."""
    match row:
        case Run():
            config = composed(row.typed).config
            own = dict(_flat(config))
            if config.trainer.offline:
                own = {path: each for path, each in own.items() if not path.startswith(ACTING)}
            data = settings_of(recording_of(row.recording)) if row.recording else {}
            return own | {f"data.{path}": each for path, each in data.items()}
        case Recording():
            run = settings_of(run_of(row.run))
            words = {"typed": Setting(list(row.typed), UNKNOWN)}
            return words | {f"run.{path}": each for path, each in run.items()}
        case Peer():
            task: dict[str, Any] = {"algorithm": row.algorithm, **peer_task(row, 0)}
            task |= peer_settings(row)
            seeds = ("seed", "evaluation_seed", "judging_seed")
            return {
                path: Setting(_as_json(each), UNKNOWN)
                for path, each in task.items()
                if path not in seeds
            }
    raise TypeError(f"there are no rows of {type(row)}")


def peer_task(row: Peer, seed: int) -> dict[str, Any]:
    """Environment, budget, evaluations and their episodes: those of our row."""
    config = composed(run_of(row.of).typed).config
    trainer = config.trainer
    return {
        "env_id": config.env.id,
        "env_kwargs": getattr(config.env, "kwargs", {}),
        "env_steps": trainer.max_env_steps,
        "eval_every": int(trainer.eval_interval * (trainer.samples_per_opt_step or 1)),
        "eval_episodes": config.evaluator.num_episodes,
        "seed": seed,
        "evaluation_seed": derived_seed(seed, Branch.EVALUATION),
        "judging_seed": derived_seed(judging_seed(seed), Branch.EVALUATION),
    }


def peer_settings(row: Peer) -> dict[str, Any]:
    """As Stable-Baselines3 calls them: those of the row, or of our own DQN."""
    if row.settings is not None:
        return dict(row.settings)
    ours = composed(run_of(row.of).typed).config
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
    """Of the fresh episodes; no seed of a run comes near."""
    return 10_000 + seed


def values(settings: Settings) -> dict[str, Any]:
    """Without the defaults: what a cell keeps."""
    return {path: setting.value for path, setting in settings.items()}


def differences(then: Mapping[str, Any], now: Settings) -> list[str]:
    """What changed since, in words. A new setting that stands at its default changed nothing, and
    neither did another name for the same."""
    found = []
    for path in sorted({*then, *now}):
        if path not in now:
            found.append(f"{path} is gone")
        elif path not in then and now[path].value != now[path].default:
            found.append(f"{path}={now[path].value} is new")
        elif path in then and not _same(path, then[path], now[path].value):
            found.append(f"{path}: {then[path]} -> {now[path].value}")
    return found


def _same(path: str, then: Any, now: Any) -> bool:
    """Whether two values of a setting have the same effect."""
    own = path.removeprefix("data.").removeprefix("run.")
    return bool(then == now) or (own, then, now) in SAME


def _flat(node: Any, path: str = "") -> Iterator[tuple[str, Setting]]:
    """The leaves below a dataclass."""
    for each in fields(node):
        value = getattr(node, each.name)
        if (not path and each.name in APART) or not each.compare:  # a name of the settings alone
            continue
        if is_dataclass(value):
            yield f"{path}{each.name}", Setting(type(value).__name__, UNKNOWN)
            yield from _flat(value, f"{path}{each.name}.")
            continue
        default = each.default
        if each.default_factory is not MISSING:
            default = each.default_factory()
        known = UNKNOWN if default is MISSING else _as_json(default)
        yield f"{path}{each.name}", Setting(_as_json(value), known)


def _as_json(value: Any) -> Any:
    """What reading the value back from JSON gives."""
    return json.loads(json.dumps(value, default=str))
