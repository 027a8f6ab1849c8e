"""Minari data sets: episodes read as one holds them, and written to a new one, whole or absent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Self

from border_cli.dataset.store import is_id, is_known, known_ids, root
from border_cli.errors import BorderError, ConfigError, MissingPackage
from border_cli.system.machine import unwritable

EXTRA = "border-cli[offline]"


@dataclass(frozen=True, kw_only=True)
class RawEpisode:
    """One episode in the types of its environment's spaces; T steps and T + 1 observations."""

    seed: int  # that its environment was reset with
    observations: Any  # [T + 1, …], or a dict or tuple of these
    actions: Any  # [T, …]
    rewards: Any  # [T]
    terminations: Any  # [T]
    truncations: Any  # [T]


class MinariDataset:
    """A data set that was found whole as far as its metadata tell; reads episodes on demand."""

    def __init__(self, dataset: str) -> None:
        self.id = dataset
        with _reading(dataset):
            import minari

            self._dataset = minari.load_dataset(dataset)
            self.observation_space: Any = self._dataset.observation_space  # Gymnasium's own
            self.action_space: Any = self._dataset.action_space

    def episodes(self) -> Iterator[Any]:
        """All episodes in their order, Minari's own, with the fields of a `RawEpisode` but for the
        seed; raises ConfigError where one cannot be read."""
        with _reading(self.id):
            yield from self._dataset.iterate_episodes()


@contextmanager
def _reading(dataset: str) -> Iterator[None]:
    """Turns what Minari and its storage raise into the words of the user."""
    try:
        yield
    except (BorderError, GeneratorExit, MemoryError):
        raise
    except ImportError as error:  # Minari itself, or the library of its file format
        raise MissingPackage(f"data set {dataset}", EXTRA) from error
    except Exception as error:  # a damaged file may fail in any way
        raise ConfigError(
            f"data set {dataset} cannot be read: {type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvParts:
    """The spaces and the specification of a data set's environment, as Gymnasium has them."""

    observation_space: Any
    action_space: Any
    spec: Any  # None where the environment is not registered


def refuse_name(dataset: str | None, *, overwrite: bool) -> str:
    """A name that a new data set can have; raises ConfigError for any other, and where nothing can
    be written."""
    example = "such as my/cartpole-medium-v0"
    if dataset is None:
        raise ConfigError(f"dataset=ID is required, {example}")
    if not is_id(dataset):
        raise ConfigError(f"dataset must be [namespace/]name-v<number>, {example}, got {dataset!r}")
    place = root() / dataset
    if is_known(dataset) and not overwrite:
        raise ConfigError(
            f"dataset={dataset} already exists in {root()}: overwrite=true replaces it. Existing: "
            f"{', '.join(known_ids())}"
        )
    if place.exists() and not is_known(dataset):
        raise ConfigError(f"dataset={dataset}: {place} exists and is not a data set")
    reason = unwritable(place.parent)  # where it gets its hidden name first
    if reason is not None:
        raise ConfigError(f"dataset={dataset} cannot be written to {place.parent}: {reason}")
    return dataset


class DatasetWriter:
    """Writes under a hidden name until `finish` gives the data set its own.

    Leaves nothing behind where its `with` block ends without `finish`. Replaces a data set of that
    name only with `overwrite`, and never anything else.
    """

    def __init__(self, dataset: str, env: EnvParts, *, overwrite: bool = False) -> None:
        self._id = refuse_name(dataset, overwrite=overwrite)
        self._overwrite = overwrite
        self._env = env
        self._final = root() / dataset
        self._folder = self._final.with_name(f".{self._final.name}-{token_hex(4)}")
        self._storage: Any = None
        self._episodes = 0

    def __enter__(self) -> Self:
        try:
            from minari.dataset.minari_storage import MinariStorage

            (self._folder / "data").mkdir(parents=True)
            self._storage = MinariStorage.new(
                self._folder / "data",
                observation_space=self._env.observation_space,
                action_space=self._env.action_space,
                env_spec=_serializable(self._env.spec),
                jpeg_encoding=False,  # which would not give the same pixels again
            )
        except BaseException as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            if isinstance(error, ImportError):  # Minari itself, or the library of its file format
                raise MissingPackage(f"dataset={self._id}", EXTRA) from error
            raise
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, episodes: Sequence[RawEpisode], *, policy: str) -> None:
        """Appends episodes, and the model that played them."""
        from minari.data_collector import EpisodeBuffer

        self._storage.update_episodes(EpisodeBuffer(**vars(each)) for each in episodes)
        numbers = range(self._episodes, self._episodes + len(episodes))
        self._storage.update_episode_metadata([{"policy": policy} for _ in numbers], numbers)
        self._episodes += len(episodes)

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Gives the data set its name, in place of one that may have had it."""
        from minari import __version__
        from minari.namespace import create_namespace, list_local_namespaces

        self._storage.update_metadata(
            {"dataset_id": self._id, "minari_version": __version__, **metadata}
        )
        namespace = self._id.rpartition("/")[0]
        if namespace and namespace not in list_local_namespaces():
            create_namespace(namespace)
        refuse_name(self._id, overwrite=self._overwrite)  # one may have come meanwhile
        if self._final.exists():
            shutil.rmtree(self._final)
        self._folder.rename(self._final)


def _serializable(spec: Any) -> Any:
    """Gymnasium's specification; None where it holds what no file can, such as a class."""
    try:
        spec.to_json()
    except Exception:  # of the user's environment: it may be anything
        return None
    return spec
