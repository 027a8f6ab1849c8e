"""Neural networks, optimizers, and the per-thread settings of torch."""
