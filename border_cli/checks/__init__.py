"""Checks before a run: its settings, its run directory, its environments and its memory."""
