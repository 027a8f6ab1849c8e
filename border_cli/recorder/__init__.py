"""Where the numbers go."""
