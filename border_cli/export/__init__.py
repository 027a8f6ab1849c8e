"""Policies in folders that hold no pickle and need no environment: written, verified, read."""
