"""Placeholder."""


def numpy_torso(kind, arrays, prefix, shape): ...
