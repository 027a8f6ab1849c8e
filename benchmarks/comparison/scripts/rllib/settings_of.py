"""The settings of all runs: DQN on CartPole, in one process."""

from ray.rllib.algorithms.dqn import DQNConfig


def dqn(env="CartPole-v1", seed=0, **training):
    config = DQNConfig().environment(env).debugging(seed=seed, log_level="ERROR")
    config.env_runners(num_env_runners=0).reporting(min_sample_timesteps_per_iteration=250)
    return config.training(
        lr=2e-3,
        num_steps_sampled_before_learning_starts=500,
        epsilon=[(0, 1.0), (1500, 0.05)],
        store_buffer_in_checkpoints=True,
        **training,
    )
