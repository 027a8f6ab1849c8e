"""The rows of the table: commands, budgets, scores to reach and published scores.

Published scores and the settings of Stable-Baselines3 are those of the RL Zoo (`benchmark.md` and
`hyperparams/` of https://github.com/DLR-RM/rl-baselines3-zoo).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.results.kinds import Bar, Peer, Recording, Row, Run
from benchmarks.zoo_settings import DQN_CARTPOLE

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
    peer("dqn_cartpole", "dqn", **DQN_CARTPOLE),
    peer(
        "dqn_mountaincar",
        "dqn",
        learning_rate=4e-3,
        batch_size=128,
        buffer_size=10_000,
        learning_starts=1_000,
        gamma=0.98,
        target_update_interval=600,
        train_freq=16,
        gradient_steps=8,
        exploration_fraction=0.2,
        exploration_final_eps=0.07,
        policy_kwargs={"net_arch": [256, 256]},
    ),
    peer("dqn_acrobot", "dqn", **ZOO_DQN),
    peer("dqn_lunarlander", "dqn", **ZOO_DQN),
    peer("sac_pendulum", "sac", learning_rate=1e-3),
    peer(
        "sac_lunarlander_continuous",
        "sac",
        batch_size=256,
        learning_rate="lin_7.3e-4",
        tau=0.01,
        learning_starts=10_000,
        policy_kwargs={"net_arch": [400, 300]},
    ),
    peer("sac_hopper", "sac", seeds=5, learning_starts=10_000),
    peer("sac_halfcheetah", "sac", learning_starts=10_000),
    peer("sac_walker2d", "sac", learning_starts=10_000),
    peer("sac_ant", "sac", learning_starts=10_000),
]


def on_policy(
    env: str,
    env_steps: int,
    *more: str,
    score_range: tuple[float, float],
    seeds: int = 5,
    published: str = "",
) -> Run:
    """Builds a row of PPO with its tuned values, to be compared with Stable-Baselines3."""
    row = online("ppo", env, env_steps, *more, seeds=seeds, published=published)
    return replace(row, score_range=score_range)


WHOLE_BUDGET = ("trainer.stop_at_score=null", "trainer.eval_interval_env_steps=10000")
# Ranges: the score of random actions and, for MinAtar that of PPO after 10M steps in gymnax, else
# that of a good policy.
ON_POLICY: list[Row] = [
    on_policy("cartpole", 100_000, *WHOLE_BUDGET, score_range=(20, 500), published="500"),
    on_policy("acrobot", 1_000_000, score_range=(-500, -70), published="-73"),
    on_policy("lunarlander", 1_000_000, score_range=(-200, 280), published="242 (v2)"),
    on_policy("pendulum", 100_000, score_range=(-1_230, -150), published="-172"),
    on_policy("mountaincar_continuous", 20_000, score_range=(0, 95), published="88"),
    on_policy("mountaincar", 1_000_000, score_range=(-200, -100), published="-110"),
    on_policy(
        "lunarlander_continuous",
        1_000_000,
        seeds=3,
        score_range=(-200, 280),
        published="271 (v2)",
    ),
    on_policy("hopper", 1_000_000, seeds=3, score_range=(20, 3_500), published="2,410 (v3)"),
    on_policy("minatar_breakout", 1_000_000, seeds=3, score_range=(0.5, 28)),
    on_policy("minatar_space_invaders", 1_000_000, seeds=3, score_range=(3, 131)),
]

ZOO_LUNARLANDER: dict[str, Any] = {
    "n_envs": 16,
    "n_steps": 1_024,
    "batch_size": 64,
    "n_epochs": 4,
    "gamma": 0.999,
    "gae_lambda": 0.98,
    "ent_coef": 0.01,
}
OUR_MINATAR: dict[str, Any] = {  # those of conf/tuned/ppo_minatar.yaml, because the Zoo has none
    "n_envs": 16,
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 4,
    "learning_rate": "lin_1e-3",
    "ent_coef": 0.01,
}

# The RL Zoo's hyperparams/ppo.yml. Settings that are not listed are Stable-Baselines3's defaults.
ON_POLICY_PEERS: list[Row] = [
    peer(
        "ppo_cartpole",
        "ppo",
        seeds=5,
        n_envs=8,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate="lin_0.001",
        clip_range="lin_0.2",
    ),
    peer(
        "ppo_acrobot",
        "ppo",
        seeds=5,
        normalize=True,
        n_envs=16,
        n_steps=256,
        n_epochs=4,
        gamma=0.99,
        gae_lambda=0.94,
    ),
    peer("ppo_lunarlander", "ppo", seeds=5, **ZOO_LUNARLANDER),
    peer(
        "ppo_pendulum",
        "ppo",
        seeds=5,
        n_envs=4,
        n_steps=1_024,
        n_epochs=10,
        gamma=0.9,
        gae_lambda=0.95,
        learning_rate=1e-3,
        clip_range=0.2,
        use_sde=True,
        sde_sample_freq=4,
    ),
    peer(
        "ppo_mountaincar_continuous",
        "ppo",
        seeds=5,
        normalize=True,
        n_steps=8,
        batch_size=8,  # 256 in the Zoo, of which a rollout has 8
        n_epochs=10,
        gamma=0.9999,
        gae_lambda=0.9,
        learning_rate=7.77e-5,
        clip_range=0.1,
        ent_coef=0.00429,
        vf_coef=0.19,
        max_grad_norm=5,
        use_sde=True,
        policy_kwargs={"log_std_init": -3.29, "ortho_init": False},
    ),
    peer(
        "ppo_mountaincar",
        "ppo",
        seeds=5,
        normalize=True,
        n_envs=16,
        n_steps=16,
        n_epochs=4,
        gamma=0.99,
        gae_lambda=0.98,
    ),
    peer("ppo_lunarlander_continuous", "ppo", **ZOO_LUNARLANDER),
    peer(
        "ppo_hopper",
        "ppo",
        normalize=True,
        n_steps=512,
        batch_size=32,
        n_epochs=5,
        gamma=0.999,
        gae_lambda=0.99,
        learning_rate=9.80828e-05,
        clip_range=0.2,
        ent_coef=0.00229519,
        vf_coef=0.835671,
        max_grad_norm=0.7,
        policy_kwargs={
            "log_std_init": -2,
            "ortho_init": False,
            "activation_fn": "ReLU",
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
    ),
    peer("ppo_minatar_breakout", "ppo", **OUR_MINATAR | {"ent_coef": 0.05}),
    peer("ppo_minatar_space_invaders", "ppo", **OUR_MINATAR),
]

DOOR_KEY = "env.id=minigrid:MiniGrid-DoorKey-5x5-v0"
SWING_UP = ("env.id=shimmy:dm_control/cartpole-swingup-v0", "env.wrappers=[FlattenObservation]")
# Environments of other packages: pip install minigrid "shimmy[dm-control]" "mujoco<4"
OTHER_PACKAGES: list[Row] = [
    on_policy("minigrid", 100_000, DOOR_KEY, seeds=3, score_range=(0, 1), published="0.97"),
    replace(
        online("sac", "dm_control", 50_000, *SWING_UP, seeds=3),
        score_range=(0, 1_000),
    ),
    peer("ppo_minigrid", "ppo", normalize=True, n_envs=8, n_steps=128, learning_rate=2.5e-4),
    peer("sac_dm_control", "sac", learning_starts=1_000),
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

ROWS: dict[str, Row] = {
    row.name: row
    for row in [
        *ONLINE,
        *PIXELS,
        *GOALS,
        *PEERS,
        *ON_POLICY,
        *ON_POLICY_PEERS,
        *OTHER_PACKAGES,
        *OFFLINE,
    ]
}


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
