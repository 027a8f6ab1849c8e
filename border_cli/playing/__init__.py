"""Saved models play episodes: for a score, in a window, as a film, for a Minari data set."""
