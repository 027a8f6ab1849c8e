"""Speed benchmarks; `python -m benchmarks` runs all of them."""

from benchmarks.machine import one_thread_for_blas

one_thread_for_blas()  # before any benchmark module imports numpy
