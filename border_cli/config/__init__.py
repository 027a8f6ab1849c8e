"""Composition of a RunConfig from overrides and config files, with Hydra and OmegaConf."""
