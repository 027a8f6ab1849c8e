"""Hyperparameter search: trials are trained with several seeds each, and bad ones are pruned."""
