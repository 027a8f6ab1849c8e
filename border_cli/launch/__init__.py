"""From settings to a running run."""
