"""Composes overrides and config files into a RunConfig; Hydra and OmegaConf stay in here."""
