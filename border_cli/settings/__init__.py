"""The settings of a run and their base class."""
