"""Networks of dense layers that learn in numpy, with written-out gradients.

In networks this small, autograd and the overhead of torch calls take longer than the arithmetic.
The weights of a network are slices of one flat array, so that an optimizer, a copy or a Polyak
average takes a handful of calls. Names and shapes in saved states are those of `nn/network.py` and
`nn/value_network.py`, and so are the initial weights of a seed.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, Self, TypeAlias

import numpy as np

from border_cli.nn.architecture import Architecture
from border_cli.nn.initial_weights import fill_uniform
from border_cli.nn.numpy_network import (
    Arrays,
    NumpyMlp,
    Rows,
    combine_streams,
    normalise,
)
from border_cli.nn.parameter_limit import count_parameters
from border_cli.settings.networks import Activation

Cache: TypeAlias = list[Any]


class Parameters:
    """Named arrays and their gradients, as consecutive slices of two flat arrays.

    A matrix is stored as [inputs, outputs], which is faster, and named and saved as [outputs,
    inputs].
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """`shapes` are those of the saved arrays, which start as zeros."""
        self._shapes = dict(shapes)
        size = sum(map(prod, shapes.values()))
        self.bind(np.zeros(size, np.float32), np.zeros(size, np.float32))

    def bind(self, flat: Rows, gradient: Rows) -> None:
        """Uses these arrays from now on. `flat` contains the weights. [size] each"""
        self.flat, self.gradient = flat, gradient
        self._arrays, self._gradients = self.views(flat), self.views(gradient)

    def views(self, flat: Rows) -> dict[str, Rows]:
        """Returns the slices of a flat array, by the names of the arrays. [size]"""
        views, first = {}, 0
        for name, shape in self._shapes.items():
            end = first + prod(shape)
            views[name] = flat[first:end].reshape(shape[::-1]).T  # transposes matrices only
            first = end
        return views

    @property
    def gradients(self) -> tuple[Rows, ...]:
        """The gradient of each array, in the order of `state_dict`."""
        return tuple(self._gradients.values())

    def state_dict(self) -> dict[str, Rows]:
        """Returns the arrays themselves, not copies."""
        return self._arrays

    def load_state_dict(self, state: Arrays) -> None:
        """Copies the arrays of a saved state. Raises ValueError if names or shapes differ."""
        if state.keys() != self._arrays.keys():
            raise ValueError(f"it has {', '.join(state)} instead of {', '.join(self._arrays)}")
        for name, array in self._arrays.items():
            if state[name].shape != array.shape:
                raise ValueError(f"{name} has shape {state[name].shape} instead of {array.shape}")
        for name, array in self._arrays.items():
            np.copyto(array, state[name])

    def move_towards(self, online: Self, tau: float) -> None:
        """See `LearnedNetwork.move_towards` in `nn/backend.py`."""
        if tau == 1:
            np.copyto(self.flat, online.flat)
            return
        step = self.gradient  # otherwise unused in a target network
        np.subtract(online.flat, self.flat, out=step)
        step *= tau
        self.flat += step

    def make_target(self) -> Self:
        """Returns a copy with its own memory."""
        duplicate = copy.copy(self)
        duplicate.bind(self.flat.copy(), np.zeros_like(self.gradient))
        return duplicate


