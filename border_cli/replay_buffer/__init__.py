"""What the learner learns from."""
