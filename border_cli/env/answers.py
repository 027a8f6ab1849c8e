"""What environments return, as rows: observations, rewards and flags; invalid ones are refused.

Everything here raises `BadStep` for what numpy would broadcast, wrap, round or parse silently.
Whether floats are finite and within their bounds is checked where many rows arrive together
(`trainer/intake.py`).

Checked at every step and reset, before anything is stored: shape and dtype kind of observations
(float spaces accept any real numbers, integer spaces only integers), integers against their space
by one vectorized comparison, keys of a Dict, rewards and flags (arrays with one element count as
scalars), and the number of returned values. Each layer prepends its context: actor and env steps,
env id and environment, key.
"""

from __future__ import annotations

import math
import operator
import reprlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.core.errors import BadStep
from border_cli.core.types import Array
from border_cli.env.gym_spaces import carried_dtype

# (storage [N, …], i, what environment i gave): puts the observation into row i.
ObservationWriter: TypeAlias = Callable[[Any, int, Any], None]
# (what was given, M): M observations as rows, always a copy.  [M, …]
ObservationReader: TypeAlias = Callable[[Any, int], Array]

_INTEGERS: Final = "iub"  # kinds of dtypes
_NUMBERS: Final = "fiub"
_NUMBER: Final = (float, int, np.floating, np.integer)
_FLAG: Final = (bool, np.bool_)
_MOST_SHOWN: Final = 80  # characters of a value


class Answer(NamedTuple):
    """What a method of an environment returns."""

    method: str
    values: str


RESET: Final = Answer("reset", "observation and info")
STEP: Final = Answer("step", "observation, reward, terminated, truncated and info")

_short = reprlib.Repr()
_short.maxother = _short.maxstring = _MOST_SHOWN


def shown(value: object) -> str:
    """`repr` of a value from an environment, in one line and cut."""
    value = value.item() if isinstance(value, np.generic) else value
    return " ".join(_short.repr(value).split())


def observation_writer(space: gym.Space[Any]) -> ObservationWriter:
    """How an observation of `space` gets into its row; integers arrive counted from 0."""
    if isinstance(space, spaces.Dict):
        parts = {key: observation_writer(part) for key, part in space.spaces.items()}
        return _dict_writer(parts)
    values = Values(space, "observation")
    if isinstance(space, spaces.Discrete):
        return _choice_writer(values, int(space.start), int(space.n))
    return _integers_writer(values) if values.has_bounds else _array_writer(values)


def plain_layout(space: gym.Space[Any]) -> tuple[np.dtype[Any] | None, tuple[int, ...]]:
    """Dtype and shape of the arrays that can be stored as they are; None: all must be checked.

    So a step loop writes nearly all observations without a call.
    """
    if isinstance(space, spaces.Dict):
        return None, ()
    values = Values(space, "observation")
    return None if values.has_bounds else values.given_dtype, values.shape


def _array_writer(values: Values) -> ObservationWriter:
    def write(storage: NDArray[Any], row: int, observation: Any) -> None:
        storage[row] = values.exact(observation, ())

    return write


def _integers_writer(values: Values) -> ObservationWriter:
    def write(storage: NDArray[Any], row: int, observation: Any) -> None:
        storage[row] = values.counted(values.checked(observation, ()), ())

    return write


def _choice_writer(values: Values, start: int, count: int) -> ObservationWriter:
    def write(storage: NDArray[Any], row: int, observation: Any) -> None:
        choice = observation
        if type(choice) is not int:
            try:
                choice = operator.index(choice)
            except TypeError:  # an array of one integer is one
                choice = int(values.exact(choice, ()))
        if not 0 <= choice - start < count:
            raise values.refused(observation, f"it is not within {start} to {start + count - 1}")
        storage[row] = choice - start

    return write


def _dict_writer(parts: dict[Any, ObservationWriter]) -> ObservationWriter:
    writers = [(str(key), key, write) for key, write in parts.items()]

    def write_all(storage: dict[str, NDArray[Any]], row: int, observation: Any) -> None:
        if type(observation) is not dict or observation.keys() != parts.keys():
            _refuse_other_keys(observation, parts)
        for name, key, write in writers:
            try:
                write(storage[name], row, observation[key])
            except BadStep as error:
                raise error.within(f"key {key!r}") from None

    return write_all


