"""From steps of environments to rows of the replay buffer."""
