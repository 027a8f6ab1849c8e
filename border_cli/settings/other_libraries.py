"""Names of settings in Stable-Baselines3, CleanRL and Hydra, with the corresponding settings."""

from __future__ import annotations

SETTINGS = {
    **dict.fromkeys(
        ("total_timesteps", "n_timesteps", "num_timesteps", "max_timesteps", "total_steps"),
        "trainer.max_env_steps",
    ),
    "max_steps": "trainer.max_env_steps or trainer.max_opt_steps (updates)",
    **dict.fromkeys(("lr", "policy_lr", "actor_lr"), "agent.learning_rate"),
    **dict.fromkeys(("q_lr", "critic_lr"), "agent.critic_learning_rate"),
    "learning_starts": "trainer.warmup_period",
    "buffer_size": "replay_buffer.capacity",
    **dict.fromkeys(
        ("train_freq", "train_frequency", "gradient_steps", "utd_ratio", "replay_ratio"),
        "trainer.samples_per_opt_step (env steps per update)",
    ),
    **dict.fromkeys(
        ("target_update_interval", "target_network_frequency", "target_update_freq"),
        "agent.target_interval",
    ),
    **dict.fromkeys(("exploration_initial_eps", "start_e"), "agent.epsilon.initial"),
    **dict.fromkeys(("exploration_final_eps", "end_e"), "agent.epsilon.final"),
    "exploration_fraction": "agent.epsilon.steps (env steps)",
    **dict.fromkeys(("net_arch", "hidden_size", "hidden_sizes", "hidden_dim"), "agent.hidden"),
    "policy_kwargs": "agent.hidden, agent.activation or agent.network_kwargs",
    "n_envs": "env.num_envs",
    "env_id": "env.id",
    "env_kwargs": "env.kwargs",
    "env_wrapper": "env.wrappers",
    "algo": "agent",
    "eval_freq": "trainer.eval_interval",
    "n_eval_episodes": "evaluator.num_episodes",
    "save_freq": "trainer.save_interval",
    "capture_video": "evaluator.video_interval",
    "verbose": "quiet",
    "track": "recorder=[jsonl,wandb]",
    "tensorboard_log": "recorder=[tensorboard]",
    **dict.fromkeys(("exp_name", "run_name", "experiment_name"), "name"),
    **dict.fromkeys(("log_dir", "logdir", "save_path", "output_dir"), "run_dir"),
}
