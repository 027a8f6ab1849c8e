"""Networks, and what torch keeps per thread."""
