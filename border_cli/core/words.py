"""Numbers in sentences."""

from __future__ import annotations


def counted(count: float, noun: str) -> str:
    """`1 checkpoint`, `2,000 checkpoints`, `0.5 samples`."""
    figure = f"{count:,}" if isinstance(count, int) else f"{count:,g}"
    return f"{figure} {noun}" if count == 1 else f"{figure} {noun}s"
