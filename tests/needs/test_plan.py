"""What is needed against what there is: what is refused, with which words, and what is admitted."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from border_cli.config.compose import compose
from border_cli.core.errors import ConfigError
from border_cli.core.machine import Room, free_disk
from border_cli.launch.dry_build import Probes, rehearse
from border_cli.launch.needs import Plan, plan, refuse_unmet

MIB, GIB = 2**20, 2**30
HERE = Path("/nowhere/run")


def planned(*overrides: str, run_dir: Path = HERE, name: str = "the run") -> Plan:
    words = ("env=cartpole", "agent.hidden=[4]", "trainer.stop_at_score=null")
    config = compose(*words, *overrides)
    built = rehearse(config, Probes(logging.error))
    assert built is not None
    return plan(config, run_dir, built, name)


def refuse(*plans: Plan, memory: int = GIB, addresses: int = 99 * GIB, disk: int = GIB) -> None:
    refuse_unmet(
        plans,
        memory=[Room("free memory of this machine", 99 * GIB), Room("limit of the cgroup", memory)],
        addresses=[Room("address space, ulimit -v", addresses)],
        disk=lambda folder: Room(f"free disk below {folder}", disk),
    )


def refusal(*plans: Plan, **rooms: int) -> str:
    with pytest.raises(ConfigError, match="To reduce it: ") as refused:
        refuse(*plans, **rooms)
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


def test_address_space_counts_apart_from_memory() -> None:
    crowded = planned("actor_manager.num_actors=20")
    refuse(crowded, addresses=4 * GIB)
    said = refusal(crowded, addresses=GIB)
    assert "(address space, ulimit -v)" in said
    assert "threads" in said
    assert "actor_manager.num_actors=20" in said


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


def test_the_disk_is_refused_with_what_is_written_to_it() -> None:
    rare = ("trainer.eval_interval=100000", "trainer.record_interval=100000")
    chosen = ("replay_buffer.capacity=10000000", "trainer.max_opt_steps=9000000", *rare)
    said = refusal(planned(*chosen), disk=300 * MIB)
    # 10,000,000 rows and 4 times 5,000 x 2
    assert "replay buffer, 10,040,000 transitions 460 MiB (replay_buffer.capacity=" in said
    assert f"300 MiB is free (free disk below {HERE})" in said
    assert "checkpoint.replay_buffer=false" in said
    assert said.endswith("or set run_dir to another disk")
    fits = int(re.findall(r"To reduce it: replay_buffer.capacity=(\d+)", said)[0])
    refuse(planned(f"replay_buffer.capacity={fits}", *chosen[1:]), disk=300 * MIB)
    refuse(planned(*chosen, "checkpoint.replay_buffer=false"), disk=300 * MIB)


def test_of_a_sweep_the_largest_job_is_named_and_disks_add_up() -> None:
    small = planned("replay_buffer.capacity=1000", name="job 0 (seed=0)")
    large = planned("replay_buffer.capacity=30000000", name="job 1 (seed=1)")
    assert refusal(small, large).startswith("job 1 (seed=1) needs 1.4")
    each = planned("agent.batch_size=8").disk_nbytes
    with pytest.raises(ConfigError, match=r"the sweep of 3 jobs writes .* the largest is job 1"):
        refuse(*[planned(name=f"job {i}") for i in (1, 2, 3)], disk=3 * each - 1)
    refuse(*[planned(name=f"job {i}") for i in (1, 2, 3)], disk=3 * each)


def test_what_a_resumed_run_has_on_the_disk_is_not_needed_again(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(bytes(MIB))
    fresh = planned(run_dir=tmp_path)
    resumed = planned("resume=auto", run_dir=tmp_path)
    assert fresh.disk_nbytes - resumed.disk_nbytes == MIB
    assert "1 MiB is already written" in refusal(resumed, disk=MIB)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_real_disk_that_is_too_small_is_refused(small_disk: Path) -> None:
    asked: Callable[[Path], Room] = free_disk
    with pytest.raises(ConfigError, match=f"2 MiB is free .free disk below {small_disk}"):
        refuse_unmet([planned(run_dir=small_disk / "run")], disk=asked)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_the_check_allocates_nothing_of_what_it_counts() -> None:
    chosen = planned("replay_buffer.capacity=1000000000000")
    with pytest.raises(ConfigError, match=r"needs 44,703\.\d GiB of memory"):
        refuse_unmet([chosen])
    assert os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < chosen.memory_nbytes
