"""RLlib's DQN and TorchRL's Ray collector as installed: samples/s of four workers on CartPole-v1.

Needs `pip install "border-cli[bench-ray]"`. Both run on a Ray instance of their own with eight
logical CPUs, so that nothing waits for a CPU, and with the fastest settings that we know.
"""

from __future__ import annotations

import os
import time
import warnings
from functools import partial
from typing import Any

from benchmarks.bare import BATCH_SIZE, CAPACITY, LEARNING_RATE, TARGET_INTERVAL
from benchmarks.table import Reading

ENV_ID = "CartPole-v1"
HIDDEN = [256, 256]
EPSILON = 0.05
WARM_UP = 1_000
FRAGMENT = 200  # env steps per environment and message; 4 and 50 are slower
CPUS = 8


def _start() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    warnings.simplefilter("ignore")
    import ray

    ray.init(address="local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False)
    return ray


def rllib(actors: int, num_envs: int, seconds: float, learning: bool, seed: int) -> Reading:
    """Measures RLlib's DQN; without `learning`, it only samples with its network."""
    ray = _start()
    from ray.rllib.algorithms.dqn import DQNConfig

    algorithm = (
        DQNConfig()
        .environment(ENV_ID)
        .env_runners(
            num_env_runners=actors,
            num_envs_per_env_runner=num_envs,
            rollout_fragment_length=FRAGMENT,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .rl_module(model_config={"fcnet_hiddens": HIDDEN, "fcnet_activation": "relu"})
        .training(
            lr=LEARNING_RATE,
            double_q=False,
            dueling=False,
            train_batch_size_per_learner=BATCH_SIZE,
            target_network_update_freq=TARGET_INTERVAL,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": CAPACITY},
            num_steps_sampled_before_learning_starts=WARM_UP if learning else 10**9,
            epsilon=EPSILON,
        )
        .learners(num_learners=0)
        .reporting(min_time_s_per_iteration=1, min_sample_timesteps_per_iteration=1)
        .debugging(seed=seed)
        .build_algo()
    )
    counts: list[tuple[float, float]] = []
    while not counts or counts[-1][0] - counts[0][0] < seconds:
        result = algorithm.train()
        counts.append((time.perf_counter(), result["num_env_steps_sampled_lifetime"]))
    algorithm.stop()
    ray.shutdown()
    (began_s, before), (ended_s, after) = counts[0], counts[-1]
    return {"samples_per_s": (after - before) / (ended_s - began_s)}


def _vector_env(num_envs: int) -> Any:
    import torch
    from torchrl.envs import GymEnv

    torch.set_num_threads(1)
    return GymEnv(ENV_ID, num_envs=num_envs, categorical_action_encoding=True)


def _greedy_policy(spec: Any) -> Any:
    import torch
    from tensordict.nn import TensorDictSequential
    from torchrl.modules import MLP, EGreedyModule, QValueActor

    network = MLP(in_features=4, out_features=2, num_cells=HIDDEN, activation_class=torch.nn.ReLU)
    chooser = EGreedyModule(spec=spec, eps_init=EPSILON, eps_end=EPSILON, annealing_num_steps=1)
    return TensorDictSequential(QValueActor(network, in_keys=["observation"], spec=spec), chooser)


def torchrl(actors: int, num_envs: int, seconds: float, seed: int) -> Reading:
    """Measures TorchRL's asynchronous Ray collector without learning; batches are dropped."""
    ray = _start()
    import torch
    from torchrl.collectors import Collector
    from torchrl.collectors.distributed import RayCollector
    from torchrl.envs import GymEnv

    torch.manual_seed(seed)
    spec = GymEnv(ENV_ID, categorical_action_encoding=True).action_spec
    collector = RayCollector(
        [partial(_vector_env, num_envs)] * actors,
        _greedy_policy(spec),
        frames_per_batch=100 * num_envs,
        total_frames=10**9,
        sync=False,
        collector_class=Collector,
        remote_configs={"num_cpus": 1, "num_gpus": 0},
    )
    samples, began_s = 0, 0.0
    for number, batch in enumerate(collector):
        if number == actors:  # every actor has delivered
            began_s = time.perf_counter()
        elif began_s:
            samples += batch.numel()
            if time.perf_counter() - began_s >= seconds:
                break
    rate = samples / (time.perf_counter() - began_s)
    ray.shutdown()  # the collector's shutdown would wait for busy workers
    return {"samples_per_s": rate}
