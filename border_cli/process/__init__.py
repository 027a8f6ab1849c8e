"""The process of a command: signal handling, the monitor process, and startup."""
