"""Child processes: how they start, what they share, how they end with their parent."""