def _layer_shapes(
    prefix: str, sizes: Sequence[int], architecture: Architecture, *, linear: bool = True
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of dense layers by name. If `linear`, the last layer is not hidden."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        shapes[f"{prefix}layers.{i}.weight"] = outputs, inputs
        shapes[f"{prefix}layers.{i}.bias"] = (outputs,)
    hidden = sizes[1 : len(sizes) - linear] if architecture.layer_norm else ()
    for i, size in enumerate(hidden):
        shapes |= {f"{prefix}norms.{i}.{kind}": (size,) for kind in ("weight", "bias")}
    return shapes


class LearningMlp(NumpyMlp):
    """Dense layers with a forward pass that stores activations, and the backward pass."""

    def __init__(
        self,
        arrays: Arrays,
        gradients: Arrays,
        prefix: str,
        activation: Activation,
        *,
        linear: bool = True,
    ) -> None:
        super().__init__(arrays, prefix, activation, linear=linear)
        self._gradient = NumpyMlp(gradients, prefix, activation, linear=linear)
        self._is_tanh = activation == Activation.tanh

    def forward_with_cache(self, rows: Rows) -> tuple[Rows, Cache]:
        """Returns the outputs, and the inputs and normalised rows of each layer. [B, inputs]"""
        cache: Cache = [rows]
        for i, (weight, bias) in enumerate(self.layers):
            rows = rows.dot(weight)
            rows += bias
            if i < self.hidden:
                if self.norms:
                    cache.append(normalise(rows, *self.norms[i]))
                self.activate(rows)
            cache.append(rows)
        return rows, cache

    def backward(self, cache: Cache, grad: Rows, *, to_inputs: bool = False) -> Rows:
        """Writes the gradient with respect to the weights, given that of the outputs, which may be
        overwritten; returns the gradient with respect to the inputs if it is needed."""
        position = len(cache) - 1
        for i in reversed(range(len(self.layers))):
            weight_grad, bias_grad = self._gradient.layers[i]
            if i < self.hidden:
                self._through_activation(cache[position], grad)
                if self.norms:
                    position -= 1
                    grad = self._through_norm(i, cache[position], grad)
            position -= 1
            np.dot(cache[position].T, grad, out=weight_grad)
            np.add.reduce(grad, 0, out=bias_grad)
            if i or to_inputs:
                grad = grad.dot(self.layers[i][0].T)
        return grad

    def _through_activation(self, outputs: Rows, grad: Rows) -> None:
        """Multiplies `grad` by the derivative of tanh or ReLU, given its outputs."""
        if self._is_tanh:
            slope = outputs * outputs
            np.subtract(1, slope, out=slope)
            grad *= slope
        else:
            grad *= outputs > 0

    def _through_norm(self, i: int, cache: tuple[Rows, Rows], grad: Rows) -> Rows:
        normalised, std = cache
        weight_grad, bias_grad = self._gradient.norms[i]
        np.add.reduce(grad * normalised, 0, out=weight_grad)
        np.add.reduce(grad, 0, out=bias_grad)
        grad = grad * self.norms[i][0]
        projection = (grad * normalised).mean(1, keepdims=True)
        result: Rows = (grad - grad.mean(1, keepdims=True) - normalised * projection) / std
        return result


class LearningNetwork(Parameters):
    """A network with gradients of its weights. Owned by the learner's thread."""

    def __init__(self, architecture: Architecture, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._activation = architecture.activation
        count_parameters(sum(map(prod, shapes.values())))
        super().__init__(shapes)

    def _stream(self, prefix: str, *, linear: bool = True) -> LearningMlp:
        arrays = self._arrays, self._gradients
        return LearningMlp(*arrays, prefix, self._activation, linear=linear)

    def draw_weights(self, generator: np.random.Generator) -> None:
        """Initialises all layers like `Dense`, and all normalisations with weights of 1."""
        for name, array in self._arrays.items():
            if ".norms." in name:
                array[:] = name.endswith("weight")
            elif name.endswith("weight"):
                draws = np.empty(array.shape, np.float32)
                bound = array.shape[1] ** -0.5
                fill_uniform(draws, bound, generator)
                np.copyto(array, draws)
            else:
                fill_uniform(array, bound, generator)

    def predict(self, rows: Rows) -> Rows:
        """Returns the outputs. [B, inputs] -> [B, outputs]"""
        return self.forward_with_cache(rows)[0]

    @abstractmethod
    def forward_with_cache(self, rows: Rows) -> tuple[Rows, Cache]:
        """Returns the outputs and the cache of this forward pass. [B, inputs] -> [B, outputs]"""

    @abstractmethod
    def backward(self, cache: Cache, grad_output: Rows) -> tuple[Rows, ...]:
        """Returns the gradient with respect to all weights, valid until the next call."""


class DenseNetwork(LearningNetwork):
    """The numpy counterpart of `Network` for observations that are rows of numbers."""

    def __init__(
        self, architecture: Architecture, outputs: int, generator: np.random.Generator
    ) -> None:
        sizes = [architecture.row_size, *architecture.hidden, outputs]
        super().__init__(architecture, _layer_shapes("mlp.", sizes, architecture))
        self.draw_weights(generator)

    def bind(self, flat: Rows, gradient: Rows) -> None:
        super().bind(flat, gradient)
        self._mlp = self._stream("mlp.")

    def forward_with_cache(self, rows: Rows) -> tuple[Rows, Cache]:
        return self._mlp.forward_with_cache(rows)

    def forward_with_hidden(self, rows: Rows) -> tuple[Rows, Rows, Cache]:
        """See `DenseLearnedNetwork.forward_with_hidden` in `nn/backend.py`."""
        outputs, cache = self._mlp.forward_with_cache(rows)
        return outputs, cache[-2], cache  # the last layer is linear, so its inputs precede it

    def backward(self, cache: Cache, grad_output: Rows) -> tuple[Rows, ...]:
        self._mlp.backward(cache, grad_output)
        return self.gradients


class DuelingNetwork(LearningNetwork):
    """The numpy counterpart of a dueling `ValueNetwork` without noise."""

    def __init__(
        self,
        architecture: Architecture,
        num_actions: int,
        generator: np.random.Generator,
        *,
        atoms: int,
    ) -> None:
        self._atoms = atoms
        sizes = [architecture.row_size, *architecture.hidden]
        split = max(0, len(architecture.hidden) - 1)  # number of shared layers
        streams = {"shared.": sizes[: split + 1]}
        streams |= {"value.": [*sizes[split:], atoms]}
        streams |= {"advantage.": [*sizes[split:], num_actions * atoms]}
        shapes: dict[str, tuple[int, ...]] = {}
        for prefix, stream in streams.items():
            shapes |= _layer_shapes(prefix, stream, architecture, linear=prefix != "shared.")
        super().__init__(architecture, shapes)
        self.draw_weights(generator)

    def bind(self, flat: Rows, gradient: Rows) -> None:
        super().bind(flat, gradient)
        self._shared = self._stream("shared.", linear=False)
        self._value, self._advantage = self._stream("value."), self._stream("advantage.")

    def forward_with_cache(self, rows: Rows) -> tuple[Rows, Cache]:
        shared, shared_cache = self._shared.forward_with_cache(rows)
        values, value_cache = self._value.forward_with_cache(shared)
        advantages, advantage_cache = self._advantage.forward_with_cache(shared)
        outputs = combine_streams(values, advantages, self._atoms)
        return outputs, [shared_cache, value_cache, advantage_cache]

    def backward(self, cache: Cache, grad_output: Rows) -> tuple[Rows, ...]:
        shared_cache, value_cache, advantage_cache = cache
        by_action = grad_output.reshape(len(grad_output), -1, self._atoms)
        grad_value = by_action.sum(1)  # [B, atoms]
        grad_advantage = by_action - by_action.mean(1, keepdims=True)
        grad = self._value.backward(value_cache, grad_value, to_inputs=True)
        grad += self._advantage.backward(
            advantage_cache, grad_advantage.reshape(grad_output.shape), to_inputs=True
        )
        self._shared.backward(shared_cache, grad)
        return self.gradients
