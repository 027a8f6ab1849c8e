"""Ray clusters: the connection, the checks of the nodes, actors, evaluations and jobs."""
