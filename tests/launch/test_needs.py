"""What runs need of memory, worked out by hand, and what is refused with which words."""

from __future__ import annotations

import logging
import os
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import CARTPOLE, datasets_in, write_cartpole

from border_cli.config.compose import compose
from border_cli.core.errors import ConfigError
from border_cli.core.machine import Room
from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, EnvSpec, MultiDiscreteSpace
from border_cli.core.words import size
from border_cli.launch.build import build_agent, env_factory
from border_cli.launch.dry_build import Probes, dry_build
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.needs import (
    AgentSizes,
    Need,
    ReplaySizes,
    RunNeeds,
    agent_sizes,
    encoded_nbytes,
    memory_needs,
    refuse_unmet,
    replay_sizes,
    run_needs,
    tree_nbytes,
)
from border_cli.registry import REPLAY_BUFFERS
from border_cli.replay_buffer.sum_tree import SumTree

MIB, GIB = 2**20, 2**30
AGENT = AgentSizes(parameters=250_000, weights=MIB, state=4 * MIB, units=512, on_host=True)
COLLECTED = 48 + 1024  # a transition of CartPole, and the objects around it
BOX = BoxSpace((2, 3), "uint8", np.zeros((2, 3)), np.ones((2, 3)))


@cache  # they are immutable
def settings(*overrides: str) -> EffectiveSettings:
    return effective_settings(compose("env=cartpole", *overrides))


def spec_of(effective: EffectiveSettings) -> EnvSpec:
    return env_factory(effective).spec


def test_a_million_rows_are_counted_and_not_allocated() -> None:
    effective = settings("replay_buffer.capacity=1000000000000")
    # two observations of 4 float32, an int64 action, reward and discount: 48 bytes
    assert replay_sizes(effective, spec_of(effective)).nbytes == 48_000_000_000_000


def test_priorities_add_a_tree_for_their_sum_and_one_for_their_minimum() -> None:
    # 100,000 leaves in 3,125 blocks; their sums in 98 blocks of 32, with 98 sums on top
    tree = 8 * (100_000 + 98 * 32 + 98)
    assert tree_nbytes(100_000) == tree
    effective = settings("replay_buffer=prioritized")
    spec = spec_of(effective)
    assert replay_sizes(effective, spec).nbytes == 4_800_000 + tree
    assert replay_sizes(effective, spec).priorities == 800_000
    both = settings("replay_buffer=prioritized", "replay_buffer.normalize=buffer")
    assert replay_sizes(both, spec).nbytes == 4_800_000 + 2 * tree


@pytest.mark.parametrize("capacity", [1, 1_023, 1_024, 1_025, 32_768, 32_769, 1_234_567])
def test_a_tree_is_as_large_as_it_is_counted(capacity: int) -> None:
    assert tree_nbytes(capacity) == SumTree(capacity).nbytes


@pytest.mark.parametrize("choice", ["uniform", "prioritized"])
def test_a_replay_buffer_is_as_large_as_it_is_counted(choice: str) -> None:
    effective = settings("env=acrobot", f"replay_buffer={choice}", "replay_buffer.capacity=3000")
    spec = spec_of(effective)
    built = REPLAY_BUFFERS.build(
        effective.config.replay_buffer, spec=spec, rng=np.random.default_rng(0)
    )
    assert replay_sizes(effective, spec).nbytes == built.nbytes


def test_an_agent_is_counted_with_targets_and_optimiser() -> None:
    effective = settings("agent.hidden=[4]")
    found = agent_sizes(build_agent(effective, spec_of(effective)))
    assert found.parameters == (4 * 4 + 4) + (4 * 2 + 2)
    assert found.weights == 4 * found.parameters
    # weights, targets, two averages of Adam, its counter once for each of four tensors, and the
    # state of the generator of noise
    assert found.state == 4 * found.weights + 4 * 4 + torch.Generator().get_state().nbytes
    assert found.units == 4 + 2
    assert found.on_host


def test_an_agent_without_weights_takes_nothing() -> None:
    effective = settings("agent=random")
    found = agent_sizes(build_agent(effective, spec_of(effective)))
    assert (found.parameters, found.weights, found.state, found.units) == (0, 0, 0, 0)


def test_observations_are_counted_as_networks_take_them() -> None:
    assert encoded_nbytes(BOX) == 4 * 6
    assert encoded_nbytes(DiscreteSpace(5)) == 4 * 5
    assert encoded_nbytes(MultiDiscreteSpace((2, 3))) == 4 * 5
    assert encoded_nbytes(DictSpace({"a": BOX, "b": DiscreteSpace(5)})) == 4 * 11


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (48, "48 B"),
        (28_224, "28.2 kB"),
        (412_000_000, "393 MiB"),
        (9_000_000_000, "8.38 GiB"),
        (29_420_578_406, "27.4 GiB"),
    ],
)
def test_sizes_read_well(nbytes: int, said: str) -> None:
    assert size(nbytes) == said