def _refuse_other_keys(observation: Any, parts: Mapping[Any, object]) -> None:
    if not isinstance(observation, Mapping):
        raise BadStep(
            f"the observation {shown(observation)} is not a dict with keys {_named(parts)}"
        )
    for what, keys in (
        ("lacks", [key for key in parts if key not in observation]),
        ("has unexpected", [key for key in observation if key not in parts]),
    ):
        if keys:
            raise BadStep(f"the observation {what} {_named(keys)}; its keys are {_named(parts)}")


def _named(keys: Any) -> str:
    return ", ".join(map(shown, keys))


def observation_reader(
    space: gym.Space[Any], name_row: Callable[[int, int], str]
) -> ObservationReader:
    """How M observations of the single `space` become rows; integers are counted from 0.

    `name_row(i, M)` is how an error calls the observation at place i.
    """
    if not isinstance(space, spaces.Dict):
        return Values(space, "observation", name_row).rows
    parts = {key: Values(part, "observation", name_row).rows for key, part in space.spaces.items()}

    def read(observations: Any, count: int) -> Array:
        if type(observations) is not dict or observations.keys() != parts.keys():
            _refuse_other_keys(observations, parts)
        rows = {}
        for key, read_part in parts.items():
            try:
                rows[str(key)] = read_part(observations[key], count)
            except BadStep as error:
                raise error.within(f"key {key!r}") from None
        return rows

    return read


def batch_size(space: gym.Space[Any], observation: Any) -> int | None:
    """N for a batch of N observations of `space` [N, …], None for one observation.

    Only shapes are checked. Raises BadStep for any other shape, and where the parts of a Dict
    disagree.
    """
    if isinstance(space, spaces.Dict):
        return _batch_size_of_parts(space, observation)
    values = _as_array(observation)
    if values is None or values.dtype.kind not in _NUMBERS:
        return None  # refused as one observation, with what it is
    shape = space.shape or ()
    if values.shape == shape:
        return None
    if values.shape[1:] == shape and values.ndim > len(shape):
        if len(values) == 0:
            raise BadStep(f"the batch of observations is empty: its shape is {values.shape}")
        return len(values)
    batched = f"(N, {', '.join(map(str, shape))})" if shape else "(N,)"
    raise BadStep(
        f"the observation has the shape {values.shape}; expected {shape} for one observation or "
        f"{batched} for a batch of N"
    )


def _batch_size_of_parts(space: spaces.Dict, observation: Any) -> int | None:
    if not isinstance(observation, Mapping) or observation.keys() != space.spaces.keys():
        _refuse_other_keys(observation, space.spaces)
    sizes = {}
    for key, part in space.spaces.items():
        try:
            sizes[key] = batch_size(part, observation[key])
        except BadStep as error:
            raise error.within(f"key {key!r}") from None
    if len(set(sizes.values())) > 1:
        listed = [f"{key!r} {'one' if size is None else size}" for key, size in sizes.items()]
        raise BadStep(f"the keys have different numbers of observations: {', '.join(listed)}")
    return next(iter(sizes.values()))


