"""Writing data sets: existing ones are replaced only on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import minari
import numpy as np
import pytest

from border_cli.dataset.minari_files import DatasetWriter, EnvParts, RawEpisode
from border_cli.dataset.store import known_ids
from border_cli.errors import ConfigError
from tests.support.datasets import datasets_in, write_cartpole

ENV = EnvParts(
    observation_space=gym.spaces.Box(-1, 1, (1,)), action_space=gym.spaces.Discrete(2), spec=None
)
EPISODE = RawEpisode(
    seed=0,
    observations=np.zeros((2, 1), np.float32),
    actions=np.zeros(1, np.int64),
    rewards=np.ones(1),
    terminations=np.ones(1, np.bool_),
    truncations=np.zeros(1, np.bool_),
)


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path) -> Iterator[Path]:
    with datasets_in(tmp_path):
        yield tmp_path


def write(dataset: str, *, episodes: int = 1, overwrite: bool = False) -> None:
    with DatasetWriter(dataset, ENV, overwrite=overwrite) as writer:
        writer.add([EPISODE] * episodes, policy="nobody")
        writer.finish({})


def folders_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("hopper-v5", "hopper-v5 exists and is not a data set"),
    ],
)
def test_a_place_of_other_things_is_refused(dataset: str, said: str, *, overwrite: bool) -> None:
    write("hopper-v5/medium-v0")
    with pytest.raises(ConfigError, match=said):
        write(dataset, overwrite=overwrite)
    assert known_ids() == ["hopper-v5/medium-v0"]


def test_a_data_set_created_meanwhile_is_not_replaced(datasets: Path) -> None:
    with DatasetWriter("my/a-v0", ENV) as writer:
        steps = write_cartpole("my/a-v0", episodes=2)
        writer.add([EPISODE], policy="nobody")
        with pytest.raises(ConfigError, match="dataset=my/a-v0 already exists"):
            writer.finish({})
    assert minari.load_dataset("my/a-v0").total_steps == steps
    assert folders_in(datasets / "my") == ["a-v0"]


def test_a_data_set_is_replaced_on_request(datasets: Path) -> None:
    write_cartpole("my/a-v0", episodes=2)
    write("my/a-v0", overwrite=True)
    assert minari.load_dataset("my/a-v0").total_steps == 1
    assert folders_in(datasets / "my") == ["a-v0"]
