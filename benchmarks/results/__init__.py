"""Scores of agents on environments: cells and report."""