class Values:
    """What is accepted as values of one Box, Discrete or MultiDiscrete, and what becomes of it."""

    def __init__(
        self,
        space: gym.Space[Any],
        noun: str,
        name_row: Callable[[int, int], str] = lambda i, _: f"row {i}",
    ) -> None:
        self._space = space
        self._noun = noun
        self._name_row = name_row
        self.shape: tuple[int, ...] = space.shape or ()
        self._is_box = isinstance(space, spaces.Box)
        self.dtype = carried_dtype(space) if isinstance(space, spaces.Box) else np.dtype(np.int64)
        self._is_real = self.dtype.kind == "f"
        # Real numbers are rounded where they are stored; integers are converted before.
        self.given_dtype = space.dtype if self._is_real else self.dtype
        low, high = _bounds(space, self.dtype)
        self._low = low
        whole = self._is_real or _is_whole(low, high, self.dtype)
        # How far a value may be above `low`, as unsigned numbers: one below it is far above.
        self._most = None if whole else np.subtract(high, low).view(f"u{self.dtype.itemsize}")

    @property
    def has_bounds(self) -> bool:
        """Whether its dtype holds integers that the space does not have."""
        return self._most is not None

    def rows(self, given: Any, count: int) -> NDArray[Any]:
        """So many values as rows, integers counted from 0; a copy.  [count, …]"""
        return self._copied(self.checked(given, (count,)), count)

    def unbounded_rows(self, given: Any, count: int) -> NDArray[Any]:
        """The same where the bounds are checked elsewhere.  [count, …]"""
        return self._copied(self.exact(given, (count,)), count)

    def _copied(self, values: NDArray[Any], count: int) -> NDArray[Any]:
        return np.array(self.counted(values, (count,)), self.dtype, order="C")

    def counted(self, values: NDArray[Any], lead: tuple[int, ...]) -> NDArray[Any]:
        """Checked values with choices counted from 0: [*lead], or [*lead, K] of several."""
        if self._is_box:
            return values
        flat = (*lead, -1) if isinstance(self._space, spaces.MultiDiscrete) else lead
        counted: NDArray[Any] = values - self._low
        return counted.reshape(flat)

    def checked(self, given: Any, lead: tuple[int, ...]) -> NDArray[Any]:
        """As `exact`; where the space has a choice of integers, all are among them."""
        values = self.exact(given, lead)
        if self._most is None:
            return values
        beyond = np.subtract(values, self._low).view(self._most.dtype) > self._most
        if beyond.any():
            self._refuse_beyond(values, np.argwhere(beyond)[0].tolist(), lead)
        return values

    def exact(self, given: Any, lead: tuple[int, ...]) -> NDArray[Any]:
        """Numbers of the space's shape behind `lead`; integers in the dtype that rows have."""
        shape = lead + self.shape
        if type(given) is np.ndarray and given.dtype is self.given_dtype and given.shape == shape:
            return given
        values = _as_array(given)
        kinds = _NUMBERS if self._is_real else _INTEGERS
        if values is None or values.dtype.kind not in kinds:
            of = "objects" if values is None else values.dtype
            wanted = "real numbers" if self._is_real else "integers"
            raise self.refused(given, f"expected {wanted}, got {of}", lead)
        if isinstance(self._space, spaces.Discrete) and values.size == np.prod(lead, dtype=int):
            values = values.reshape(lead)  # arrays of one number each
        if values.shape != shape:
            raise self.refused(given, f"its shape is {values.shape}, not {shape}", lead)
        if self._is_real:
            return values
        converted = values.astype(self.dtype)
        if not np.array_equal(converted, values):
            self._refuse_beyond(values, np.argwhere(converted != values)[0].tolist(), lead)
        return converted

    def _refuse_beyond(self, values: NDArray[Any], place: list[int], lead: tuple[int, ...]) -> None:
        inner = tuple(place[len(lead) :])
        low, high = (np.broadcast_to(each, self.shape)[inner] for each in _bounds_of(self._space))
        at = f" at {list(inner)}" if inner else ""
        error = self.refused(
            values[tuple(place[: len(lead)])],
            f"{values[tuple(place)]}{at} is not within {low} to {high}",
        )
        raise error.within(self._name_row(place[0], lead[0])) if lead else error

    def refused(self, given: Any, why: str, lead: tuple[int, ...] = ()) -> BadStep:
        """The error about a value."""
        what = f"{lead[0]} {self._noun}s" if lead else f"the {self._noun}"
        fit = "do not fit" if lead else "does not fit"
        space = " ".join(str(self._space).split())
        return BadStep(f"{what} {shown(given)} {fit} {space}: {why}")


def _bounds_of(space: Any) -> tuple[Any, Any]:
    """The least and the greatest integer, [] or as the space has them."""
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return space.low, space.high


