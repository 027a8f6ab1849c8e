"""Denormals that become 0, and freed memory that a process keeps."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading

import numpy as np
import pytest

from border_cli.system.processor import flushing_denormals, keep_freed_memory

flushes = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="denormals are flushed on Linux with an x86-64 processor",
)

USERS_CHOICES = [
    {"MALLOC_TRIM_THRESHOLD_": "1000000"},
    {"MALLOC_MMAP_THRESHOLD_": "1000000"},
    {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1000000"},
]


def denormal_bits() -> int:
    """Returns the bits of 2e-38 * 0.01, a denormal: float32 numbers are normal from 1.18e-38 on.

    As a float, a denormal may compare equal to 0.
    """
    product = np.full(8, 2e-38, np.float32) * np.float32(0.01)
    return int(product.view(np.int32)[0])


def enlarged_denormal() -> float:
    """Returns 1e-40 * 1e10, a normal number unless the operand counts as 0."""
    denormal = np.full(8, 71_362, np.int32).view(np.float32)  # the bits of 1e-40
    return float((denormal * np.float32(1e10))[0])


@flushes
def test_denormals_are_zero_inside_the_block_and_not_after_it() -> None:
    before = denormal_bits()
    assert before > 0
    assert enlarged_denormal() == pytest.approx(1e-30, rel=1e-5)
    with flushing_denormals():
        assert denormal_bits() == 0  # as results
        assert enlarged_denormal() == 0  # as operands
        with flushing_denormals():
            assert denormal_bits() == 0
        assert denormal_bits() == 0  # the outer block continues
    assert denormal_bits() == before
    assert enlarged_denormal() == pytest.approx(1e-30, rel=1e-5)


@flushes
def test_denormals_are_back_after_a_block_that_fails() -> None:
    with pytest.raises(KeyError, match="inside"), flushing_denormals():
        raise KeyError("inside")
    assert denormal_bits() > 0


@flushes
def test_threads_started_in_the_block_flush_and_others_do_not() -> None:
    seen: dict[str, int] = {}
    inside = threading.Event()

    def record(name: str) -> None:
        assert inside.wait(10)
        seen[name] = denormal_bits()

    before = threading.Thread(target=record, args=("before",))
    before.start()
    with flushing_denormals():
        within = threading.Thread(target=record, args=("within",))
        within.start()
        inside.set()
        for thread in (before, within):
            thread.join(10)
    assert seen["within"] == 0
    assert seen["before"] > 0


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    before = denormal_bits()
    with flushing_denormals():
        assert denormal_bits() == before


@pytest.mark.parametrize("choice", USERS_CHOICES, ids=lambda choice: next(iter(choice)))
def test_malloc_settings_in_the_environment_are_kept(choice: dict[str, str]) -> None:
    assert not keep_freed_memory(choice)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the allocator of glibc")
def test_a_learner_reuses_freed_memory_instead_of_returning_it_to_the_kernel() -> None:
    """Each measurement has a process of its own, because glibc adjusts itself and keeps settings.

    By default it asks the kernel for each block that is larger than all blocks freed before.
    """
    code = """if True:
        import resource, sys
        import numpy as np
        from contextlib import nullcontext
        from border_cli.agent.config import DqnConfig
        from border_cli.agent.dqn import Dqn
        from border_cli.core.spaces import DiscreteSpace, EnvSpec

        two = DiscreteSpace(2)
        spec = EnvSpec(id="x", observation=two, action=two, max_episode_steps=None)
        agent = Dqn(DqnConfig(), spec=spec, device="cpu", seed=0)
        with agent.learner_thread() if sys.argv[1] == "learning" else nullcontext():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for number in range(10):
                np.ones(2**16 * (96 + 2 * number), np.float32)  # from 24 to 28.5 MiB, freed again
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    unset = {name for choice in USERS_CHOICES for name in choice}
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ["NUMPY_MADVISE_HUGEPAGE"] = "0"  # pages of 4 KiB

    def pages_asked_for(state: str) -> int:
        command = [sys.executable, "-c", code, state]
        ran = subprocess.run(
            command, check=True, timeout=300, env=environ, capture_output=True, text=True
        )
        return int(ran.stdout)

    assert pages_asked_for("idle") > 60_000
    assert pages_asked_for("learning") < 10_000
