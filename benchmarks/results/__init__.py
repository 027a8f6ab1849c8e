"""Scores of every pair of agent and environment: cells and report."""
