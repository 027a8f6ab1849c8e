"""The run directory: what is written, and how it is read again."""
