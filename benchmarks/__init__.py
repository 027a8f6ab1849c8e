"""Speed benchmarks; `python -m benchmarks` runs those of the table."""

from benchmarks.machine import one_thread_for_blas

one_thread_for_blas()  # before any benchmark module imports numpy
