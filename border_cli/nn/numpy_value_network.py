"""The forward pass of `value_network.py` in numpy, for actors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, repeat, takewhile
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_features import numpy_torso
from border_cli.nn.numpy_mlp import NUMPY_ACTIVATIONS, Rows, normalise

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Noises: TypeAlias = Iterator[Rows | None]  # of one layer after the other: [N, inputs + outputs]


class NumpyDense:
    """A dense layer; owns copies of its arrays."""

    def __init__(self, arrays: Arrays, name: str) -> None:
        self._means = _layer(arrays, f"{name}.weight", f"{name}.bias")
        self._stds = None
        self.draws = 0  # numbers that make its noise
        if f"{name}.weight_std" in arrays:
            self._stds = _layer(arrays, f"{name}.weight_std", f"{name}.bias_std")
            self.draws = sum(self._stds[0].shape)

    def __call__(self, rows: Rows, noises: Noises) -> Rows:
        """[N, inputs] -> [N, outputs]"""
        weight, bias = self._means
        result: Rows = rows.dot(weight)
        result += bias
        noise = next(noises)
        if noise is not None and self._stds is not None:
            weight, bias = self._stds
            # (sigma * f(eps_out) f(eps_in)^T) x, without the product of both: each row has a draw
            # of its own, and two products of vectors take less time than one noisy matrix.
            noisy = (rows * noise[:, : len(weight)]).dot(weight)
            noisy += bias
            noisy *= noise[:, len(weight) :]
            result += noisy
        return result


class NumpyStream:
    """Hidden layers, and a linear layer where there is one."""

    def __init__(self, architecture: Architecture, arrays: Arrays, prefix: str) -> None:
        names = takewhile(
            lambda name: f"{name}.dense.weight" in arrays,
            (f"{prefix}hidden.{i}" for i in count()),
        )
        self._hidden = [
            (NumpyDense(arrays, f"{name}.dense"), _norm(arrays, f"{name}.norm")) for name in names
        ]
        last = f"{prefix}last"
        self._last = NumpyDense(arrays, last) if f"{last}.weight" in arrays else None
        self._activate = NUMPY_ACTIVATIONS[architecture.activation]

    def __call__(self, rows: Rows, noises: Noises) -> Rows:
        for dense, norm in self._hidden:
            rows = dense(rows, noises)
            if norm is not None:
                normalise(rows, *norm)
            self._activate(rows)
        return rows if self._last is None else self._last(rows, noises)

    @property
    def draws(self) -> list[int]:
        """Of each layer, in the order of their use."""
        layers = [dense for dense, _ in self._hidden]
        return [each.draws for each in (*layers, *([self._last] if self._last else []))]


class NumpyValueNetwork:
    """From N observations to Q(s, ·), or to logits; owns copies.

    Its weights are means while `noise` is None, else noisy by draws of that generator, anew for
    every row of every call.
    """

    def __init__(
        self, architecture: Architecture, arrays: Arrays, prefix: str, *, atoms: int
    ) -> None:
        self.noise: np.random.Generator | None = None
        self._atoms = atoms
        self._torso = numpy_torso(architecture, arrays, prefix)
        self._shared, self._value, self._advantage = (
            NumpyStream(architecture, arrays, f"{prefix}{name}.")
            for name in ("shared", "value", "advantage")
        )
        self._dueling = f"{prefix}value.last.weight" in arrays
        draws = [*self._shared.draws, *self._value.draws, *self._advantage.draws]
        self._ends = np.cumsum(draws)

    def __call__(self, obs: Any) -> Rows:
        """[N, …] -> [N, num_actions * atoms], a fresh array."""
        rows = self._torso(obs)
        noises = self._noises(len(rows))
        rows = self._shared(rows, noises)
        if not self._dueling:
            return self._advantage(rows, noises)
        value = self._value(rows, noises)[:, None]  # [N, 1, atoms]
        advantage = self._advantage(rows, noises).reshape(len(rows), -1, self._atoms)
        advantage += value - advantage.mean(axis=1, keepdims=True)
        return advantage.reshape(len(rows), -1)

    def _noises(self, rows: int) -> Noises:
        if self.noise is None:
            return repeat(None)
        drawn = self.noise.standard_normal((rows, self._ends[-1]), np.float32)
        factors = np.copysign(np.sqrt(np.abs(drawn)), drawn)
        return iter(np.split(factors, self._ends[:-1], axis=1))


def _layer(arrays: Arrays, weight: str, bias: str) -> tuple[Rows, Rows]:
    # [inputs, outputs], rows in sequence, as in `NumpyMlp`
    return np.array(arrays[weight].T, order="C"), np.array(arrays[bias])


def _norm(arrays: Arrays, name: str) -> tuple[Rows, Rows] | None:
    if f"{name}.weight" not in arrays:
        return None
    return np.array(arrays[f"{name}.weight"]), np.array(arrays[f"{name}.bias"])
