"""Transitions of EnvPool checked against Gymnasium, and env steps/s of whole runs with either.

    python -m benchmarks.envpool [--transitions 100000] [--repetitions 3] [--seconds 5]

Needs the extra `envpool`, `gymnasium[box2d,mujoco]`, `minigrid` and, for MuJoCo as in EnvPool,
`shimmy`, `dm-control==1.0.38` and `mujoco==3.6.0`; what is missing is skipped.

`check`: transitions of random actions through `env.vectorization=envpool`. EnvPool cannot set a
state, so Gymnasium's environment is set to EnvPool's: classic control at each observation, MuJoCo
and dm_control at the start of an episode, whose actions are then replayed for up to 25 and 100
steps (humanoids of dm_control: 50).
The first states of dm_control are fitted to observations (`benchmarks/suite_states.py`). Mazes and
toy texts are replayed or looked up in the table of probabilities; small levels of BabyAI are
replayed from the first seed of Gymnasium that has the same episode, if there is one. LunarLander's
rewards are computed from both observations. Each row counts the transitions whose successor, reward
or flags differ; the row `all` adds them up. `ks_p` are p-values of Kolmogorov-Smirnov tests against
Gymnasium's first episodes: of returns, of lengths and of first observations (the smallest p-value
of all their numbers, times how many numbers there are). `all` lists the rows with one below 1e-5 as
`unlike`.

`run`: env steps/s of `border-train` with one actor of 16 environments, or two processes of 8 each,
from its first update on.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.isolated import call
from benchmarks.lockstep import OFF, Timer
from benchmarks.suite_states import FITTED, restore_start
from benchmarks.table import Reading, emit, make_parser, say, summary, take_turns
from border_cli import compose, train
from border_cli.agent.policies import RandomPolicy
from border_cli.core.interfaces import Env
from border_cli.core.seeding import generator
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import leaves, map_array
from border_cli.env.config import GymConfig
from border_cli.env.construct import construction
from border_cli.env.envpool import DIFFERENCES, PoolVector
from border_cli.env.gym import GymEnvFactory
from border_cli.env.vector import GymVectorEnv

ENVS = 16
REPLAYED = 25  # steps of an episode of MuJoCo; later, rounding errors have grown
SUITE_REPLAYED, FREE_REPLAYED = 100, 50  # of dm_control
SUITE_HELD = 10  # steps of dm_control with one random action, which moves bodies further
TOLERANCE = 1e-5  # of numbers, relative to 1 or to the number
COUNTS = (
    *("transitions", "episodes", "terminated", "truncated", "rewarded"),
    *("wrong_successors", "wrong_rewards", "wrong_terminations", "wrong_truncations"),
)
UNLIKE = 1e-5  # p-value that one of 150 rows has by chance in one comparison of 200
SEEDS = 8_000  # of Gymnasium, among which BabyAI's episodes are searched
UNSEEN = {  # leading coordinates of MuJoCo's state that observations leave out
    **{"HalfCheetah": 1, "Hopper": 1, "Walker2d": 1, "Swimmer": 2, "InvertedPendulum": 0},
    **{"Ant": 2, "Humanoid": 2, "HumanoidStandup": 2},
}
MUJOCO = "3.6"  # EnvPool's own version; others solve contacts of several bodies differently
NEEDS_EQUAL_MUJOCO = ("Ant", "Humanoid", "HumanoidStandup")
NAMES = [*UNSEEN, "InvertedDoublePendulum", "Reacher"]
TASKS = {  # of dm_control
    "acrobot": ("swingup", "swingup_sparse"),
    "cartpole": ("balance", "balance_sparse", "swingup", "swingup_sparse"),
    "cheetah": ("run",),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "hopper": ("stand", "hop"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "reacher": ("easy", "hard"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}
FREE_TASKS = {  # of bodies that turn in space, whose states take seconds to fit
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
}


def _suite(tasks: dict[str, tuple[str, ...]]) -> list[str]:
    return [f"shimmy:dm_control/{domain}-{task}-v0" for domain in tasks for task in tasks[domain]]


IDS = {
    "classic control": ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"],
    "toy text": ["FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1"],
    "box2d": ["LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3"],
    "mujoco v4": [f"{name}-v4" for name in NAMES if not name.startswith("Humanoid")],
    "mujoco v5": [f"{name}-v5" for name in NAMES],
    "minigrid": [f"minigrid:MiniGrid-{name}-v0" for name in ("Empty-8x8", "DistShift1")],
    "babyai": [f"minigrid:BabyAI-{name}-v0" for name in ("GoToObjS4", "OpenRedDoor")],
    "dm_control": _suite(TASKS),
    "dm_control free": _suite(FREE_TASKS),
}
MAZES = ("DoorKey-5x5", "Empty-Random-6x6", "LavaGapS5", "FourRooms", "Dynamic-Obstacles-5x5")
RUNS = {
    "random": ["agent=random", "env=cartpole"],
    "dqn": ["agent=dqn", "env=cartpole", "agent.batch_size=64"],
    "sac": ["agent=sac", "env=gym", "env.id=HalfCheetah-v5", "agent.hidden=[64, 64]"],
}
TRAINERS = {
    "async": ["trainer=async", "actor_manager=thread"],
    "lockstep": ["trainer=sync", "actor_manager=serial"],
}
ONE_ACTOR = ["actor_manager.num_actors=1", f"env.num_envs={ENVS}"]
STEPPED = {  # later settings replace those of the trainer
    "sync": [*ONE_ACTOR, "env.vectorization=sync"],
    "auto": [*ONE_ACTOR, "env.vectorization=auto", "env.exact_resume=false"],
    "two processes": [
        "actor_manager=process", "actor_manager.num_actors=2", f"env.num_envs={ENVS // 2}",
        "env.vectorization=sync",
    ],
    **{
        f"envpool {threads}": [
            *ONE_ACTOR, "env.vectorization=envpool", "env.exact_resume=false",
            f"env.num_threads={threads}",
        ]
        for threads in (1, 2)
    },
}  # fmt: skip


class Row(NamedTuple):
    """One recorded transition of one environment."""

    obs: Any  # as EnvPool returned it, before the conversion to float32
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    next_obs: Any


Outcome = tuple[Any, float, bool]  # successor, reward and termination


class Tap(PoolVector):
    """Keeps what EnvPool returns."""

    raw: Any

    def reset(self, **kwargs: Any) -> Any:
        self.raw, info = super().reset(**kwargs)
        return self.raw, info

    def step(self, actions: NDArray[Any]) -> Any:
        answer = super().step(actions)
        self.raw = answer[0]
        return answer


def play(env_id: str, count: int, limit: int | None = None, seed: int = 0) -> Iterator[list[Row]]:
    """Plays random actions in environments of EnvPool and yields whole episodes, of at least
    `count` transitions together."""
    config = GymConfig(id=env_id, num_envs=ENVS, max_episode_steps=limit)
    spec = GymEnvFactory(config).spec
    pool = Tap(config, spec)
    env = GymVectorEnv(pool, spec, first=0, raw=spec.raw)
    policy, obs = RandomPolicy(spec.action, generator(seed)), env.reset(seed)
    raw, episodes = pool.raw, [list[Row]() for _ in range(ENVS)]
    held = SUITE_HELD if env_id in [*IDS["dm_control"], *IDS["dm_control free"]] else 1
    for number in itertools.count():
        begins = any(len(episode) < FITTED for episode in episodes)  # a fit needs several actions
        if begins or number % held == 0:
            action = policy.act(obs, explore=True)
        step = env.step(action)
        moved = np.ones(ENVS, bool) if step.moved is None else step.moved
        for i in np.flatnonzero(moved).tolist():
            before, after = _row(raw, i), _row(pool.raw, i)
            for kept, sent in zip(leaves(_row(step.next_obs, i)), leaves(after), strict=True):
                np.testing.assert_array_equal(kept, np.asarray(sent).astype(kept.dtype))
            flags = bool(step.terminated[i]), bool(step.truncated[i])
            reward = float(step.reward[i])
            episodes[i].append(Row(before, step.action[i], reward, *flags, after))
            if any(flags):
                count -= len(episodes[i])
                yield episodes[i]
                episodes[i] = []
        raw, obs = pool.raw, step.act_obs
        if count <= 0:
            break
    env.close()


def _row(obs: Any, i: int) -> Any:
    return map_array(lambda part: part[i], obs)


def _dynamics(env: Any, episode: list[Row]) -> Iterator[Outcome]:
    """Steps classic control from each observation."""
    for row in episode:
        values = np.asarray(row.obs, np.float64)
        if env.spec.id == "Acrobot-v1":  # observes cos and sin of two angles
            values = np.array([*np.arctan2(values[[1, 3]], values[[0, 2]]), *values[4:]])
        env.state, env.steps_beyond_terminated = values, None
        yield env.step(row.action)[:3]


def _replay(env: Any, episode: list[Row], seed: int = 0) -> Iterator[Outcome]:
    """Replays the actions of an episode from its first state."""
    env.reset(seed=seed)
    if hasattr(env, "set_state"):
        env.set_state(*_mujoco_state(env, episode[0].obs))
    for row in episode:
        yield env.step(row.action)[:3]


def _mujoco_state(env: Any, obs: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the positions and velocities of a first observation."""
    name, num_positions = env.spec.id.partition("-")[0], env.model.nq
    if name == "InvertedDoublePendulum":  # observes sin and cos of two angles
        return np.array([obs[0], *np.arctan2(obs[1:3], obs[3:5])]), obs[5:8]
    if name == "Reacher":
        return np.array([*np.arctan2(obs[2:4], obs[:2]), *obs[4:6]]), np.array([*obs[6:8], 0, 0])
    seen = num_positions - UNSEEN[name]
    positions = np.concatenate([np.zeros(UNSEEN[name]), obs[:seen]])
    return positions, obs[seen : seen + env.model.nv]


