"""Reinforcement learning agents, their policies and their settings."""
