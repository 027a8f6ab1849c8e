"""Initial weights, drawn by numpy, so that networks in torch and numpy start from the same ones.

Arrays that share the memory of a torch parameter are filled in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

HIDDEN_GAIN = math.sqrt(2)


def fill_uniform(array: NDArray[np.float32], bound: float, rng: np.random.Generator) -> None:
    """Fills a contiguous array with draws from U(-bound, bound)."""
    rng.random(out=array, dtype=np.float32)
    array *= 2 * bound
    array -= bound


def fill_truncated_normal(array: NDArray[np.float32], std: float, rng: np.random.Generator) -> None:
    """Fills a contiguous array with draws from N(0, std), redrawn until they are within 2 std."""
    rng.standard_normal(out=array, dtype=np.float32)
    while (beyond := np.abs(array) > 2).any():
        array[beyond] = rng.standard_normal(np.count_nonzero(beyond), dtype=np.float32)
    array *= std


def orthogonal(
    shape: tuple[int, int], gain: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draws a matrix whose rows or columns, whichever are fewer, are orthogonal with norm `gain`.

    Saxe, McClelland and Ganguli 2014, "Exact solutions to the nonlinear dynamics of learning in
    deep linear neural networks". The signs make it uniform over all such matrices.
    """
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
    q *= gain * np.sign(np.diag(r))
    return (q if rows >= columns else q.T).astype(np.float32, order="C")


def make_orthogonal(
    weights: Mapping[str, NDArray[np.float32]],
    *,
    rng: np.random.Generator,
    gain: float,
    outputs: int,
    prefix: str = "",
) -> None:
    """Sets all layers whose names start with `prefix` to orthogonal weights and zero biases.

    `weights` are those of a network by their names in the saved state. The first `outputs` outputs
    of the last layer get `gain`, the others 1, and hidden layers 2**0.5: the gains of OpenAI's
    baselines (Huang et al. 2022, "The 37 implementation details of proximal policy optimization",
    detail 2).
    """
    last: NDArray[np.float32]
    for name, array in weights.items():
        if not name.startswith(prefix):
            continue
        if name.endswith("bias"):
            array[:] = 0
        elif array.ndim >= 2:
            last = array  # in the end, the weight of the last layer
            matrix = orthogonal((len(array), array[0].size), HIDDEN_GAIN, rng)
            np.copyto(array, matrix.reshape(array.shape))
    np.copyto(last, orthogonal((len(last), last[0].size), 1.0, rng))
    np.copyto(last[:outputs], orthogonal((outputs, last[0].size), gain, rng))
