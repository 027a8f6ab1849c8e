"""Checks of what environments answer, before it is stored: observations, rewards and flags.

One check serves the trial before a run, loops and vector environments: `Values` accepts one value
of a space, or N in front of its shape, and raises `BadStep` for what numpy would broadcast, wrap,
round or parse silently. Whether floats are finite and within their bounds is checked where many
rows arrive together (`trainer/intake.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy import ndarray
from numpy.typing import NDArray

from border_cli.core.types import Array, map_array
from border_cli.env.gym_spaces import carried_dtype
from border_cli.errors import BadStep

RESET: Final = "reset must return observation and info"
STEP: Final = "step must return observation, reward, terminated, truncated and info"

_INTEGERS: Final = "iub"  # kinds of dtypes
_NUMBERS: Final = "fiub"
_INTEGER: Final = (int, np.integer)
_FLAG: Final = (bool, np.bool_)
_MAPPING: Final = (dict, Mapping)  # the former is found faster
_NUMBER: Final = (float, np.floating, *_INTEGER)
_MOST_SHOWN: Final = 80  # characters of a value


def shown(value: object) -> str:
    """`repr` of a value from an environment, in one line and cut."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _row_dtype(space: gym.Space[Any]) -> np.dtype[Any]:
    return carried_dtype(space) if isinstance(space, spaces.Box) else np.dtype(np.int64)


def _bounds(space: Any) -> tuple[Any, Any]:
    """The least and the greatest value, [] or as the space has them."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    return space.low, space.high


def _is_whole(low: NDArray[Any], high: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether the bounds are those of the dtype."""
    least, most = (False, True) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(np.all(low == least) and np.all(high == most))


def as_array(given: Any) -> NDArray[Any] | None:
    """None where numpy makes no array of it."""
    try:
        return np.asarray(given)
    except Exception:  # of an environment's `__array__`; or of lists of several lengths
        return None


