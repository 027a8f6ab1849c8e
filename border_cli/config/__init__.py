"""From what a user types to a RunConfig; the only folder that knows Hydra and OmegaConf."""
