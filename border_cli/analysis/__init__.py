"""Runs read back from their directories."""
