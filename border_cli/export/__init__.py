"""Exported policies: folders without pickles that can be loaded without the environment."""
