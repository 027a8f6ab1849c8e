"""Recorders that write the metrics of a run to files, experiment trackers and the terminal."""