def _bounds(space: Any, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    with np.errstate(over="ignore"):
        low, high = (np.asarray(each).astype(dtype) for each in _bounds_of(space))
    return low, high


def _is_whole(low: NDArray[Any], high: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether the bounds are those of the dtype."""
    if dtype.kind == "b":
        return True
    limits = np.iinfo(dtype)
    return bool((low == limits.min).all() and (high == limits.max).all())


def _as_array(given: Any) -> NDArray[Any] | None:
    """None where numpy makes no array of it."""
    try:
        return np.asarray(given)
    except Exception:  # of an environment's `__array__`; or of lists of several lengths
        return None


def as_reward(given: Any) -> float:
    """A number, or an array of one."""
    if isinstance(given, _NUMBER):
        try:
            return float(given)
        except OverflowError:
            raise BadStep(f"the reward {shown(given)} is too large for a float") from None
    value = _as_array(given)
    if value is None or value.dtype.kind not in _NUMBERS or value.size != 1:
        raise BadStep(f"the reward {shown(given)} is not a number")
    return float(value.item())


def info_values(info: Any, names: Sequence[str]) -> tuple[float, ...]:
    """The numbers of these names in what a step says besides, NaN where there is none; () where
    there is none of them."""
    if not isinstance(info, Mapping) or not any(name in info for name in names):
        return ()
    return tuple([_info_value(info.get(name)) for name in names])


def _info_value(given: Any) -> float:
    value = None if given is None else _as_array(given)
    if value is None or value.dtype.kind not in _NUMBERS or value.size != 1:
        return math.nan
    return float(value.item())


def as_flag(name: str, given: Any) -> bool:
    """True, False, 0, 1, or an array of one of these."""
    if isinstance(given, _FLAG):
        return bool(given)
    value = _as_array(given)
    if value is None or value.dtype.kind not in _NUMBERS or value.size != 1:
        raise _no_flag(name, given)
    only = value.item()
    if only not in (0, 1):
        raise _no_flag(name, given)
    return bool(only)


def _no_flag(name: str, given: Any) -> BadStep:
    return BadStep(f"{name} must be true or false, got {shown(given)}")


def as_rewards(given: Any, count: int) -> NDArray[Any]:
    """Those of so many environments.  [N]"""
    if type(given) is np.ndarray and given.dtype.kind == "f" and given.shape == (count,):
        return given
    rewards = _as_array(given)
    if rewards is None or rewards.dtype.kind not in _NUMBERS or rewards.shape != (count,):
        raise BadStep(f"the rewards must be {count} numbers, got {shown(given)}")
    return rewards


def as_flags(name: str, given: Any, count: int) -> NDArray[np.bool_]:
    """Those of so many environments; a copy.  [N]"""
    if type(given) is np.ndarray and given.dtype.kind == "b" and given.shape == (count,):
        return given.copy()
    flags = _as_array(given)
    if flags is not None and flags.dtype.kind in _NUMBERS and flags.shape == (count,):
        converted = flags.astype(np.bool_)
        if np.array_equal(converted, flags):
            return converted
    raise BadStep(f"{name} must be {count} times true or false, got {shown(given)}")


def environment_of(i: int, count: int) -> str:
    """What environment i of so many is called."""
    return f"environment {i + 1} of {count}"


def place_of(env_id: str, i: int, count: int) -> str:
    """Where an error happened; one environment alone needs no number."""
    return f"env.id={env_id}" + (f", {environment_of(i, count)}" if count > 1 else "")


def refuse_other_answer(error: Exception, place: str, answer: Answer) -> None:
    """Raises `BadStep` where `error` is of an answer that could not be unpacked.

    Wrappers of Gymnasium unpack it, too; errors raised inside an environment are its own.
    """
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    where = str(frame.f_globals.get("__name__"))
    if "unpack" in str(error) and where.startswith(("border_cli.env.", "gymnasium.wrappers.")):
        raise BadStep(f"{place}: {answer.method} must return {answer.values}: {error}") from None
