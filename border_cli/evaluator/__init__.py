"""How good a policy is."""