def needs(*overrides: str, agent: AgentSizes = AGENT) -> dict[str, Need]:
    """By a word of what they are for."""
    effective = settings("actor_manager.n_buffer=20", *overrides)
    spec = spec_of(effective)
    found = memory_needs(effective, spec, agent=agent, replay=replay_sizes(effective, spec))
    names = ("replay", "rows", "actors", "agent", "evaluation", "checkpoints", "kept", "program")
    return dict(zip(names, found, strict=True))


def test_the_replay_buffer_counts_with_every_row() -> None:
    found = needs("replay_buffer.capacity=1000000")["replay"]
    assert found.nbytes == 48_000_000
    assert found.because == "replay_buffer.capacity=1000000 transitions of 48 B"


def test_a_replay_buffer_of_another_kind_counts_for_nothing_and_says_so() -> None:
    effective = settings()
    unknown = ReplaySizes(capacity=100_000, row=0, trees=0, priorities=0)
    found = memory_needs(effective, spec_of(effective), agent=AGENT, replay=unknown)[0]
    assert (found.what, found.nbytes) == ("replay buffer (unknown size)", 0)


def test_messages_of_threads_wait_twice_and_are_joined_once() -> None:
    found = needs("actor_manager.num_actors=3")["rows"]
    # two wait, two are in the learner's hands, one is being joined, and one is gathered
    assert found.nbytes == 3 * 20 * (5 * 48 + COLLECTED)


def test_a_round_of_environments_that_step_together_is_the_smallest_message() -> None:
    assert needs("env.num_envs=50")["rows"].nbytes == 2 * 50 * (5 * 48 + COLLECTED)


def test_processes_share_rings_of_four_messages_and_gather_for_themselves() -> None:
    found = needs("actor_manager=process", "actor_manager.num_actors=4")
    assert found["rows"].nbytes == 4 * 4 * 20 * 48 + 4 * 20 * COLLECTED
    assert found["rows"].elsewhere == 4 * 20 * COLLECTED
    # 16 MiB each and 32 MiB once, the environment and two copies of the weights
    actors = found["actors"].nbytes
    assert actors > 4 * (16 + 2) * MIB + 32 * MIB
    assert actors < 4 * (16 + 3) * MIB + 32 * MIB
    assert found["actors"].elsewhere == actors  # nothing in the learner's process
    spawned = needs("actor_manager=process", "actor_manager.start_method=spawn")["actors"]
    assert spawned.nbytes - 32 * MIB > 2 * 48 * MIB


def test_the_agent_counts_with_targets_optimiser_gradient_and_snapshots() -> None:
    found = needs("agent.batch_size=1")["agent"].nbytes
    # state, gradient, four snapshots; and for one row: itself, its numbers, values of all units
    assert found == (4 + 1 + 4) * MIB + 48 + 4 * 16 + 6 * 4 * 512


def test_what_a_gpu_holds_takes_no_memory_of_the_machine() -> None:
    away = AgentSizes(parameters=250_000, weights=MIB, state=4 * MIB, units=512, on_host=False)
    assert needs("agent.batch_size=1", agent=away)["agent"].nbytes == 4 * MIB + 48


def test_an_evaluation_in_the_background_is_a_process_more() -> None:
    background, inline = needs("evaluator.background=true"), needs()
    assert background["evaluation"].nbytes - inline["evaluation"].nbytes == (16 + 32) * MIB


def test_checkpoints_copy_the_agent_and_the_priorities_and_keep_the_best_model() -> None:
    found = needs("replay_buffer=prioritized")["checkpoints"].nbytes
    assert found == 6 * 4 * MIB + 64 * MIB + 800_000
    assert needs("checkpoint.replay_buffer=false")["checkpoints"].nbytes == 6 * 4 * MIB


def test_malloc_keeps_three_quarters_of_what_comes_and_goes_in_the_learners_process() -> None:
    found = needs("actor_manager=process", "evaluator.background=true")
    here = 2 * 4 * 20 * 48 + found["agent"].nbytes + found["checkpoints"].nbytes
    assert found["kept"].nbytes == int(0.75 * here)


def test_a_data_set_counts_with_its_rows_and_what_reading_them_takes(tmp_path: Path) -> None:
    def named(*overrides: str) -> dict[str, Need]:
        effective = settings(
            f"replay_buffer.dataset={CARTPOLE}", "replay_buffer.capacity=1000", *overrides
        )
        spec = spec_of(effective)
        replay = replay_sizes(effective, spec)
        found = memory_needs(effective, spec, agent=AGENT, replay=replay)
        return {each.what: each for each in found}

    with datasets_in(tmp_path):
        rows = 48 * write_cartpole(CARTPOLE)
        offline, both = named("trainer=offline"), named("replay_buffer=dataset")
    assert offline["data set"].nbytes == both["data set"].nbytes == rows + 2 * 64 * rows
    assert (
        offline["data set"].because
        == f"replay_buffer.dataset={CARTPOLE}, {rows // 48} transitions of 48 B"
    )
    assert both["replay buffer"].nbytes == 48_000
    gone = {"replay buffer", "transitions in flight", "2 actors, thread"}
    assert both.keys() - offline.keys() >= gone
    assert "the program and 2 threads" in offline


