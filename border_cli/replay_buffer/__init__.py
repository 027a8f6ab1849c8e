"""Stored transitions that the learner samples from."""
