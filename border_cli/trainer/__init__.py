"""The training loop and what surrounds each optimisation step."""
