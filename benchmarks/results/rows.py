"""The rows of the table: commands, budgets, scores to reach and published scores.

Published scores and the settings of Stable-Baselines3 are those of the RL Zoo (`benchmark.md` and
`hyperparams/` of https://github.com/DLR-RM/rl-baselines3-zoo).
"""

from __future__ import annotations

from typing import Any

from benchmarks.results.kinds import Bar, Peer, Recording, Row, Run

OFFLINE_UPDATES = 10_000
EPISODES = 200  # episodes of every data set
STOP = "trainer.stop_at_score=500"  # as in the tuned values for CartPole


def online(
    agent: str,
    env: str,
    env_steps: int,
    *more: str,
    name: str = "",
    seeds: int = 5,
    bar: Bar | None = None,
    published: str = "",
) -> Run:
    """Builds a row whose budget is in env steps; `more` are overrides, described by `name`."""
    typed = (f"agent={agent}", f"env={env}", f"trainer.max_env_steps={env_steps}", *more)
    bar = bar or Bar()
    name = f"{agent}_{env}_{name}" if name else f"{agent}_{env}"
    return Run(name=name, seeds=seeds, typed=typed, bar=bar, published=published)


def offline(agent: str, env: str, data: str, *, bar: Bar | None = None) -> Run:
    """Builds a row that learns from a data set alone; its budget is in updates."""
    recording = f"{env}_{data}"
    return Run(
        name=f"{agent}_{recording}",
        seeds=5,
        typed=(
            *(f"agent={agent}", f"env={env}", "trainer=offline"),
            f"replay_buffer.dataset={dataset(env, data)}",
            f"trainer.max_opt_steps={OFFLINE_UPDATES}",
        ),
        bar=bar or Bar(),
        recording=recording,
    )


def dataset(env: str, data: str) -> str:
    """Returns the id of a data set."""
    return f"results/{env}-{data}-v0"


def recording(env: str, data: str, run: Run, *settings: str) -> Recording:
    """Builds a row that records a data set with the models of a run."""
    typed = (f"episodes={EPISODES}", "seed=1", *settings)
    return Recording(name=f"{env}_{data}", run=run.name, dataset=dataset(env, data), typed=typed)


def behaviour(agent: str, env: str, env_steps: int, *stop: str, name: str = "behaviour") -> Run:
    """Builds a run to be recorded. It is bit-reproducible, so that its data sets can be recorded
    again, and does not confirm its scores, because the recorded runs did not."""
    exact = ("trainer=sync", "trainer.stop_confirmations=0")
    typed = online(agent, env, env_steps, *exact, *stop).typed
    return Run(name=f"{agent}_{env}_{name}", typed=typed)


def cartpole_data() -> list[Row]:
    """Returns the rows for expert data: the best model of a run with the tuned values."""
    run = behaviour("dqn", "cartpole", 50_000, STOP)
    return [run, recording("cartpole", "expert", run, "policy=best")]


def pendulum_data() -> list[Row]:
    """Returns rows for medium (half trained, with noise), expert and mixed (80 % random) data."""
    run = behaviour("sac", "pendulum", 20_000)
    stop = ("trainer.stop_at_score=-700", "trainer.stop_evals=1", "trainer.eval_interval=250")
    medium = behaviour("sac", "pendulum", 20_000, *stop, name="behaviour_medium")
    return [
        *(run, medium),
        recording("pendulum", "medium", medium, "policy=best", "explore=true"),
        recording("pendulum", "expert", run, "policy=best"),
        recording("pendulum", "mixed", run, "policy=[best:0.2,random:0.8]"),
    ]


def peer(of: str, algorithm: str, *, seeds: int = 3, **settings: Any) -> Peer:
    """Builds a row of Stable-Baselines3 for comparison with one of ours."""
    return Peer(name=f"{of}_sb3", seeds=seeds, of=of, algorithm=algorithm, settings=settings)


def mujoco(
    env: str,
    *more: str,
    name: str = "",
    seeds: int = 3,
    bar: Bar | None = None,
    published: str = "",
) -> Run:
    """Builds a row of 100,000 env steps; published scores are for a learning rate of 1e-3."""
    bar = bar or Bar(not_below=f"sac_{env}_sb3")
    settings: dict[str, Any] = {"name": name, "seeds": seeds, "bar": bar, "published": published}
    return online("sac", env, 100_000, *more, **settings)


def minatar(game: str, *, at_least: float) -> Run:
    """Builds a row of 300,000 steps of a MinAtar game, to compare with Stable-Baselines3."""
    name = f"minatar_{game}"
    bar = Bar(mean=at_least, above=f"dqn_{name}_sb3")
    return online("dqn", name, 300_000, seeds=2, bar=bar)


