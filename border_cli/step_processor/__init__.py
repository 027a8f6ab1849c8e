"""Step processors, which turn steps of environments into transitions."""
