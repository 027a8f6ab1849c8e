"""Actors, and the ways to run them side by side."""
