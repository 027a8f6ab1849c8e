"""Speed benchmarks; `python -m benchmarks` prints the whole table."""

from benchmarks.machine import one_thread_for_blas

one_thread_for_blas()  # before any of the modules here loads numpy
