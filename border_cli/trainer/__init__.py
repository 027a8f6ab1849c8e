"""The one training loop and what surrounds each optimisation step."""
