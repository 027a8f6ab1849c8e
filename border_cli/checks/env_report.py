"""A report on an environment before anything is trained: `border-env`, and `dry_run=true`."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from border_cli.agent.action_space import format_space
from border_cli.agent.config import RandomConfig
from border_cli.agent.policies import RandomPolicy
from border_cli.checks.dry_build import (
    Tried,
    guarded,
    render_frame,
    settings_with_findings,
    try_env,
)
from border_cli.checks.needs import USABLE, row_nbytes
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import DictSpace, EnvSpec, has_masks
from border_cli.core.timing import MonotonicClock
from border_cli.core.types import leaves
from border_cli.env.config import GymConfig
from border_cli.errors import BorderError, ConfigError, ProbeFailed
from border_cli.launch.build import describe
from border_cli.launch.effective import EffectiveSettings
from border_cli.nn.architecture import Architecture
from border_cli.nn.encoding import encoded_size
from border_cli.nn.parameter_limit import parameters_within
from border_cli.registry import AGENTS, ENVS
from border_cli.settings.run import EnvConfig
from border_cli.system.machine import free_memory, memory_for

PLAYED_S = 1.0  # seconds of random actions


def inspect_env(effective: EffectiveSettings, tried: Tried) -> dict[str, Any]:
    """Tries an environment, unless it is in `tried`, and returns facts about it, in the order in
    which they are shown. Raises ConfigError or ProbeFailed if no agent can be trained in it."""
    timeout_s = effective.config.trainer.stall_timeout_s
    guard = partial(guarded, f"env.id={effective.env.id}", timeout_s)
    spec = try_env(effective.env, timeout_s, tried)
    config = settings_with_findings(effective.config, spec).env
    single = replace(config.in_python() if isinstance(config, GymConfig) else config, num_envs=1)
    source = "env.max_episode_steps" if config.max_episode_steps else "the environment"
    with guard("playing it"):
        played = _play(single, spec, min(PLAYED_S, timeout_s / 4))
    facts: dict[str, Any] = {
        "env": spec.id,
        "observation": dict(_encodings(spec)),
        "left out": spec.left_out,
        "action": format_space(spec.action),
        "action mask": has_masks(spec.observation),
        "time limit": spec.max_episode_steps or "none",
        "limit from": spec.max_episode_steps and source,
        **played,
        "bytes per transition": row_nbytes(effective, spec),
    }
    if isinstance(config, GymConfig):
        from border_cli.env import inspection

        with guard("check_env"):
            facts["check_env"] = "\n".join(inspection.complaints(config)) or "no complaint"
        with guard("its vector implementation"):
            facts["several envs"] = inspection.vector_implementation(config, spec)
    facts["agents"], reasons = _find_agents(spec)
    if not facts["agents"]:
        raise ConfigError("\n  ".join([f"env.id={spec.id}: no agent fits:", *reasons]))
    return facts


def lines_of(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the lines that show the facts, as key and value. Empty facts are left out."""
    return [(key, _to_text(value)) for key, value in facts.items() if value not in ((), [], None)]


def _to_text(value: object) -> str:
    match value:
        case dict():
            return "\n".join(f"{key}: {part}" if key else part for key, part in value.items())
        case list() | tuple():
            return ", ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
    return str(value)


def render_once(effective: EffectiveSettings) -> str:
    """Renders one frame and returns its size, or why there is none. If the call hangs and cannot be
    interrupted, the command ends."""
    try:
        height, width, _ = render_frame(effective).shape
    except BorderError as error:
        return str(error)
    return f"{width} x {height}"


def _play(config: EnvConfig, spec: EnvSpec, most_s: float) -> dict[str, Any]:
    """Plays random actions for `most_s` seconds and returns the facts that this shows. Raises
    ProbeFailed for values that are not finite."""
    env, recorder = ENVS.build(config).make(training=True), None
    if isinstance(config, GymConfig):
        # imported late: Gymnasium's checker, which only this command needs
        from border_cli.env import inspection

        recorder = inspection.record_info(env)
    clock, masked = MonotonicClock(), has_masks(spec.observation)
    policy = RandomPolicy(spec.action, generator(0, Branch.PROBE), masked=masked)
    lengths: list[int] = []
    seed, steps = derived_seed(0, Branch.PROBE, 0), 0
    with closing(env):
        first, obs = env.reset(seed), env.reset(seed)
        repeats = all(map(np.array_equal, leaves(first), leaves(obs)))
        began_s = clock.now_s()
        while clock.now_s() < began_s + most_s:
            step = env.step(policy.act(obs, explore=True))
            obs, steps = step.act_obs, steps + 1
            lengths += [episode.length for episode in step.episodes]
            if not all(np.isfinite(part).all() for part in (*leaves(step.next_obs), step.reward)):
                raise ProbeFailed(
                    f"env.id={spec.id}: step {steps} returns a value that is not finite: "
                    f"{step.next_obs}, reward {step.reward}"
                )
    return {
        "same seed, same reset": repeats,
        "draws from random or np.random": spec.own_generators,
        "shortest and longest episode": [f"{limit(lengths)}" for limit in (min, max) if lengths],
        "env steps/s": math.ceil(steps / (clock.now_s() - began_s)),
        "numbers in info": recorder and sorted(recorder.names),
        "render modes": recorder and recorder.metadata.get("render_modes"),
    }


def _find_agents(spec: EnvSpec) -> tuple[list[str], list[str]]:
    """Returns the agents that accept the environment with their default settings, and why the
    others do not."""
    agents, reasons = list[str](), list[str]()
    exempt = gc.get_freeze_count()  # objects that a caller has exempted from collection
    for entry in AGENTS:
        if entry.config_type is RandomConfig:
            continue
        try:
            within = parameters_within(int(USABLE * free_memory()))
            with memory_for(f"{entry.name} does not fit in memory", {}, ConfigError), within:
                AGENTS.build(entry.config_type(), spec=spec, device="cpu", seed=0)
        except ConfigError as error:
            reasons.append(str(error))
        else:
            agents += [entry.name, *entry.presets]
        finally:
            gc.collect()  # the agent has reference cycles and, for large images, gigabytes
            if not exempt:
                gc.freeze()  # what is left, so that the next collection is short
    if not exempt:
        gc.unfreeze()
    return sorted(agents), reasons


def _encodings(spec: EnvSpec) -> Iterator[tuple[str, str]]:
    """Yields each part of the observation with its encoding for networks."""
    observation = spec.observation
    images = Architecture(observation).images
    parts = observation.spaces if isinstance(observation, DictSpace) else {"": observation}
    for key, part in parts.items():
        encoding = f"{encoded_size(part)} numbers" if key not in images else describe(images[key])
        yield key, f"{format_space(part)}, {encoding}"