def _replay_suite(env: Any, episode: list[Row]) -> Iterator[Outcome]:
    """Replays the actions of an episode of dm_control from a state that fits its observations."""
    restore_start(env, episode)
    for row in episode:
        yield env.step(row.action)[:3]


def _replay_level(env: Any, episode: list[Row]) -> Iterator[Outcome]:
    """Replays the actions of an episode of BabyAI from a seed that has the same episode."""
    seed = 0
    for seed in _seeds(env)[_start_key(episode[0].obs)].values():
        pairs = zip(episode, _replay(env, episode, seed), strict=True)
        if not any(any(_differences(row, outcome)) for row, outcome in pairs):
            break
    yield from _replay(env, episode, seed)


@cache
def _seeds(env: Any) -> dict[tuple[int, bytes], dict[Any, int]]:
    """Returns for each first observation one seed of each level that begins with it."""
    seeds = defaultdict[tuple[int, bytes], dict[Any, int]](dict)
    for seed in range(SEEDS):
        obs, _ = env.reset(seed=seed)
        level = env.grid.encode().tobytes(), tuple(env.agent_pos), env.mission
        seeds[_start_key(obs)][level] = seed
    return seeds


def _start_key(obs: Any) -> tuple[int, bytes]:
    return int(obs["direction"]), obs["image"].tobytes()


