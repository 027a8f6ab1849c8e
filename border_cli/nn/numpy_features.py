"""Observations as what networks take, in numpy: what `features.py` computes in torch.

Actors use this, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import BoxSpace, DictSpace, Space
from border_cli.nn import numpy_images
from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_encoder import encoded_size, encoder

LIMIT = 10.0  # deviations at which normalised numbers are cut; TD3-BC's paper has no limit

# N observations -> rows [N, size] float32
NumpyTorso: TypeAlias = Callable[[Any], NDArray[np.float32]]


def measured_columns(space: Space) -> NDArray[np.bool_]:
    """Which columns of an encoded row are real numbers, and not integers.  [row_size]"""
    parts = space.spaces.values() if isinstance(space, DictSpace) else [space]
    return np.concatenate(
        [
            np.full(encoded_size(part), isinstance(part, BoxSpace) and part.dtype == "float32")
            for part in parts
        ]
    )


def numpy_torso(
    architecture: Architecture, arrays: Mapping[str, NDArray[Any]], prefix: str
) -> NumpyTorso:
    """From observations to what the first dense layer is given.

    `arrays` hold `features.…` where an agent normalises, and the convolutions under
    `<prefix>torso.`.
    """
    rows = _normalised_rows(architecture, arrays)
    images = [
        (
            key,
            each.channels_first,
            numpy_images.numpy_torso(
                each.network, arrays, f"{prefix}torso.images.{i}.", each.shape, each.scaling
            ),
        )
        for i, (key, each) in enumerate(architecture.images.items())
    ]
    if not images:
        assert rows is not None
        return rows
    if images[0][0] == "":
        _, first, network = images[0]
        return lambda obs: network(_channels_first(obs, first))

    def beside(obs: Any) -> NDArray[np.float32]:
        parts = [rows(obs)] if rows is not None else []
        parts += [network(_channels_first(obs[key], first)) for key, first, network in images]
        return np.concatenate(parts, axis=1)

    return beside


def _normalised_rows(
    architecture: Architecture, arrays: Mapping[str, NDArray[Any]]
) -> NumpyTorso | None:
    if architecture.rows is None:
        return None
    encode = encoder(architecture.rows)
    if "features.mean" not in arrays:
        return encode
    mean, inverse_std = arrays["features.mean"], arrays["features.inverse_std"]
    low, high = np.float32(-LIMIT), np.float32(LIMIT)

    def normalised(obs: Any) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = (encode(obs) - mean) * inverse_std
        np.clip(rows, low, high, out=rows)
        return rows

    return normalised


def _channels_first(images: NDArray[Any], first: bool) -> NDArray[Any]:
    if images.ndim == 3:
        return images[:, None]
    return images if first else images.transpose(0, 3, 1, 2)
