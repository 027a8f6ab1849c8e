"""Environments; the only package that imports Gymnasium."""
