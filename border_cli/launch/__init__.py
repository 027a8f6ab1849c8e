"""Launching a run: from its settings to its end."""
