"""Data sets of Minari: what was recorded once, to learn from without an environment."""