def _table(env: Any, episode: list[Row]) -> Iterator[Outcome]:
    """Finds each successor in the table of probabilities."""
    for row in episode:
        outcomes = [tuple(outcome[1:]) for outcome in env.P[int(row.obs)][int(row.action)]]
        recorded = int(row.next_obs), row.reward, row.terminated
        yield recorded if recorded in outcomes else outcomes[0]


def _landing(env: Any, episode: list[Row]) -> Iterator[Outcome]:
    """Computes the rewards of LunarLander from both observations."""
    for row in episode:
        if env.continuous:
            main, side = np.clip(row.action, -1, 1).astype(np.float64)
            fuel = 0.15 * (main + 1) * (main > 0) + 0.03 * abs(side) * (abs(side) > 0.5)
        else:
            fuel = (0, 0.03, 0.3, 0.03)[int(row.action)]
        shaping = _shaping(row.next_obs) - _shaping(row.obs)
        ends = abs(row.reward) == 100
        yield row.next_obs, row.reward if ends else shaping - fuel, ends


def _shaping(obs: NDArray[Any]) -> float:
    x, y, vx, vy, angle, _, left, right = obs.astype(np.float64)
    nearness = np.hypot(x, y) + np.hypot(vx, vy) + abs(angle)
    return float(-100 * nearness + 10 * (left + right))