def planned(*overrides: str, name: str = "the run") -> RunNeeds:
    words = ("env=cartpole", "agent.hidden=[4]", "trainer.stop_at_score=null")
    effective = effective_settings(compose(*words, *overrides))
    built = dry_build(effective, Probes(logging.error))
    assert built is not None
    return run_needs(effective, built, name)


def refuse(*runs: RunNeeds, memory: int = GIB, addresses: int = 99 * GIB) -> None:
    refuse_unmet(
        runs,
        memory=[
            Room("free memory of this machine", 99 * GIB),
            Room("limit of the cgroup", memory),
            Room("address space, ulimit -v", addresses, of_process=True),
        ],
    )


def refusal(*runs: RunNeeds, **rooms: int) -> str:
    with pytest.raises(ConfigError, match="To reduce it: ") as refused:
        refuse(*runs, **rooms)
    return str(refused.value)


def test_what_there_is_room_for_is_admitted() -> None:
    refuse(planned())
    refuse()


def test_a_refusal_names_the_numbers_the_limit_and_a_capacity_that_fits() -> None:
    chosen = ("replay_buffer.capacity=30000000", "checkpoint.replay_buffer=false")
    said = refusal(planned(*chosen))
    assert said.startswith("the run needs 1.39 GiB of memory, but 1.00 GiB is available (limit of")
    assert "replay buffer 1.34 GiB (replay_buffer.capacity=30000000 transitions of 48 B)" in said
    fits = int(re.findall(r"To reduce it: replay_buffer.capacity=(\d+)", said)[0])
    assert fits == 21_000_000  # 1 GiB less some 51 MiB, in two digits
    refuse(planned(f"replay_buffer.capacity={fits}", *chosen[1:]))
    with pytest.raises(ConfigError, match="memory"):
        refuse(planned(f"replay_buffer.capacity={fits + 1_000_000}", *chosen[1:]))


def test_a_limit_of_the_process_leaves_out_what_its_children_take() -> None:
    crowded = planned("actor_manager=process", "actor_manager.num_actors=30")
    assert crowded.memory_nbytes > 512 * MIB
    refuse(crowded, addresses=512 * MIB)
    said = refusal(planned("replay_buffer.capacity=10000000"), addresses=512 * MIB)
    assert "(address space, ulimit -v)" in said
    assert "To reduce it: replay_buffer.capacity=" in said


def test_where_no_capacity_fits_other_settings_are_named() -> None:
    said = refusal(planned("actor_manager=process", "actor_manager.num_actors=90"))
    assert "90 actors, process 1.45 GiB (actor_manager.num_actors=90, env.num_envs=1)" in said
    assert "To reduce it: actor_manager.num_actors, env.num_envs, checkpoint.replay" in said
    assert "replay_buffer.capacity=" not in said.partition("To reduce it")[2]


def test_what_confirms_a_score_has_environments_of_its_own() -> None:
    def evaluation(*overrides: str) -> int:
        needs = planned("evaluator.num_episodes=1000", *overrides).memory
        return next(each.nbytes for each in needs if each.what == "evaluation")

    alone = evaluation()
    confirmed = evaluation("trainer.stop_at_score=500")
    assert confirmed == pytest.approx(2 * alone, rel=0.01)
    assert evaluation("trainer.stop_at_score=500", "trainer.stop_confirmations=0") == alone


def test_a_capacity_below_the_warm_up_is_never_proposed() -> None:
    chosen = ("replay_buffer.capacity=30000000", "trainer.warmup_period=25000000")
    assert "To reduce it: replay_buffer.capacity," in refusal(planned(*chosen)) + ","


@pytest.mark.slow
def test_of_a_sweep_the_largest_job_is_named() -> None:
    small = planned("replay_buffer.capacity=1000", name="job 0 (seed=0)")
    large = planned("replay_buffer.capacity=30000000", name="job 1 (seed=1)")
    assert refusal(small, large).startswith("job 1 (seed=1) needs 1.5")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_the_check_allocates_nothing_of_what_it_counts() -> None:
    chosen = planned("replay_buffer.capacity=1000000000000")
    with pytest.raises(ConfigError, match=r"needs 44,703\.\d GiB of memory"):
        refuse_unmet([chosen])
    assert os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < chosen.memory_nbytes
