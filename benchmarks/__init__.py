"""Measurements of speed; `python -m benchmarks` prints the table."""
