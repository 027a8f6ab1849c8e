"""The run directory: writing its files and reading them again."""