def _falling(env: Any, episode: list[Row]) -> Iterator[Outcome]:
    """BipedalWalker: falls, which random actions always end in, have a reward of -100."""
    del env
    for row in episode:
        yield row.next_obs, row.reward, row.reward == -100


CHECKS: dict[str, Callable[[Any, list[Row]], Iterator[Outcome]]] = {
    **dict.fromkeys(IDS["classic control"], _dynamics),
    **dict.fromkeys(IDS["toy text"], _table),
    **dict.fromkeys(IDS["box2d"], _landing),
    **dict.fromkeys([*IDS["mujoco v4"], *IDS["mujoco v5"], *IDS["minigrid"]], _replay),
    "BipedalWalker-v3": _falling,
    **dict.fromkeys(IDS["babyai"], _replay_level),
    **dict.fromkeys([*IDS["dm_control"], *IDS["dm_control free"]], _replay_suite),
}


def check(env_id: str, count: int, limit: int | None = None, seed: int = 0) -> Reading:
    """Returns how many transitions of EnvPool differ from Gymnasium's."""
    is_suite = env_id.startswith("shimmy:")
    endless = {"task_kwargs": {"time_limit": float("inf")}} if is_suite else {}
    with construction(GymConfig(id=env_id)):  # silences warnings
        single = gym.make(env_id, disable_env_checker=True, **endless)
    env: Any = single.unwrapped
    env.reset(seed=0)
    if limit is None and "mujoco" in str(env.spec.entry_point):
        limit = REPLAYED
    if limit is None and is_suite:
        limit = FREE_REPLAYED if env_id in IDS["dm_control free"] else SUITE_REPLAYED
    assert single.spec is not None
    own = limit or single.spec.max_episode_steps or getattr(env, "max_steps", None)
    found = Counter(dict.fromkeys(COUNTS, 0))
    for episode in play(env_id, count, limit, seed):
        found["episodes"] += 1
        pairs = zip(episode, CHECKS[env_id](env, episode), strict=True)
        for length, (row, outcome) in enumerate(pairs, 1):
            found["transitions"] += 1
            found["terminated"] += row.terminated
            found["truncated"] += row.truncated
            found["rewarded"] += abs(row.reward) > TOLERANCE
            wrong = *_differences(row, outcome), row.truncated != (length == own)
            found.update(dict(zip(COUNTS[-4:], wrong, strict=True)))
    return found


def _differences(row: Row, outcome: Outcome) -> tuple[bool, bool, bool]:
    """Returns whether the successor, the reward and the termination of a transition differ."""
    obs, reward, terminated = outcome
    # Parts that we do not record, such as the text of a mission, are left out.
    parts = [obs[key] for key in row.next_obs] if isinstance(obs, dict) else [obs]
    return (
        not all(map(_close, leaves(row.next_obs), parts)),
        not _close(row.reward, reward),
        row.terminated != bool(terminated),
    )


def _close(actual: Any, expected: Any) -> bool:
    return bool(np.allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE))


def compare_first_episodes(env_id: str, count: int = 100, limit: int = 100) -> Reading:
    """Returns p-values of the returns, lengths and first observations of `count` episodes of
    either library."""
    from scipy.stats import ks_2samp

    config = GymConfig(id=env_id, num_envs=count, max_episode_steps=limit)
    factory = GymEnvFactory(config)
    pool = PoolVector(config, factory.spec)
    vector = GymVectorEnv(pool, factory.spec, first=0, raw=factory.spec.raw)
    single = factory.make(training=False)
    ours, theirs = (_first_episodes(env, factory.spec) for env in (vector, single))
    p_values = {
        name: float(ks_2samp(ours[name], theirs[name]).pvalue) for name in ("returns", "lengths")
    }
    columns = zip(ours["first"].T, theirs["first"].T, strict=True)
    least = min(float(ks_2samp(*pair).pvalue) for pair in columns)
    return p_values | {"first observations": min(1.0, least * ours["first"].shape[1])}


