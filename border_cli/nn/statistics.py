"""Mean and deviation of all that was seen, kept up to date.

Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", formula 1.5.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPSILON = 1e-8  # of a variance: a column that never changes is divided by 1e-4


class RunningStatistics(nn.Module):
    """Of rows with so many columns, in float64 on the CPU; the learner's thread owns it."""

    count: Tensor  # []  rows seen
    mean: Tensor  # [columns]
    squares: Tensor  # [columns]  sum of squared deviations from the mean

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(columns, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(columns, dtype=torch.float64))

    def see(self, rows: Tensor) -> None:
        """Takes in rows. [M, columns]"""
        if not len(rows):
            return
        rows = rows.double()
        mean = rows.mean(0)
        self.merge(len(rows), mean, ((rows - mean) ** 2).sum(0))

    def merge(self, count: int, mean: Tensor, squares: Tensor) -> None:
        """Takes in the statistics of so many rows, at least one. [columns] float64"""
        total = self.count + count
        off = mean - self.mean
        self.squares += squares + off**2 * self.count * count / total
        self.mean += off * count / total
        self.count.copy_(total)

    @property
    def std(self) -> Tensor:
        """Population deviation; 1 before there are two rows. [columns]"""
        if self.count < 2:
            return torch.ones_like(self.mean)
        return (self.squares / self.count + EPSILON).sqrt()
