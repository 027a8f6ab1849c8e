"""The same twelve tasks of daily work with several tools for reinforcement learning."""
