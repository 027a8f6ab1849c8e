"""Checks of settings, run directories, environments and memory before a run."""
