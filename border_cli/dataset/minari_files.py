"""Readers and writers of Minari data sets; a data set is written as a whole or not at all."""

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
    """An episode of T steps and T + 1 observations, in the types of the environment's spaces."""

    seed: int  # seed of the reset
    observations: Any  # [T + 1, …], or a dict or tuple of these
    actions: Any  # [T, …]
    rewards: Any  # [T]
    terminations: Any  # [T]
    truncations: Any  # [T]


class MinariDataset:
    """An existing Minari data set, whose episodes are read on demand."""

    def __init__(self, dataset: str) -> None:
        self.id = dataset
        with _convert_errors(dataset):
            import minari

            self._dataset = minari.load_dataset(dataset)
            self.observation_space: Any = self._dataset.observation_space  # a Gymnasium space
            self.action_space: Any = self._dataset.action_space

    def episodes(self) -> Iterator[Any]:
        """Yields all episodes in order, as Minari objects with the fields of a `RawEpisode` except
        the seed; raises ConfigError if one cannot be read."""
        with _convert_errors(self.id):
            yield from self._dataset.iterate_episodes()


@contextmanager
def _convert_errors(dataset: str) -> Iterator[None]:
    """Converts errors of Minari and its storage into errors that name the data set."""
    try:
        yield
    except (BorderError, GeneratorExit, MemoryError):
        raise
    except ImportError as error:  # Minari, or the library of its file format, is missing
        raise MissingPackage(f"data set {dataset}", EXTRA) from error
    except Exception as error:  # a corrupt file may raise anything
        raise ConfigError(
            f"data set {dataset} cannot be read: {type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvParts:
    """The spaces and the spec of a data set's environment, as Gymnasium objects."""

    observation_space: Any
    action_space: Any
    spec: Any  # None if the environment is not registered


def refuse_name(dataset: str | None, *, overwrite: bool) -> str:
    """Returns the id of a new data set; raises ConfigError if the id is invalid or taken, or if the
    data set cannot be written."""
    example = "such as my/cartpole-medium-v0"
    if dataset is None:
        raise ConfigError(f"dataset=ID is required, {example}")
    if not is_id(dataset):
        raise ConfigError(f"dataset must be [namespace/]name-v<number>, {example}, got {dataset!r}")
    path = root() / dataset
    if is_known(dataset) and not overwrite:
        raise ConfigError(
            f"dataset={dataset} already exists in {root()}: overwrite=true replaces it. Existing: "
            f"{', '.join(known_ids())}"
        )
    if path.exists() and not is_known(dataset):
        raise ConfigError(f"dataset={dataset}: {path} exists and is not a data set")
    reason = unwritable(path.parent)  # it is written there under a hidden name
    if reason is not None:
        raise ConfigError(f"dataset={dataset} cannot be written to {path.parent}: {reason}")
    return dataset


class DatasetWriter:
    """Writes a data set under a hidden name, which `finish` changes to its final name.

    If the `with` block ends without `finish`, all files are removed. An existing data set is
    replaced only with `overwrite`, and other files are never replaced.
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
                env_spec=_serializable_spec(self._env.spec),
                jpeg_encoding=False,  # JPEG is lossy
            )
        except BaseException as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            if isinstance(error, ImportError):  # Minari or the library of its file format
                raise MissingPackage(f"dataset={self._id}", EXTRA) from error
            raise
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, episodes: Sequence[RawEpisode], *, policy: str) -> None:
        """Appends episodes, with the name of the model that collected them."""
        from minari.data_collector import EpisodeBuffer

        self._storage.update_episodes(EpisodeBuffer(**vars(episode)) for episode in episodes)
        numbers = range(self._episodes, self._episodes + len(episodes))
        self._storage.update_episode_metadata([{"policy": policy} for _ in numbers], numbers)
        self._episodes += len(episodes)

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Writes the metadata and renames the data set, replacing an existing one."""
        from minari import __version__
        from minari.namespace import create_namespace, list_local_namespaces

        self._storage.update_metadata(
            {"dataset_id": self._id, "minari_version": __version__, **metadata}
        )
        namespace = self._id.rpartition("/")[0]
        if namespace and namespace not in list_local_namespaces():
            create_namespace(namespace)
        refuse_name(self._id, overwrite=self._overwrite)  # it may have been created meanwhile
        if self._final.exists():
            shutil.rmtree(self._final)
        self._folder.rename(self._final)


def _serializable_spec(spec: Any) -> Any:
    """Returns Gymnasium's spec, or None if it cannot be serialized, e.g. because of a class."""
    try:
        spec.to_json()
    except Exception:  # a user's environment may raise anything
        return None
    return spec
