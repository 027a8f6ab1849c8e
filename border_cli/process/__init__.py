"""The process of a command: its signals, the monitor that watches it, and how it starts."""
