"""Reads saved runs, and compares them in lists, tables and plots."""
