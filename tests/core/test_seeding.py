"""Random streams derived from one seed and a path."""

from __future__ import annotations

import numpy as np

from border_cli.core.seeding import (
    ActorStream,
    Branch,
    derived_seed,
    derived_seeds,
    generator,
    sequence,
)


def test_a_stream_is_the_child_that_spawn_gives() -> None:
    children = np.random.SeedSequence(7).spawn(len(Branch))
    for branch in Branch:
        by_spawn = children[branch].generate_state(8)
        assert (sequence(7, branch).generate_state(8) == by_spawn).all()


def test_a_path_is_spawn_after_spawn() -> None:
    actors = np.random.SeedSequence(7).spawn(4)[Branch.ACTOR]
    exploration = actors.spawn(3)[2].spawn(6)[5].spawn(2)[ActorStream.EXPLORATION]
    stream_generator = generator(7, Branch.ACTOR, 2, 5, ActorStream.EXPLORATION)
    assert (stream_generator.random(5) == np.random.default_rng(exploration).random(5)).all()


def test_adding_an_actor_leaves_the_seeds_of_all_others() -> None:
    two, five = derived_seeds(3, 2), derived_seeds(3, 5)
    assert five["actor_envs"][:2] == two["actor_envs"]
    del two["actor_envs"], five["actor_envs"]
    assert two == five


def test_streams_of_one_seed_and_of_neighbouring_seeds_differ() -> None:
    paths = [(branch,) for branch in Branch] + [
        (Branch.ACTOR, actor, incarnation, stream)
        for actor in range(10)
        for incarnation in range(4)
        for stream in ActorStream
    ]
    seeds = {tuple(sequence(seed, *path).generate_state(4)) for seed in range(5) for path in paths}
    assert len(seeds) == 5 * len(paths)


def test_a_derived_seed_is_the_first_word_of_its_stream() -> None:
    (word,) = np.random.SeedSequence(11).spawn(3)[Branch.EVALUATION].generate_state(1, np.uint32)
    assert derived_seed(11, Branch.EVALUATION) == word
    assert isinstance(derived_seed(11), int)


def test_the_numbers_of_the_branches_and_streams_are_part_of_every_saved_run() -> None:
    branches = {"LEARNER": 0, "REPLAY_BUFFER": 1, "EVALUATION": 2, "ACTOR": 3, "PROBE": 4}
    assert {branch.name: branch.value for branch in Branch} == branches
    assert {stream.name: stream.value for stream in ActorStream} == {"ENV": 0, "EXPLORATION": 1}
