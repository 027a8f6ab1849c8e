"""Sweeps: many runs of one command, from the plan of the jobs to the table of results."""
