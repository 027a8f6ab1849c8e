"""Minari data sets: recorded episodes for learning without an environment."""
