"""What the agents learn: every pair of agent and environment, its cells, and the report."""