def _first_episodes(env: Env, spec: EnvSpec) -> dict[str, NDArray[Any]]:
    """Plays one episode in each environment, with random actions."""
    obs = env.reset(1)
    first = np.concatenate([part.reshape(len(part), -1) for part in leaves(obs)], 1)
    returns, lengths, live = np.zeros(len(first)), np.zeros(len(first)), np.ones(len(first), bool)
    policy = RandomPolicy(spec.action, generator(2))
    while live.any():
        step = env.step(policy.act(obs, explore=True))
        obs = step.act_obs
        returns += step.reward * live
        lengths += live
        live &= ~(step.terminated | step.truncated)
    env.close()
    return {"returns": returns, "lengths": lengths, "first": first}


def run(seed: int, settings: list[str], seconds: float) -> Reading:
    """Measures one of our runs."""
    timer = Timer(seconds)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        config = compose(
            *settings, f"seed={seed}", f"run_dir={Path(folder) / 'run'}",
            "trainer.samples_per_opt_step=16", "trainer.warmup_period=1000",
            "evaluator.num_episodes=1",
            "trainer.stop_at_score=null", "trainer.max_opt_steps=10000000",
            *(f"trainer.{name}=0" for name in OFF),
        )  # fmt: skip
        train(config, recorders=[], callbacks=[timer])
        os.chdir("/")
    return {"env_steps_per_s": timer.env_steps_per_s}


def _measure(seed: int, **arguments: Any) -> Reading:
    reading: Reading = call("benchmarks.envpool:run", seed=seed, **arguments)
    return reading


def _skip_reason(env_id: str) -> str | None:
    if env_id.startswith("minigrid:") and find_spec("minigrid") is None:
        return "needs minigrid"
    is_suite = env_id.startswith("shimmy:")
    if is_suite and not (find_spec("shimmy") and find_spec("dm_control")):
        return "needs shimmy[dm-control]"
    equal_only = is_suite or env_id.partition("-")[0] in NEEDS_EQUAL_MUJOCO
    if equal_only and not version("mujoco").startswith(f"{MUJOCO}."):
        return f"needs mujoco=={MUJOCO}.*, as in EnvPool"
    return None


def _compared_by_statistics(family: str) -> list[str]:
    """Returns the other ids of a family, which are compared by first episodes alone."""
    if family == "minigrid":  # random layouts
        return [f"minigrid:MiniGrid-{name}-v0" for name in MAZES]
    if family == "babyai" and find_spec("minigrid") is not None:
        import_module("minigrid")
        levels = [name for name in gym.registry if name.startswith("BabyAI-")]
        return [f"minigrid:{name}" for name in levels if name not in DIFFERENCES]
    return []


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument("--transitions", type=int, default=100_000, help="per family")
    parser.add_argument("--seconds", type=float, default=5.0, help="timed seconds (default: 5)")
    parser.add_argument("--families", nargs="*", choices=list(IDS), default=list(IDS))
    parser.add_argument("--agents", nargs="*", choices=list(RUNS), default=list(RUNS))
    arguments = parser.parse_args()
    totals, unlike = Counter[str](), list[str]()
    for family in arguments.families:
        for env_id in dict.fromkeys([*IDS[family], *_compared_by_statistics(family)]):
            reason = _skip_reason(env_id)
            if reason is not None:
                say(f"skipped: {env_id} ({reason})")
                continue
            count = arguments.transitions // len(IDS[family])
            with redirect_stdout(sys.stderr):  # BabyAI prints
                counts = check(env_id, count) if env_id in CHECKS else {}
                p_values = compare_first_episodes(env_id)
            totals.update(counts)
            if min(p_values.values()) < UNLIKE:
                unlike.append(env_id)
            emit("check", env_id, {**counts, "ks_p": p_values})
    if arguments.families:
        differences = sum(totals[name] for name in COUNTS[-4:])
        emit("check", "all", {**totals, "differences": differences, "unlike": unlike})
    contenders: dict[str, Callable[[int], Reading]] = {}
    for agent in arguments.agents:
        for trainer, chosen in TRAINERS.items():
            for stepped, vectorization in STEPPED.items():
                settings = [*RUNS[agent], *chosen, *vectorization]
                contenders[f"{agent}, {trainer}, {stepped}"] = partial(
                    _measure, settings=settings, seconds=arguments.seconds
                )
    for row, readings in take_turns(contenders, arguments.repetitions).items():
        emit("run", row, summary(readings))


if __name__ == "__main__":
    main()
