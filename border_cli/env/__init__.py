"""Environments; gymnasium lives here only."""
