"""Runs read back from their directories, and what many of them say together."""
