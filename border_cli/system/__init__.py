"""The operating system: child processes, shared memory, files, signals and machine resources."""
