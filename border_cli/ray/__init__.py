"""Ray clusters: the connection, the checks of the nodes, and the actors and jobs that run there."""