PAPERS_RATE = (
    "agent.learning_rate=3e-4",
)  # Haarnoja et al. 2018, Appendix D; for 1M steps or more

ZOO_DQN: dict[str, Any] = {  # for both LunarLander-v2 and Acrobot-v1
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": {"net_arch": [256, 256]},
}
SOLVED = Bar(mean=490, every_seed=475)

ONLINE: list[Row] = [
    online("dqn", "cartpole", 50_000, STOP, bar=SOLVED, published="500"),
    online("iqn", "cartpole", 50_000, STOP, bar=SOLVED, published="500 (qrdqn)"),
    online("qrdqn", "cartpole", 50_000, STOP, bar=SOLVED, published="500"),
    online("rainbow", "cartpole", 50_000, STOP, bar=SOLVED, published="500 (dqn)"),
    online("dqn", "acrobot", 100_000, bar=Bar(mean=-80), published="-77"),
    online("dqn", "mountaincar", 120_000, bar=Bar(mean=-110), published="-101"),
    online("dqn", "lunarlander", 100_000, seeds=3, bar=Bar(mean=200), published="154 (v2)"),
    online("dqn", "taxi", 40_000, seeds=3, bar=Bar(mean=7)),
    online("sac", "pendulum", 20_000, bar=Bar(mean=-160), published="-157"),
    online("td3", "pendulum", 20_000, bar=Bar(mean=-160), published="-152"),
    online("sac", "mountaincar_continuous", 15_000, seeds=3, bar=Bar(mean=90)),
    online("td3", "mountaincar_continuous", 15_000, seeds=3, bar=Bar(mean=90)),
    online(
        "sac",
        "lunarlander_continuous",
        150_000,
        seeds=3,
        bar=Bar(mean=200),
        published="260 at 500k (v2)",
    ),
    mujoco("hopper", seeds=5, published="1,103; 2,326 at 1M (v3)"),
    mujoco("hopper", *PAPERS_RATE, "trainer.warmup_period=10000", name="3e-4", seeds=5),
    mujoco("halfcheetah", published="6,156; 9,535 at 1M (v3)"),
    mujoco("halfcheetah", *PAPERS_RATE, name="3e-4"),
    mujoco("walker2d", bar=Bar(), published="690"),
    mujoco("ant", bar=Bar(), published="747"),
]

PIXELS: list[Row] = [
    minatar("breakout", at_least=8),
    minatar("freeway", at_least=30),
    online("dqn", "pong", 500_000, seeds=2, bar=Bar(mean=18), published="20.6 at 2.5M"),
]

GOALS: list[Row] = [  # pip install ".[robotics]"
    online("sac", "fetch_reach", 20_000, seeds=2, bar=Bar(success=0.98)),
    online("sac", "fetch_push", 100_000, seeds=2, bar=Bar(success=0.9)),
]

PEERS: list[Row] = [
    Peer(name="dqn_minatar_breakout_sb3", seeds=2, of="dqn_minatar_breakout", algorithm="dqn"),
    Peer(name="dqn_minatar_freeway_sb3", seeds=2, of="dqn_minatar_freeway", algorithm="dqn"),
    peer("dqn_acrobot", "dqn", **ZOO_DQN),
    peer("dqn_lunarlander", "dqn", **ZOO_DQN),
    peer("sac_pendulum", "sac", learning_rate=1e-3),
    peer("sac_hopper", "sac", seeds=5, learning_starts=10_000),
    peer("sac_halfcheetah", "sac", learning_starts=10_000),
]

OFFLINE: list[Row] = [
    *cartpole_data(),
    *pendulum_data(),
    offline("bc", "cartpole", "expert", bar=Bar(near="cartpole_expert")),
    offline("bc", "pendulum", "expert", bar=Bar(near="pendulum_expert")),
    *(offline(agent, "pendulum", "medium") for agent in ("bc", "awac", "iql", "cql", "td3_bc")),
    *(offline(agent, "pendulum", "mixed") for agent in ("bc", "awac")),
    *(
        offline(agent, "pendulum", "mixed", bar=Bar(above="bc_pendulum_mixed"))
        for agent in ("iql", "cql", "td3_bc")
    ),
]

ROWS: dict[str, Row] = {row.name: row for row in [*ONLINE, *PIXELS, *GOALS, *PEERS, *OFFLINE]}


def run_of(name: str) -> Run:
    """Returns a row that is a run of ours."""
    row = ROWS[name]
    assert isinstance(row, Run)
    return row


def recording_of(name: str) -> Recording:
    """Returns a row that is a recording."""
    row = ROWS[name]
    assert isinstance(row, Recording)
    return row
