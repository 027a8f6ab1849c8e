"""The training loop and everything around an update."""
