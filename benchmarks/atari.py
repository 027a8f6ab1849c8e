"""Pong: environment steps and DQN updates per second, compared with other libraries.

    python -m benchmarks.atari [--repetitions 3] [--seconds 4] [--envs 8] [--threads 2]

Needs the extras `atari` and `bench`. EnvPool rows need `envpool`, which may have to be installed
into a separate directory on `PYTHONPATH`.

`steps`: eight environments with random actions. `ours` is a complete `Actor.step` (checks,
episodes, step processor, messages); ALE's vector environment and EnvPool step with the same
settings and drop the results. The contenders alternate every quarter of a second in one process,
because the speed of a shared machine changes from one second to the next. Each repetition starts a
new process. `updates`: DQN with the Nature network and batches of 32, sampled from 4,000 stored
transitions, at full (`ours`) and medium (`ours_medium`) matmul precision, against a bare PyTorch
loop with autograd and Stable-Baselines3, each in its own process.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from benchmarks.isolated import call
from benchmarks.table import (
    Reading,
    column,
    contenders_of,
    emit,
    make_parser,
    ratios,
    spread,
    summary,
    take_turns,
)

BATCH_SIZE = 32
CAPACITY = 4_000
ACTIONS = 6
SHAPE = (4, 84, 84)
LEARNING_RATE = 1e-4
GAMMA = 0.99
SETTLED_S = 1.0
TURN_S = 0.25
MODULES = {"envpool": "envpool", "sb3": "stable_baselines3"}  # packages that contenders need
STEPS = ("ours", "ale", "envpool")
UPDATES = ("ours", "ours_medium", "bare", "sb3")


def _settled_rate(once: Callable[[], object], seconds: float) -> float:
    """Returns calls per second, measured after a settling period."""
    _rate(once, 1, SETTLED_S)
    return _rate(once, 1, seconds)


def _rate(once: Callable[[], object], amount: int, seconds: float) -> float:
    """Returns units per second; each call of `once` completes `amount` units."""
    total, began_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - began_s) < seconds:
        once()
        total += amount
    return total / elapsed_s


def steps(kinds: list[str], seed: int, seconds: float, envs: int, threads: int) -> Reading:
    """Returns the env steps per second of each kind, and the ratios of ours to the others."""
    makers = {"ours": _our_actor, "ale": _ale, "envpool": _envpool}
    steppers = {kind: makers[kind](seed, envs, threads) for kind in kinds}
    for once in steppers.values():
        _rate(once, envs, SETTLED_S)
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(round(seconds / TURN_S)):
        for kind in kinds if turn % 2 == 0 else reversed(kinds):
            rates[kind].append(_rate(steppers[kind], envs, TURN_S))
    reading = {
        f"to_{kind}": ratios(rates["ours"], rates[kind])["median"]
        for kind in kinds
        if kind != "ours"
    }
    return reading | {kind: median(values) for kind, values in rates.items()}


def _our_actor(seed: int, envs: int, threads: int) -> Callable[[], object]:
    from border_cli import compose
    from border_cli.actor_manager.actor import ActorFactory
    from border_cli.actor_manager.weights import WeightSlot
    from border_cli.launch.build import build_agent, env_factory
    from border_cli.launch.effective import effective_settings
    from border_cli.step_processor.config import NStepConfig
    from border_cli.step_processor.n_step import NStep

    typed = ("agent=random", "env=pong", "actor_manager.num_actors=1", f"env.num_envs={envs}")
    effective = effective_settings(compose(*typed, f"env.num_threads={threads}"))
    factory = env_factory(effective)
    agent = build_agent(effective, factory.spec)
    weights = WeightSlot()
    weights.publish(agent.snapshot())
    make_actor = ActorFactory(
        seed=seed,
        env_factory=factory,
        policy_factory=agent.policy_factory,
        make_step_processor=partial(NStep, NStepConfig(), gamma=GAMMA, num_envs=envs),
    )
    actor = make_actor(effective.actors, 0, 0, send=lambda _: 0.0, weights=weights)
    return actor.step


def _ale(seed: int, envs: int, threads: int) -> Callable[[], object]:
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv("pong", envs, num_threads=threads, life_loss_info=True)
    return _random_steps(env, seed, envs, np.int64)


def _envpool(seed: int, envs: int, threads: int) -> Callable[[], object]:
    import envpool

    settings = {"num_envs": envs, "num_threads": threads, "seed": seed}
    env = envpool.make("Pong-v5", "gymnasium", **settings, reward_clip=True, episodic_life=True)
    return _random_steps(env, seed, envs, np.int32)


def _random_steps(env: Any, seed: int, envs: int, dtype: type) -> Callable[[], object]:
    rng = np.random.default_rng(seed)
    env.reset()
    return lambda: env.step(rng.integers(ACTIONS, size=envs).astype(dtype))


def updates(kind: str, seed: int, seconds: float, threads: int) -> Reading:
    """Returns updates per second."""
    import torch

    torch.set_num_threads(threads)
    make = {"bare": _bare, "sb3": _sb3}.get(kind, partial(_ours, kind))
    return {"updates_per_s": make(seed, seconds, threads)}


def _stored(seed: int) -> dict[str, np.ndarray]:
    """Returns the transitions that every contender stores."""
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.integers(256, size=(CAPACITY, *SHAPE), dtype=np.uint8),
        "action": rng.integers(ACTIONS, size=CAPACITY),
        "reward": rng.integers(-1, 2, size=CAPACITY).astype(np.float32),
        "discount": np.full(CAPACITY, GAMMA, np.float32),
        "next_obs": rng.integers(256, size=(CAPACITY, *SHAPE), dtype=np.uint8),
    }


def _ours(kind: str, seed: int, seconds: float, threads: int) -> float:
    from border_cli import compose
    from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
    from border_cli.core.types import Transitions
    from border_cli.launch.build import build_agent, build_replay_buffer
    from border_cli.launch.effective import effective_settings

    precision = "medium" if kind == "ours_medium" else "highest"
    typed = ("agent=dqn", "env=pong", "step_processor=n_step", f"replay_buffer.capacity={CAPACITY}")
    typed += (f"agent.matmul_precision={precision}", f"agent.num_threads={threads}")
    typed += ("trainer.warmup_period=1000", f"agent.learning_rate={LEARNING_RATE}")
    effective = effective_settings(compose(*typed, "agent.double=false"))
    pixels = BoxSpace(SHAPE, "uint8", np.zeros(SHAPE, np.uint8), np.full(SHAPE, 255, np.uint8))
    spec = EnvSpec(
        id="Bench-v0",
        observation=pixels,
        action=DiscreteSpace(ACTIONS),
        max_episode_steps=None,
    )
    agent = build_agent(effective, spec)
    buffer = build_replay_buffer(effective, spec)
    buffer.push(Transitions(**_stored(seed)))
    with agent.learner_thread():
        return _settled_rate(lambda: agent.update(buffer.sample(BATCH_SIZE)), seconds)


def _bare(seed: int, seconds: float, threads: int) -> float:
    del threads  # already set by `updates`
    import torch
    from torch.nn import functional

    from benchmarks.bare_updates import nature

    torch.manual_seed(seed)
    online, target = nature(ACTIONS), nature(ACTIONS)
    optimizer = torch.optim.Adam(online.parameters(), lr=LEARNING_RATE, fused=True)
    stored, rng = _stored(seed), np.random.default_rng(seed)

    def update() -> None:
        rows = rng.integers(CAPACITY, size=BATCH_SIZE)
        batch = {key: torch.from_numpy(values[rows]) for key, values in stored.items()}
        with torch.no_grad():
            q_next = target(batch["next_obs"].float() / 255).amax(1)
            y = batch["reward"] + batch["discount"] * q_next
        q_sa = online(batch["obs"].float() / 255).gather(1, batch["action"][:, None])[:, 0]
        loss = functional.smooth_l1_loss(q_sa, y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        optimizer.step()

    return _settled_rate(update, seconds)


def _sb3(seed: int, seconds: float, threads: int) -> float:
    del threads  # already set by `updates`
    import gymnasium
    from gymnasium import spaces
    from stable_baselines3 import DQN
    from stable_baselines3.common.logger import configure

    class Blank(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = spaces.Box(0, 255, SHAPE, np.uint8)
        action_space = spaces.Discrete(ACTIONS)

    warnings.simplefilter("ignore")
    model = DQN(
        "CnnPolicy",
        Blank(),
        learning_rate=LEARNING_RATE,
        buffer_size=CAPACITY,
        batch_size=BATCH_SIZE,
        seed=seed,
        device="cpu",
    )
    model.set_logger(configure(None, []))
    stored, buffer = _stored(seed), model.replay_buffer
    assert buffer is not None
    buffer.observations[:, 0], buffer.next_observations[:, 0] = stored["obs"], stored["next_obs"]
    buffer.actions[:, 0, 0], buffer.rewards[:, 0] = stored["action"], stored["reward"]
    buffer.full = True
    return _settled_rate(lambda: model.train(1, BATCH_SIZE), seconds)


def _skip_reason(kind: str) -> str | None:
    module = MODULES.get(kind)
    missing = module is not None and find_spec(module) is None
    return f"{module} is not installed" if missing else None


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="seconds per measurement (default: 4)"
    )
    parser.add_argument("--envs", type=int, default=8, help="number of environments (default: 8)")
    parser.add_argument("--threads", type=int, default=2, help="threads per contender (default: 2)")
    arguments = parser.parse_args()
    shared = {"seconds": arguments.seconds, "threads": arguments.threads}

    def measure(kind: str, seed: int) -> Reading:
        reading: Reading = call("benchmarks.atari:updates", kind=kind, seed=seed, **shared)
        return reading

    def step(seed: int) -> Reading:
        kinds = [kind for kind in STEPS if not _skip_reason(kind)]
        more = {"kinds": kinds, "seed": seed, "envs": arguments.envs}
        reading: Reading = call("benchmarks.atari:steps", **shared, **more)
        return reading

    step_readings = take_turns({"steps": step}, arguments.repetitions)["steps"]
    emit("atari", "steps", summary(step_readings))

    update_readings = take_turns(
        contenders_of(UPDATES, measure, _skip_reason), arguments.repetitions
    )
    rates = {kind: column(readings, "updates_per_s") for kind, readings in update_readings.items()}
    line = {f"to_{kind}": ratios(rates["ours"], rates[kind]) for kind in rates if kind != "ours"}
    emit("atari", "updates", line | {kind: spread(values) for kind, values in rates.items()})


if __name__ == "__main__":
    main()