class Values:
    """Accepts values of one Box or of whole numbers, which become counted from 0.

    Real spaces take any real numbers, integer spaces integers within their bounds. Arrays of one
    number each are numbers.
    """

    def __init__(
        self,
        space: gym.Space[Any],
        name: str = "the observation",
        complaint: str | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self._space, self._name = space, name
        self._complaint = complaint or f"does not fit {' '.join(str(space).split())}"
        self.shape: tuple[int, ...] = space.shape or ()
        self.dtype = dtype or _row_dtype(space)
        self._is_real = self.dtype.kind == "f"
        self._is_choice = isinstance(space, spaces.Discrete)
        self._low, self._high = _bounds(space)
        whole = self._is_real or _is_whole(self._low, self._high, self.dtype)
        # Arrays of this dtype and shape can be stored as they are; None: all must be checked.
        self.plain_dtype = space.dtype if whole else None

    def write(self, rows: Any, i: int, given: Any) -> None:
        """Puts one value into row i.  [N, …]"""
        if self._is_choice and isinstance(given, _INTEGER) and self._low <= given <= self._high:
            rows[i] = int(given) - self._low  # at a fifth of the time
        else:
            rows[i] = self(given)

    def __call__(self, given: Any, *lead: int) -> NDArray[Any]:
        """One value; or N, where `lead` is N. Not always a copy.  [*lead, …]"""
        shape = lead + self.shape
        if (
            type(given) is ndarray
            and given.shape == shape
            and given.dtype is self.dtype is self.plain_dtype
        ):
            return given
        values = as_array(given)
        if values is None or values.dtype.kind not in (_NUMBERS if self._is_real else _INTEGERS):
            got = "objects" if values is None else values.dtype
            expected = "real numbers" if self._is_real else "integers"
            self._refuse(given, f"expected {expected}, got {got}")
        if values.shape != shape:
            if self.shape or values.shape[: len(lead)] != lead or values.size != math.prod(lead):
                self._refuse(given, f"its shape is {values.shape}, not {shape}")
            values = values.reshape(lead)
        if self._is_real or values.dtype is self.plain_dtype:
            return values.astype(self.dtype, copy=False)
        beyond = (values < self._low) | (values > self._high)
        if beyond.any():
            place = np.argwhere(beyond)[0].tolist()
            where = f" at {place}" if place else ""
            self._refuse(given, f"{values[tuple(place)]}{where} is out of bounds")
        return self._counted(values.astype(self.dtype, copy=False), lead)

    def _counted(self, values: NDArray[Any], lead: tuple[int, ...]) -> NDArray[Any]:
        if self._is_choice:
            return np.asarray(values - self._low)
        if isinstance(self._space, spaces.MultiDiscrete | spaces.MultiBinary):
            return np.asarray(values - self._low).reshape(*lead, -1)
        return values

    def _refuse(self, given: Any, why: str) -> NoReturn:
        raise BadStep(f"{self._name} {shown(given)} {self._complaint}: {why}")


class Parts:
    """Accepts values of a Dict of the spaces above."""

    plain_dtype = None
    shape: tuple[int, ...] = ()

    def __init__(self, space: spaces.Dict) -> None:
        self._parts = {
            key: Values(part, f"the observation's {key!r}") for key, part in space.spaces.items()
        }

    def write(self, rows: Any, i: int, given: Any) -> None:
        """Puts one value into row i of each part.  [N, …]"""
        self._refuse_other_keys(given)
        for key, part in self._parts.items():
            part.write(rows[key], i, given[key])

    def __call__(self, given: Any, *lead: int) -> dict[str, NDArray[Any]]:
        """One value; or N, where `lead` is N. Not always copies.  [*lead, …]"""
        self._refuse_other_keys(given)
        return {key: part(given[key], *lead) for key, part in self._parts.items()}

    def _refuse_other_keys(self, given: Any) -> None:
        is_dict = isinstance(given, _MAPPING)
        if not is_dict or given.keys() != self._parts.keys():
            got = list(given) if is_dict else shown(given)
            raise BadStep(f"the observation must be a dict of {list(self._parts)}, got {got}")


def observations(space: gym.Space[Any]) -> Values | Parts:
    """The check of observations of this space."""
    return Parts(space) if isinstance(space, spaces.Dict) else Values(space)


def copied(values: Array) -> Array:
    """Checked observations in memory of their own: environments may use theirs again."""
    return map_array(ndarray.copy, values)  # C-contiguous


REWARD: Final = Values(
    spaces.Box(-np.inf, np.inf, (), np.float64),
    "the reward",
    "is not a number",
    np.dtype(np.float64),  # it is added up before it is rounded
)
TERMINATED, TRUNCATED = (
    Values(spaces.Box(0, 1, (), np.bool_), name, "is not true or false")
    for name in ("terminated", "truncated")
)


def as_reward(given: Any) -> float:
    """A number, or an array of one."""
    return float(given if isinstance(given, _NUMBER) else REWARD(given))


def as_flag(check: Values, given: Any) -> bool:
    """True, False, 0, 1, or an array of one of these."""
    return bool(given if isinstance(given, _FLAG) else check(given))


def info_values(info: Any, names: Sequence[str]) -> tuple[float, ...]:
    """The numbers of these names in what a step says besides, NaN where there is none; () where
    there is none of them."""
    if not isinstance(info, Mapping) or not any(name in info for name in names):
        return ()
    return tuple([_info_value(info.get(name)) for name in names])


def _info_value(given: Any) -> float:
    try:
        return as_reward(given)
    except BadStep:
        return math.nan


def other_answer(wanted: str, answer: object) -> BadStep:
    """The error where a method returned something else than a tuple of the wanted values."""
    got = f"{len(answer)} values" if isinstance(answer, tuple) else shown(answer)
    return BadStep(f"{wanted}, got {got}")


def stepped(answer: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The five values in the answer of a `step`."""
    try:
        observation, reward, terminated, truncated, info = answer
    except (TypeError, ValueError):
        raise other_answer(STEP, answer) from None
    return observation, reward, terminated, truncated, info


def begun(answer: Any) -> tuple[Any, Any]:
    """The observation and the `info` in the answer of a `reset`."""
    try:
        observation, info = answer
    except (TypeError, ValueError):
        raise other_answer(RESET, answer) from None
    return observation, info
