"""A trial of third-party Gymnasium packages from the package index."""
