"""Actors, and the managers that run them: serially, in threads or in processes."""
