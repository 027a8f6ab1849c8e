"""A Ray cluster: the connection to it, the checks of its nodes, and what runs there."""
