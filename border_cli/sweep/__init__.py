"""Many runs of one command: its jobs, who runs each of them in its folder, and how they ended."""
