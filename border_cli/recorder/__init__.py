"""Recorders write the metrics of a run to files, trackers and the terminal."""
