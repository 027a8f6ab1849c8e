"""Episodes out of a Minari data set, as it holds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from border_cli.core.errors import BorderError, ConfigError
from border_cli.dataset.local import missing_minari


@dataclass(frozen=True, slots=True, kw_only=True)
class RawEpisode:
    """One episode in the types of its environment's spaces; T steps and T + 1 observations."""

    number: int
    observations: Any  # [T + 1, …], or a dict or tuple of these
    actions: Any  # [T, …]
    rewards: Any  # [T]
    terminations: Any  # [T]
    truncations: Any  # [T]


class Recording:
    """A data set that was found whole as far as its metadata tell; reads episodes on demand."""

    def __init__(self, dataset: str) -> None:
        self.id = dataset
        with _reading(dataset):
            import minari

            self._dataset = minari.load_dataset(dataset)
            self.observation_space: Any = self._dataset.observation_space  # Gymnasium's own
            self.action_space: Any = self._dataset.action_space

    def episodes(self) -> Iterator[RawEpisode]:
        """All episodes in their order; raises ConfigError where one cannot be read."""
        with _reading(self.id):
            for number, each in enumerate(self._dataset.iterate_episodes()):
                yield RawEpisode(
                    number=number,
                    observations=each.observations,
                    actions=each.actions,
                    rewards=each.rewards,
                    terminations=each.terminations,
                    truncations=each.truncations,
                )


@contextmanager
def _reading(dataset: str) -> Iterator[None]:
    """Turns what Minari and its storage raise into the words of the user."""
    try:
        yield
    except (BorderError, GeneratorExit, MemoryError):
        raise
    except ImportError as error:  # Minari itself, or the library of its file format
        raise missing_minari(f"data set {dataset}") from error
    except Exception as error:  # a damaged file may fail in any way
        raise ConfigError(
            f"data set {dataset} cannot be read: {type(error).__name__}: {error}"
        ) from error
