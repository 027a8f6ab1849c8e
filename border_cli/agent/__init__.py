"""Algorithms; torch lives here and in `nn`."""
