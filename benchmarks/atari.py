"""Pong: environment steps and DQN updates per second, against others in the same run.

    python -m benchmarks.atari [--repetitions 3] [--seconds 4] [--envs 8] [--threads 2]

Needs the extras `atari` and `bench`; rows of EnvPool need `envpool`, which may have to be installed
into a directory of its own on `PYTHONPATH`. Every measurement runs in its own process, and all take
turns.

`steps`: eight environments with random actions, through `Actor.step` with all that it does
(checks, episodes, step processor, messages), against ALE's vector environment alone and EnvPool's,
which step with the same settings and drop what they get. `updates`: DQN with the Nature network and
batches of 32, sampled from 4,000 stored transitions, at full precision (`ours`) and at medium,
against a bare PyTorch loop with autograd and Stable-Baselines3.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.isolated import call
from benchmarks.table import (
    Reading,
    column,
    contenders_of,
    emit,
    parser,
    ratios,
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
MODULES = {"envpool": "envpool", "sb3": "stable_baselines3"}  # rows that need more
STEPS = ("ours", "ale", "envpool")
UPDATES = ("ours", "ours_medium", "bare", "sb3")


def _rate(once: Callable[[], object], each: int, seconds: float) -> float:
    """How many per second, after a while to settle; `once` makes so many."""
    until_s = time.perf_counter() + SETTLED_S
    while time.perf_counter() < until_s:
        once()
    made, began_s = 0, time.perf_counter()
    while (taken_s := time.perf_counter() - began_s) < seconds:
        once()
        made += each
    return made / taken_s


def steps(kind: str, seed: int, seconds: float, envs: int, threads: int) -> Reading:
    """Environment steps per second."""
    make = {"ours": _our_actor, "ale": _ale, "envpool": _envpool}[kind]
    return {"steps_per_s": _rate(make(seed, envs, threads), envs, seconds)}


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
    """Updates per second."""
    import torch

    torch.set_num_threads(threads)
    make = {"bare": _bare, "sb3": _sb3}.get(kind, partial(_ours, kind))
    return {"updates_per_s": make(seed, seconds, threads)}


def _stored(seed: int) -> dict[str, np.ndarray]:
    """Transitions, as every contender stores them."""
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
        return _rate(lambda: agent.update(buffer.sample(BATCH_SIZE)), 1, seconds)


def _nature() -> Any:
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()),
        nn.Linear(512, ACTIONS),
    )


def _bare(seed: int, seconds: float, threads: int) -> float:
    del threads  # set already
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    online, target = _nature(), _nature()
    optimizer = torch.optim.Adam(online.parameters(), lr=LEARNING_RATE, fused=True)
    stored, rng = _stored(seed), np.random.default_rng(seed)

    def update() -> None:
        rows = rng.integers(CAPACITY, size=BATCH_SIZE)
        batch = {key: torch.from_numpy(values[rows]) for key, values in stored.items()}
        with torch.no_grad():
            following = target(batch["next_obs"].float() / 255).amax(1)
            wanted = batch["reward"] + batch["discount"] * following
        found = online(batch["obs"].float() / 255).gather(1, batch["action"][:, None])[:, 0]
        loss = functional.smooth_l1_loss(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        optimizer.step()

    return _rate(update, 1, seconds)


def _sb3(seed: int, seconds: float, threads: int) -> float:
    del threads  # set already
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
    return _rate(lambda: model.train(1, BATCH_SIZE), 1, seconds)


def _why_not(kind: str) -> str | None:
    module = MODULES.get(kind)
    missing = module is not None and find_spec(module) is None
    return f"{module} is not installed" if missing else None


def main() -> None:
    made = parser(__doc__, repetitions=3)
    made.add_argument("--seconds", type=float, default=4.0, help="per measurement (default: 4)")
    made.add_argument("--envs", type=int, default=8, help="environments (default: 8)")
    made.add_argument("--threads", type=int, default=2, help="threads of each (default: 2)")
    arguments = made.parse_args()
    shared = {"seconds": arguments.seconds, "threads": arguments.threads}

    def measure(what: str, more: dict[str, Any], kind: str, seed: int) -> Reading:
        reading: Reading = call(f"benchmarks.atari:{what}", kind=kind, seed=seed, **shared, **more)
        return reading

    for what, kinds, unit, more in (
        ("steps", STEPS, "steps_per_s", {"envs": arguments.envs}),
        ("updates", UPDATES, "updates_per_s", {}),
    ):
        contenders = contenders_of(kinds, partial(measure, what, more), _why_not)
        readings = take_turns(contenders, arguments.repetitions)
        rates = {kind: column(each, unit) for kind, each in readings.items()}
        line: dict[str, Any] = {
            f"to_{kind}": ratios(rates["ours"], rates[kind]) for kind in rates if kind != "ours"
        }
        line |= {kind: summary(each)[unit] for kind, each in readings.items()}
        emit("atari", what, line)


if __name__ == "__main__":
    main()
