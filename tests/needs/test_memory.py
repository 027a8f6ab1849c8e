"""What a run takes of memory, worked out by hand."""

from __future__ import annotations

from pathlib import Path

from datasets import CARTPOLE, datasets_in, write_cartpole

from border_cli.config.compose import compose
from border_cli.launch.build import env_factory
from border_cli.launch.needs import AgentSizes, Need, ReplaySizes, memory_needs, replay_sizes

MIB = 2**20
AGENT = AgentSizes(parameters=250_000, weights=MIB, state=4 * MIB, units=512, on_host=True)
PROXY_ROW = 48 + 1024  # CartPole's, and the objects around it


def needs(*overrides: str, agent: AgentSizes = AGENT) -> dict[str, Need]:
    """By a word of what they are for."""
    config = compose("env=cartpole", "actor_manager.n_buffer=20", *overrides)
    spec = env_factory(config).spec
    replay: ReplaySizes = replay_sizes(config, spec)
    found = memory_needs(config, spec, agent=agent, replay=replay, cores=2)
    assert [each.what for each in found if each.nbytes < each.reserved] in (
        [],
        [found[-1].what],  # threads reserve more than they use
    )
    names = ("replay", "rows", "actors", "agent", "evaluation", "checkpoints", "kept", "program")
    return dict(zip(names, found, strict=True))


def test_the_replay_buffer_counts_with_every_row() -> None:
    found = needs("replay_buffer.capacity=1000000")["replay"]
    assert found.nbytes == found.reserved == 48_000_000
    assert found.because == "replay_buffer.capacity=1000000 transitions of 48 B"


def test_a_replay_buffer_of_another_kind_counts_for_nothing_and_says_so() -> None:
    config = compose("env=cartpole")
    unknown = ReplaySizes(capacity=100_000, row=0, trees=0, priorities=0)
    spec = env_factory(config).spec
    found = memory_needs(config, spec, agent=AGENT, replay=unknown, cores=2)[0]
    assert (found.what, found.nbytes) == ("replay buffer (unknown size)", 0)


def test_messages_of_threads_wait_twice_and_are_joined_once() -> None:
    found = needs("actor_manager.num_actors=3")["rows"]
    # two wait, two are in the learner's hands, one is being joined, and one is gathered
    assert found.nbytes == found.reserved == 3 * 20 * (5 * 48 + PROXY_ROW)


def test_a_round_of_environments_that_step_together_is_the_smallest_message() -> None:
    assert needs("env.num_envs=50")["rows"].nbytes == 2 * 50 * (5 * 48 + PROXY_ROW)


def test_processes_share_rings_of_four_messages_and_gather_for_themselves() -> None:
    found = needs("actor_manager=process", "actor_manager.num_actors=4")
    assert found["rows"].reserved == 4 * 4 * 20 * 48
    assert found["rows"].nbytes == found["rows"].reserved + 4 * 20 * PROXY_ROW
    # 16 MiB each and 32 MiB once, the environment and two copies of the weights
    actors = found["actors"].nbytes
    assert actors > 4 * (16 + 2) * MIB + 32 * MIB
    assert actors < 4 * (16 + 3) * MIB + 32 * MIB
    assert found["actors"].reserved == 0  # of the learner's address space
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
    beside, in_line = needs("evaluator.background=true"), needs()
    assert beside["evaluation"].nbytes - in_line["evaluation"].nbytes == (16 + 32) * MIB


def test_checkpoints_copy_the_agent_and_the_priorities_and_keep_the_best_model() -> None:
    found = needs("replay_buffer=prioritized")["checkpoints"].nbytes
    assert found == 6 * 4 * MIB + 32 * MIB + 800_000
    assert needs("checkpoint.replay_buffer=false")["checkpoints"].nbytes == 6 * 4 * MIB


def test_rows_that_are_overwritten_while_they_are_saved_are_copied_aside() -> None:
    seldom = ("replay_buffer.capacity=8000", "trainer.samples_per_opt_step=1")
    kept = needs(*seldom, "trainer.save_interval=4000")["checkpoints"].nbytes
    aside = needs(*seldom, "trainer.save_interval=4001")["checkpoints"].nbytes
    assert aside - kept == 4001 * 48


def test_malloc_keeps_three_quarters_of_what_comes_and_goes_in_the_learners_process() -> None:
    found = needs("actor_manager=process", "evaluator.background=true")
    here = found["rows"].reserved + found["agent"].nbytes + found["checkpoints"].nbytes
    assert found["kept"].nbytes == found["kept"].reserved == int(0.75 * here)


def test_threads_reserve_address_space() -> None:
    thread = needs("actor_manager.num_actors=3")["program"]
    serial = needs("actor_manager=serial", "actor_manager.num_actors=3")["program"]
    assert thread.reserved - serial.reserved >= 3 * 64 * MIB
    assert needs("trainer=sync")["program"].reserved == serial.reserved


def test_a_data_set_counts_with_its_rows_and_what_reading_them_takes(tmp_path: Path) -> None:
    def named(*overrides: str) -> dict[str, Need]:
        config = compose(
            "env=cartpole", f"replay_buffer.dataset={CARTPOLE}", "replay_buffer.capacity=1000",
            *overrides,
        )  # fmt: skip
        spec = env_factory(config).spec
        replay = replay_sizes(config, spec)
        found = memory_needs(config, spec, agent=AGENT, replay=replay, cores=2)
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
