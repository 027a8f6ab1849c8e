"""What many runs say together: reading them, statistics over seeds, curves and pages."""
