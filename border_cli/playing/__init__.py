"""Episodes of saved models: for a score, in a window, as a film, or for a Minari data set."""
