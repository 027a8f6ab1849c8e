"""What a learner's process does with memory that was freed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from border_cli.core.malloc import keep_freed_memory

USERS_CHOICES = [
    {"MALLOC_TRIM_THRESHOLD_": "1000000"},
    {"MALLOC_MMAP_THRESHOLD_": "1000000"},
    {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1000000"},
]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back so")
def test_a_learner_does_not_ask_the_kernel_again_for_what_it_freed():
    """In a process of its own, because nothing undoes it. Pages: 8 blocks have 1,024 in all."""
    code = """if True:
        import resource
        import numpy as np
        from border_cli.nn.device import learner_thread

        def pages_asked_for():
            for _ in range(3):
                blocks = [np.ones(2**17, np.float32) for _ in range(8)]  # 512 KiB each
                del blocks
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(10):
                blocks = [np.ones(2**17, np.float32) for _ in range(8)]
                del blocks
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        without = pages_asked_for()
        with learner_thread(num_threads=1):
            learning = pages_asked_for()
        assert without > 5_000, without
        assert learning < 1_000, learning
    """
    unset = {name for choice in USERS_CHOICES for name in choice}
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environ)


@pytest.mark.parametrize("choice", USERS_CHOICES, ids=lambda choice: next(iter(choice)))
def test_what_the_environment_says_of_malloc_holds(choice: dict[str, str]):
    assert not keep_freed_memory(choice)
