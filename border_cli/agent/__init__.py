"""Reinforcement learning algorithms, implemented with torch and `nn`."""
